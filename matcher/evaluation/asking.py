"""Calls operators for the events of one batch: each call at most once per event.

Answers come from the batch's results, or from the operator, and are then added to the results. All that an
operator returns is checked. Invariant: no fault of an operator raises; events without an answer are
UNDECIDED."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher.errors import OperatorError
from covey.matcher.evaluation.accounts import Accounts
from covey.matcher.evaluation.bound_calls import BoundCall
from covey.matcher.evaluation.problem import FALSE, TRUE, UNDECIDED, Int64s, Truths
from covey.matcher.evaluation.runner import Runner
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.results import Answers
from covey.matcher.expressions.expression import Column
from covey.matcher.operators.named_operator import NamedOperator
from covey.matcher.operators.table import why_missing

_UNKNOWN, _ABSENT = np.int8(3), np.int8(4)
_AS_EXPECTED = np.array([FALSE, UNDECIDED, TRUE, UNDECIDED, FALSE], np.int8)
_NEGATED = np.array([TRUE, UNDECIDED, FALSE, UNDECIDED, FALSE], np.int8)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fault:
    """`operator reason` is a sentence; `call` is the call's text, `events` the number of events without an
    answer."""

    operator: str
    reason: str
    call: str = ""
    events: int = 0

    def __str__(self) -> str:
        return f"operator {self.operator}: {self.reason}"


OnFault = Callable[[Fault], None]


class Asking:
    """The evaluation of calls for some events of a batch, `window`; rows are numbers in the batch."""

    def __init__(
        self,
        batch: EventBatch,
        window: range,
        accounts: Accounts,
        run: Runner,
        on_fault: OnFault,
        *,
        readers: bool,
    ) -> None:
        self._first, self._count = window.start, len(window)
        self._batch, self._accounts, self._run, self._on_fault = batch, accounts, run, on_fault
        self._readers = readers
        self._results = batch.shared_results()
        self._present: dict[tuple[str, ...], Mask] = {}
        self._answers: dict[int, Truths] = {}
        """By key, for all events of the window: a truth, _UNKNOWN or _ABSENT."""
        self._new: dict[int, list[Int64s]] = {}  # by key: rows whose answers are not in the results yet

    def present(self, columns: tuple[str, ...]) -> Mask:
        """The events of the window that have all these attributes: bool[n]."""
        mask = self._present.get(columns)
        if mask is None:
            mask = np.ones(self._count, np.bool_)
            for name in columns:
                if name not in self._batch.event_type.attributes:
                    mask[:] = False
                elif (column := self._batch.record_batch.column(name)).null_count:
                    column = column.slice(self._first, self._count)
                    mask &= column.is_valid().to_numpy(zero_copy_only=False)
            self._present[columns] = mask
        return mask

    def is_known(self, call: BoundCall) -> bool:
        return self._results.get(call.key) is not None

    def truths(self, call: BoundCall, rows: Int64s, *, expected: bool = True) -> Truths:
        """Whether a call is as expected for events: int8[n], FALSE where an attribute is missing."""
        answers = self._answers.get(call.key)
        if answers is None:
            answers = self._answers[call.key] = self._known(call)
        known = answers[rows - self._first]
        unknown = rows[known == _UNKNOWN]
        if len(unknown):
            if len(unknown) > 1 and not (unknown[1:] > unknown[:-1]).all():
                unknown = np.unique(unknown)
            self._ask(call, unknown, answers)
            known = answers[rows - self._first]
        truths: Truths = (_AS_EXPECTED if expected else _NEGATED)[known]
        return truths

    def close(self) -> None:
        for key, rows in self._new.items():
            ascending = np.sort(np.concatenate(rows))
            truths = self._answers[key][ascending - self._first] == TRUE
            self._results.add(key, Answers(ascending, truths))
        self._new.clear()

    def solutions(self, call: BoundCall, rows: Int64s) -> tuple[Int64s, list[npt.NDArray[Any]]]:
        """The solutions for events for which `truths` evaluated the call: the position in `rows` of each, and
        a column per free variable of its parameters."""
        answers = self._results.get(call.key)
        if answers is None or answers.solutions is None:
            return np.zeros(0, np.int64), [np.zeros(0, np.float64) for _ in call.free]
        places, known = answers.positions(rows)
        positions = np.flatnonzero(known)
        lists = answers.solutions.take(pa.array(places[positions]))
        of_each = np.repeat(positions, lists.value_lengths().to_numpy(zero_copy_only=False))
        return of_each, _columns(lists)

    def _known(self, call: BoundCall) -> Truths:
        answers = np.where(self.present(call.columns), _UNKNOWN, _ABSENT)
        known = self._results.get(call.key)
        if known is None:
            return answers
        if call.free and not _fits(known.solutions, call):
            if call.entry is None:
                answers[answers == _UNKNOWN] = UNDECIDED
            else:  # not what this operator returns, so it is asked
                self._results.discard(call.key)
            return answers
        start, end = np.searchsorted(known.rows, (self._first, self._first + self._count))
        answers[known.rows[start:end] - self._first] = np.where(known.truths[start:end], TRUE, FALSE)
        self._accounts.of(call.operator).reused += int(end - start)
        return answers

    def _ask(self, call: BoundCall, rows: Int64s, answers: Truths) -> None:
        answered = self._answered(call, rows, answers)
        if answered < len(rows):
            answers[rows[answered:] - self._first] = UNDECIDED
            self._accounts.of(call.operator).undecided += len(rows) - answered

    def _answered(self, call: BoundCall, rows: Int64s, answers: Truths) -> int:
        """The number of events, from the first on, that the operator has answered."""
        entry = call.entry
        if entry is None:
            self._on_fault(Fault(call.operator, why_missing(call.operator), call.text, len(rows)))
            return 0
        if entry.stateful and not self._readers:
            return 0
        columns = {name: self._batch.record_batch.column(name) for name in call.columns}

        def compute(first: int, last: int) -> Answers:
            return _called(entry, call, columns, rows[first:last])

        outcome = self._run(entry, call.key, len(rows), compute)
        if outcome.failed:
            self._accounts.of(call.operator).failures += 1
        if outcome.failed or outcome.reason:
            left = len(rows) - outcome.answered
            self._on_fault(Fault(call.operator, outcome.reason, call.text, left))
        answered = true = 0
        for part in outcome.parts:
            if call.free:
                if not self._results.add(call.key, part):
                    self._accounts.of(call.operator).failures += 1
                    reason = "returned solutions of another type than for events before, expected the same"
                    self._on_fault(Fault(call.operator, reason, call.text, outcome.answered - answered))
                    break
            else:
                self._new.setdefault(call.key, []).append(part.rows)
            true += int(np.count_nonzero(part.truths))
            answers[part.rows - self._first] = np.where(part.truths, TRUE, FALSE)
            answered += len(part.rows)
        if answered:
            self._accounts.add(call, answered, true, outcome.took_ns)
        return answered


def _called(entry: NamedOperator, call: BoundCall, columns: dict[str, pa.Array], rows: Int64s) -> Answers:
    taken = pa.array(rows)
    arguments: list[Any] = [] if entry.state is None else [call.state]
    arguments += [
        columns[argument.attribute].take(taken) if isinstance(argument, Column) else argument
        for argument in call.arguments
    ]
    answer = entry.evaluate(*arguments)
    count = len(rows) if call.columns else 1
    solutions = None
    if call.free:
        solutions = _checked_solutions(entry, call, answer, count)
        truths = solutions.value_lengths().to_numpy(zero_copy_only=False) > 0
    else:
        truths = _checked_truths(answer, count)
    if not call.columns:  # of constants alone: one answer for all events
        truths = np.repeat(truths, len(rows))
        every = pa.array(np.zeros(len(rows), np.int64))
        solutions = None if solutions is None else solutions.take(every)
    return Answers(rows, truths, solutions)


def _checked_truths(answer: object, count: int) -> Mask:
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if isinstance(answer, pa.BooleanArray):
        if answer.null_count:
            raise OperatorError(f"returned {answer.null_count} nulls, expected true or false")
        answer = answer.to_numpy(zero_copy_only=False)
    if not isinstance(answer, np.ndarray) or answer.dtype != np.bool_ or answer.ndim != 1:
        raise OperatorError(f"returned {_type_of(answer)}, expected an array of Booleans")
    if len(answer) != count:
        raise OperatorError(f"returned {len(answer)} answers, expected {count}")
    return answer.copy()


def _checked_solutions(entry: NamedOperator, call: BoundCall, answer: object, count: int) -> pa.ListArray:
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if not isinstance(answer, pa.ListArray | pa.LargeListArray):
        raise OperatorError(f"returned {_type_of(answer)}, expected a list of solutions per event")
    if len(answer) != count:
        raise OperatorError(f"returned {len(answer)} answers, expected {count}")
    answer.validate(full=True)
    lengths = answer.value_lengths().to_numpy(zero_copy_only=False) if not answer.null_count else None
    items = answer.flatten()
    fields = [items]
    if len(call.free) > 1:
        names = items.type.names if pa.types.is_struct(items.type) else []
        if sorted(names) != sorted(call.fields):
            raise OperatorError(
                f"returned solutions of type {items.type}, expected a struct of {', '.join(call.fields)}"
            )
        fields = [items.field(name) for name in call.fields] if not items.null_count else [items]
    if lengths is None or any(field.null_count for field in (items, *fields)):
        raise OperatorError("returned null in solutions, expected values")
    if len(call.free) > 1:
        fields = [pc.struct_field(items, [name]) for name in call.fields]
    fields = [_of_kind(entry, name, values) for name, values in zip(call.fields, fields, strict=True)]
    keep = _agreeing(call.free, fields)
    if keep is not None:
        of_each = np.repeat(np.arange(count), lengths)[keep]
        lengths = np.bincount(of_each, minlength=count)
        fields = [values.filter(pa.array(keep)) for values in fields]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
    values = fields[0] if len(fields) == 1 else pa.StructArray.from_arrays(fields, names=list(call.fields))
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _of_kind(entry: NamedOperator, name: str, values: pa.Array) -> pa.Array:
    parameter = next(parameter for parameter in entry.parameters if parameter.name == name)
    if values.type == parameter.kind.arrow:
        return values
    try:  # of one type for all events, whichever the operator chooses
        return values.cast(parameter.kind.arrow)
    except pa.ArrowException:
        if any(values.type == kind.arrow for kind in parameter.kinds):
            return values  # such as integers over 2**53
        raise OperatorError(
            f"returned solutions of type {values.type} for {name}, expected {parameter.kind.arrow}"
        ) from None


def _agreeing(free: tuple[int, ...], fields: list[pa.Array]) -> Mask | None:
    """Whether each solution has one value for every free variable; None if all do by their form."""
    keep = None
    for place, number in enumerate(free):
        first = free.index(number)
        if first < place:
            equal = pc.equal(fields[first], fields[place]).to_numpy(zero_copy_only=False)
            keep = equal if keep is None else keep & equal
    return keep


def _fits(solutions: pa.ListArray | None, call: BoundCall) -> bool:
    entry = call.entry
    if solutions is None:
        return False
    item = solutions.type.value_type
    if len(call.free) == 1:
        types = {call.fields[0]: item} if call.fields else {}
    elif not pa.types.is_struct(item):
        return False
    else:
        types = {item.field(i).name: item.field(i).type for i in range(item.num_fields)}
    if entry is None or tuple(types) != call.fields:
        return entry is None and len(types or call.free) == len(call.free)
    kinds = {parameter.name: {kind.arrow for kind in parameter.kinds} for parameter in entry.parameters}
    return all(type in kinds[name] for name, type in types.items())


def _columns(lists: pa.ListArray) -> list[npt.NDArray[Any]]:
    items = lists.flatten()
    fields = items.flatten() if pa.types.is_struct(items.type) else [items]
    return [_values(field) for field in fields]


def _values(field: pa.Array) -> npt.NDArray[Any]:
    """Numbers as they are, times as datetimes in UTC."""
    if pa.types.is_timestamp(field.type):
        return np.array([*field.to_pylist(), None], object)[:-1]
    values: npt.NDArray[Any] = field.to_numpy(zero_copy_only=False)
    return values


def _type_of(answer: object) -> str:
    if isinstance(answer, pa.Array):
        return f"an Arrow array of {answer.type}"
    if isinstance(answer, np.ndarray):
        return f"an array of {answer.dtype}"
    return type(answer).__name__

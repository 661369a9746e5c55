"""Engines whose store keeps rows: the boxes of filters, each a conjunction of interval tests.

Invariants: the rows of one subscription are consecutive numbers, in the order of its plan's
boxes; a new value of a variable is written in place unless it is part of a text test, where the row is taken
out and put in again; what has no boxes (over the DNF cap) is in an engine of its own, the non-canonical
one, which needs none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.compile.bounds import Operands, box_bounds, high_bounds, low_bounds
from covey.matcher.compile.operands import (
    Values,
    check_columns,
    element_of,
    evaluate_column,
    is_column,
    lower,
    part_of,
    upper,
)
from covey.matcher.compile.plan import BoxPlan, Plan
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys, lower_key, upper_key
from covey.matcher.engine import (
    Column,
    Engine,
    IdArray,
    check_distinct,
    create_engine,
    id_array,
    interface_array,
    one_id,
)
from covey.matcher.engines.rows.extremes import Extremes, is_inner
from covey.matcher.engines.rows.id_kernels import UNORDERED
from covey.matcher.engines.rows.ids import IdMap
from covey.matcher.engines.rows.interfaces import Interfaces
from covey.matcher.engines.rows.kernels import (
    INTERFACE_MASK,
    ROW_INTERFACE,
    ROW_PLAN,
    describe_rows,
)
from covey.matcher.engines.rows.plans import Plans, Shared, Writes, moves, writes_of
from covey.matcher.engines.rows.report import explain_rows
from covey.matcher.engines.rows.rows import Numbers, Rows
from covey.matcher.errors import FilterError, SubscriptionError, VariableError
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.expression import Operand, Scalar, Variable
from covey.matcher.expressions.values import affine, normal
from covey.matcher.filters.filter import Filter


class RowEngine(Engine):
    """An engine over a store of rows. Matching is not re-entrant: one thread at a time."""

    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        self.columns = Columns(event_type)
        self.plans = self._new_plans()
        self.store = self._new_store()
        self._ids = IdMap()
        self.beyond: RowEngine | None = (
            None  # subscriptions whose filters are over the cap of the normal form
        )
        self._extremes = Extremes()
        self._sharing = 0  # subscriptions of several rows
        self._interfaces = Interfaces()  # those of subscriptions beyond the cap are not counted
        self._collect_at = 1024

    def _new_plans(self) -> Plans:
        """The plans of the engine's subscriptions."""
        return Plans()

    @abstractmethod
    def _new_store(self) -> Rows:
        """The engine's structure, empty."""

    # --- adding -----------------------------------------------------------------------------------

    def add_many(
        self,
        ids: npt.ArrayLike,
        filter: Filter,
        values: Mapping[str, Scalar | Column] | None = None,
        *,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        wanted = id_array(ids)
        interfaces = interface_array(interface, len(wanted))
        if filter.event_type != self.event_type:
            raise FilterError(
                f"filter over {filter.event_type.name}: expected one over this {self.event_type.name}"
            )
        self._check_new(wanted)
        if not len(wanted):
            return
        checked = check_columns(filter, values or {}, len(wanted))
        self._collect_codes()
        found = self.plans.find(filter)
        if found is None:
            self._beyond_cap().add_many(wanted, filter, values, interface=interfaces)
        else:
            self._add_rows(*found, wanted, checked, interfaces)
        highest = interface if isinstance(interface, int) else int(interfaces.max())
        self._interfaces.highest = max(self._interfaces.highest, highest)

    def _check_new(self, wanted: IdArray) -> None:
        ids = self.store.arrays.ids
        first = self._ids.first_known(ids, wanted)
        repeated = [int(wanted[first])] if first >= 0 else []
        if first == UNORDERED:
            check_distinct(wanted)
            repeated = wanted[self._ids.find(ids, wanted) >= 0].tolist()[:1]
        if self.beyond is not None and not repeated:
            repeated = [i for i in wanted.tolist() if i in self.beyond]
        if repeated:
            raise SubscriptionError(
                f"subscription {repeated[0]}: already added, expected an id that is not in use"
            )

    def _beyond_cap(self) -> RowEngine:
        if self.beyond is None:
            made = create_engine("noncanonical", self.event_type)
            assert isinstance(made, RowEngine)
            self.beyond = made
        return self.beyond

    def _add_rows(
        self,
        number: int,
        given: tuple[Operand, ...],
        ids: IdArray,
        values: dict[str, Values],
        interfaces: npt.NDArray[np.int64],
    ) -> None:
        shared = self.plans[number]
        plan = shared.plan
        each = max(len(plan.boxes), 1)
        firsts = self.store.new_rows(len(ids), each)
        arrays = self.store.arrays
        describe_rows(firsts, each, ids, number, interfaces, arrays.rows, arrays.ids)
        self._ids.enter(arrays.ids, firsts)
        operands = self._operands(plan, given, values, None)
        for box, box_plan in enumerate(plan.boxes):
            inner = self._insert_box(box_plan, firsts + box if box else firsts, operands)
            if not inner or self._extremes:
                self._note_extremes(box_plan, box, firsts, operands, None)
        shared.users += len(ids)
        self._sharing += len(ids) if each > 1 else 0
        self._interfaces.count(interfaces, 1)

    def _operands(
        self,
        plan: Plan,
        given: Sequence[Operand | None],
        values: dict[str, Values],
        only: frozenset[int] | None,
    ) -> Operands:
        """The value of every operand (of `only` these), `given` by number."""
        found: Operands = {}
        for number, kind in enumerate(plan.kinds):
            if kind is None or (only is not None and number not in only):
                continue
            operand = given[number]
            assert operand is not None
            value: Values = (
                evaluate_column(operand, kind, values[operand.name])
                if isinstance(operand, Variable)
                else operand.value
            )
            found[number] = value
            if number in plan.coded:
                found[~number] = self._codes(value)
        return found

    def _codes(self, value: Values) -> Values:
        """The codes of strings."""
        strings = self.columns.strings
        return strings.codes(value) if isinstance(value, pa.Array) else strings.code(str(value))

    def _insert_box(self, plan: BoxPlan, rows: Numbers, operands: Operands) -> bool:
        """Insert the rows of one box; returns whether no bound can be one of the extremes."""
        self.columns.test(plan.columns, len(rows))
        lows, highs, inner = box_bounds(plan, operands, len(rows))
        for chosen, signature in self._signatures(plan, len(rows), operands):
            if chosen is None:
                self.store.insert(rows, signature, lows, highs)
            else:
                self.store.insert_part(rows, signature, lows, highs, chosen)
        return inner

    def _signatures(
        self, plan: BoxPlan, count: int, operands: Operands
    ) -> Iterator[tuple[npt.NDArray[np.int64] | None, int]]:
        """(positions, or None for all, and their signature): texts make rows of one plan differ in what
        they test.
        """
        columns, shapes = plan.columns, plan.shapes
        if not plan.texts:
            yield None, self.store.signature(columns, shapes)
            return
        if count == 1 or not any(isinstance(operands[text.operand], pa.Array) for text in plan.texts):
            derived = [
                self.columns.acquire((column, text.operator, str(operands[text.operand])), count)
                for column, text in zip(plan.text_columns, plan.texts, strict=True)
            ]
            yield None, self.store.signature((*columns, *derived), shapes)
            return
        number_of: dict[tuple[str, ...], int] = {}
        group = np.zeros(count, dtype=np.int64)
        texts = [
            value.to_pylist() if isinstance(value, pa.Array) else [str(value)] * count
            for value in (operands[text.operand] for text in plan.texts)
        ]
        for position, combination in enumerate(zip(*texts, strict=True)):
            group[position] = number_of.setdefault(combination, len(number_of))
        for combination, number in number_of.items():
            chosen = np.flatnonzero(group == number)
            derived = [
                self.columns.acquire((column, text.operator, constant), len(chosen))
                for column, text, constant in zip(plan.text_columns, plan.texts, combination, strict=True)
            ]
            yield chosen, self.store.signature((*columns, *derived), shapes)

    def _note_extremes(
        self, plan: BoxPlan, box: int, firsts: Numbers, operands: Operands, only: frozenset[int] | None
    ) -> None:
        harmless: dict[int, bool] = {}
        for place, test in enumerate(plan.tests):
            if test.kind is Kind.INT64:
                for side, is_lower in ((test.lower, True), (test.upper, False)):
                    if side is not None and (only is None or side.operand in only):
                        value = operands[side.operand]
                        if side.operand not in harmless:
                            harmless[side.operand] = not self._extremes and is_inner(value)
                        if not harmless[side.operand]:
                            self._extremes.note(firsts, (box, place, is_lower), value, side.strict)

    def _interfaces_of(self, rows: Numbers) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self.store.arrays.rows[rows, ROW_INTERFACE].astype(np.int64)
        return found & INTERFACE_MASK

    # --- removing ---------------------------------------------------------------------------------

    def remove_many(self, ids: npt.ArrayLike) -> None:
        wanted = id_array(ids)
        check_distinct(wanted)
        firsts = self._find(wanted)
        if self.beyond is not None:
            self.beyond.remove_many(wanted[firsts < 0])
            firsts = firsts[firsts >= 0]
        if not len(firsts):
            return
        arrays = self.store.arrays
        self._ids.leave(arrays.ids, firsts)
        self._interfaces.count(self._interfaces_of(firsts), -1)
        self._extremes.forget(firsts)
        for number, positions in self._by_plan(firsts):
            plan = self.plans[number].plan
            chosen = firsts if positions is None else firsts[positions]
            for box, box_plan in enumerate(plan.boxes):
                self._take_out(box_plan, chosen + box)
            each = max(len(plan.boxes), 1)
            self.store.free_rows(chosen, each)
            self._sharing -= len(chosen) if each > 1 else 0
            self.plans.release(number, len(chosen))

    def _take_out(self, plan: BoxPlan, rows: Numbers) -> None:
        self.columns.forget(plan.columns, len(rows))
        if plan.texts:
            signatures, counts = np.unique(self.store.signatures_of(rows), return_counts=True)
            self.store.remove(rows)
            for signature, count in zip(signatures.tolist(), counts.tolist(), strict=True):
                for column in self.store.signature_columns(signature)[len(plan.tests) :]:
                    self.columns.release(column, count)
        else:
            self.store.remove(rows)

    def _by_plan(self, firsts: Numbers) -> Iterator[tuple[int, Numbers | None]]:
        """(plan, positions in `firsts`, or None for all of them)"""
        numbers = self.store.arrays.rows[firsts, ROW_PLAN]
        if len(firsts) == 1 or (numbers == numbers[0]).all():
            yield int(numbers[0]), None
            return
        for positions in _alike(numbers):
            yield int(numbers[positions[0]]), positions

    def _find(self, wanted: IdArray) -> Numbers:
        """The first row of every id, -1 for those beyond the cap; `SubscriptionError` for an unknown id."""
        firsts = self._ids.find(self.store.arrays.ids, wanted)
        for subscription_id in wanted[firsts < 0].tolist():
            if self.beyond is None or subscription_id not in self.beyond:
                raise SubscriptionError(f"subscription {subscription_id}: unknown id")
        return firsts

    # --- updating ---------------------------------------------------------------------------------

    def update_many(self, ids: npt.ArrayLike, values: Mapping[str, Scalar | Column]) -> None:
        wanted = id_array(ids)
        if len(wanted) == 1 and all(not is_column(given) or len(given) == 1 for given in values.values()):
            self.update(int(wanted[0]), element_of(values, 0))
        else:
            self._update_many(wanted, values)

    def _update_many(self, wanted: IdArray, values: Mapping[str, Scalar | Column]) -> None:
        check_distinct(wanted)
        firsts = self._find(wanted)
        for name, given in values.items():
            if is_column(given) and len(given) != len(wanted):
                raise VariableError(f"variable ${name}: {len(given)} values, expected one or {len(wanted)}")
        if not len(wanted):
            return
        outside = np.flatnonzero(firsts < 0)
        inside = np.flatnonzero(firsts >= 0) if len(outside) else None
        changes = []
        for shared, positions in (
            self._by_writes(firsts if inside is None else firsts[inside], values)
            if len(outside) < len(wanted)
            else ()
        ):
            plan = shared.plan
            if inside is not None:
                positions = inside if positions is None else inside[positions]
            chosen = firsts if positions is None else firsts[positions]
            given_here = values if positions is None else part_of(values, positions)
            self._check_names(plan, int(wanted[0 if positions is None else positions[0]]), values)
            checked = check_columns(plan.filter, given_here, len(chosen), partial=True)
            changes.append((shared, chosen, checked))
        if self.beyond is not None:  # which changes nothing if something is wrong
            self.beyond.update_many(wanted[outside], part_of(values, outside))
        self._collect_codes()
        for shared, chosen, checked in changes:
            writes = shared.in_place(values)
            if writes is None:
                self._move_rows(shared.plan, chosen, checked)
            else:
                self._write_rows(writes, chosen, checked)

    def _by_writes(
        self, firsts: Numbers, values: Mapping[str, object]
    ) -> Iterator[tuple[Shared, Numbers | None]]:
        """(one of the plans that these values write the same in, or a plan whose rows move; positions in
        `firsts`, or None for all of them)
        """
        of_rows = self.store.arrays.rows[firsts, ROW_PLAN]
        numbers = [int(of_rows[0])] if (of_rows == of_rows[0]).all() else np.unique(of_rows).tolist()
        groups: dict[int, list[int]] = {}
        for number in numbers:
            writes = self.plans[number].in_place(values)
            groups.setdefault(id(self.plans[number] if writes is None else writes), []).append(number)
        if len(groups) == 1:
            yield self.plans[numbers[0]], None
            return
        group_of = np.zeros(len(self.plans), dtype=np.int64)
        for group, members in enumerate(groups.values()):
            group_of[members] = group
        for members, positions in zip(groups.values(), _alike(group_of[of_rows]), strict=True):
            yield self.plans[members[0]], positions

    def _write_rows(self, writes: Writes, firsts: Numbers, values: dict[str, Values]) -> None:
        """Write new bounds of subscriptions of plans that share these writes."""
        parts: dict[int, list[int]] = {}
        bounds: dict[int, list[int | Keys]] = {}
        for box, part, variable, kind, strict in writes[1]:
            value = evaluate_column(variable, kind, values[variable.name])
            if kind is Kind.STRING:
                value = self._codes(value)
            elif kind is Kind.INT64 and (self._extremes or not is_inner(value)):
                self._extremes.note(firsts, (box, (part - 1) // 2, part % 2 == 1), value, strict)
            parts.setdefault(box, []).append(part)
            bounds.setdefault(box, []).append((lower if part % 2 else upper)(kind, value, strict))
        for box, numbers in parts.items():
            matrix = np.empty((len(numbers), len(firsts)), dtype=np.int64)
            for line, bound in zip(matrix, bounds[box], strict=True):
                line[:] = bound
            self.store.write_parts(firsts + box, numbers, matrix)

    def update(self, subscription_id: int, values: Mapping[str, Scalar]) -> None:
        """As `Engine.update`; where bounds change in place, some 10 us whatever the number of
        subscriptions.
        """
        first = self._ids.find_one(self.store.arrays.ids, int(one_id(subscription_id)[0]))
        shared = None if first < 0 else self.plans[int(self.store.arrays.rows[first, ROW_PLAN])]
        writes = None if shared is None else shared.in_place(values)
        if shared is None or writes is None:
            self._update_many(one_id(subscription_id), values)
            return
        _, changes = writes
        checked = shared.plan.filter.check_values(values, partial=True)
        bounds = []
        for _, part, variable, kind, strict in changes:
            value = normal(kind, affine(variable, checked[variable.name]))
            if kind is Kind.STRING or (kind is Kind.INT64 and (self._extremes or not is_inner(value))):
                self._update_many(one_id(subscription_id), values)
                return
            bounds.append((lower_key if part % 2 else upper_key)(kind, value, strict))
        for box in {change[0]: None for change in changes}:
            mine = [(part, bound) for (of, part, *_), bound in zip(changes, bounds, strict=True) if of == box]
            column = np.array([bound for _, bound in mine], dtype=np.int64).reshape(-1, 1)
            row = np.array([first + box], dtype=np.int64)
            self.store.write_parts(row, [part for part, _ in mine], column)

    def _check_names(self, plan: Plan, subscription_id: int, values: Mapping[str, object]) -> None:
        """Plans are shared by filters that differ in constants, so an error must not show the plan's own
        filter.
        """
        for name in values:
            if name not in plan.filter.variables:
                known = ", ".join(f"${variable}" for variable in plan.filter.variables) or "none"
                raise VariableError(
                    f"variable ${name} is unknown: subscription {subscription_id} has {known}"
                )

    def _move_rows(self, plan: Plan, firsts: Numbers, values: dict[str, Values]) -> None:
        """Give subscriptions of one plan new values, some of which change what rows test."""
        changed = plan.operands_of(set(values))
        operands = self._operands(plan, plan.variables, values, changed)
        for box, box_plan in enumerate(plan.boxes):
            if moves(box_plan, changed):
                self._move(box_plan, firsts + box, operands, changed)
                self._note_extremes(box_plan, box, firsts, operands, changed)
        self._write_rows(writes_of(plan, values), firsts, values)

    def _move(self, plan: BoxPlan, rows: Numbers, operands: Operands, changed: frozenset[int]) -> None:
        """Take rows out and put them in again where their new texts belong."""
        lows, highs = self.store.read(rows, plan.size)
        for t, test in enumerate(plan.tests):
            if test.lower is not None and test.lower.operand in changed:
                lows[t] = low_bounds(test, test.lower, operands)
            if test.upper is not None and test.upper.operand in changed:
                highs[t] = high_bounds(test, test.upper, operands)
        old = self.store.signatures_of(rows)
        columns = {int(s): self.store.signature_columns(int(s))[len(plan.tests) :] for s in np.unique(old)}
        self.store.remove(rows)
        by_signature: dict[int, list[int]] = {}
        for position, before in enumerate(old.tolist()):
            derived = []
            for attribute, text, column in zip(plan.text_columns, plan.texts, columns[before], strict=True):
                constant = self.columns.constant(column)
                if text.operand in changed:
                    value = operands[text.operand]
                    constant = value[position].as_py() if isinstance(value, pa.Array) else str(value)
                derived.append(self.columns.acquire((attribute, text.operator, constant)))
            signature = self.store.signature((*plan.columns, *derived), plan.shapes)
            by_signature.setdefault(signature, []).append(position)
        for before in old.tolist():
            for column in columns[before]:
                self.columns.release(column)
        for signature, positions in by_signature.items():
            self.store.insert_part(rows, signature, lows, highs, np.array(positions, dtype=np.int64))

    def _collect_codes(self) -> None:
        strings = self.columns.strings
        if strings.limit < self._collect_at:
            return
        live = np.zeros(strings.limit, dtype=np.bool_)
        is_string = np.zeros(len(self.columns), dtype=np.bool_)
        is_string[: len(self.event_type.kinds)] = [kind is Kind.STRING for kind in self.event_type.kinds]
        self.store.mark_codes(is_string, live)
        strings.collect(live)
        self._collect_at = max(1024, strings.limit + 1, 2 * int(live.sum()))

    # --- matching ---------------------------------------------------------------------------------

    def match(self, batch: EventBatch, *, ordered: bool = True) -> tuple[IdArray, IdArray]:
        """As `Engine.match`; not `ordered` saves the sorting of each event's ids."""
        keys, doubtful = self.columns.encode(self._check(batch))
        offsets, ids = self.store.match(keys, shared=self._sharing > 0, ordered=ordered)
        if len(doubtful) and self._extremes:
            offsets, ids = self._settle(batch, keys, doubtful, offsets, ids)
        return (offsets, ids) if self.beyond is None else _together((offsets, ids), self.beyond.match(batch))

    def match_interfaces(self, batch: EventBatch) -> npt.NDArray[np.uint64]:
        keys, doubtful = self.columns.encode(self._check(batch))
        bits = np.zeros((len(batch), self._interfaces.highest // 64 + 1), dtype=np.uint64)
        self._match_bits(keys, bits)
        if len(doubtful) and self._extremes:
            offsets, ids = self.match(batch.take(doubtful))
            rows = self._ids.find(self.store.arrays.ids, ids)
            event = np.repeat(doubtful, np.diff(offsets))[rows >= 0]
            interface = self._interfaces_of(rows[rows >= 0]).astype(np.uint64)
            bits[doubtful] = 0
            words = (interface >> np.uint64(6)).astype(np.int64)
            np.bitwise_or.at(bits, (event, words), np.uint64(1) << (interface & np.uint64(63)))
        if self.beyond is not None:
            more = self.beyond.match_interfaces(batch)
            bits[:, : more.shape[1]] |= more
        return bits

    def _match_bits(self, keys: Keys, bits: npt.NDArray[np.uint64]) -> None:
        self.store.match_bits(keys, bits)

    def _check(self, batch: EventBatch) -> EventBatch:
        if batch.event_type != self.event_type:
            raise FilterError(
                f"batch of {batch.event_type.name}: expected one of this {self.event_type.name}"
            )
        return batch

    def _settle(
        self, batch: EventBatch, keys: Keys, doubtful: Numbers, offsets: IdArray, ids: IdArray
    ) -> tuple[IdArray, IdArray]:
        """Drop from events with an outermost int64 those answers that only a shared key gave."""
        events = np.repeat(np.arange(len(batch), dtype=np.int64), np.diff(offsets))
        keep = np.ones(len(ids), dtype=np.bool_)
        for event in doubtful.tolist():
            row = batch.slice(event, 1).to_pylist()[0]
            positions = np.flatnonzero(events == event)
            firsts = self._ids.find(self.store.arrays.ids, ids[positions])
            for position, first in zip(positions.tolist(), firsts.tolist(), strict=True):
                if first in self._extremes:
                    keep[position] = self._holds(first, row, keys[event])
        counts = np.bincount(events[keep], minlength=len(batch))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), ids[keep]

    def _holds(self, first: int, event: Mapping[str, object], keys: Keys) -> bool:
        plan = self.plans[int(self.store.arrays.rows[first, ROW_PLAN])].plan
        for box, box_plan in enumerate(plan.boxes):
            row = np.array([first + box], dtype=np.int64)
            lows, highs = self.store.read(row, box_plan.size)
            columns = self.store.signature_columns(int(self.store.signatures_of(row)[0]))
            by_keys = all(lows[t, 0] <= keys[column] <= highs[t, 0] for t, column in enumerate(columns))
            if by_keys and self._extremes.hold(first, box, box_plan, self.event_type, event):
                return True
        return False

    # --- looking ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._ids) + (0 if self.beyond is None else len(self.beyond))

    def __contains__(self, subscription_id: object) -> bool:
        if not isinstance(subscription_id, int | np.integer) or not -(2**63) <= subscription_id < 2**63:
            return False
        wanted = np.array([subscription_id], dtype=np.int64)
        return bool(self._ids.find(self.store.arrays.ids, wanted)[0] >= 0) or (
            self.beyond is not None and subscription_id in self.beyond
        )

    def memory_bytes(self) -> dict[str, int]:
        return {
            **self.store.structure_bytes(),
            "rows": self.store.row_bytes(),
            "id map": self._ids.nbytes,
            "strings": self.columns.strings.memory_bytes(),
            **({} if self.beyond is None else {"over the cap": sum(self.beyond.memory_bytes().values())}),
        }

    def render(self) -> str:
        lines = [f"{self.name}: {len(self)} subscriptions to {self.event_type.name}"]
        lines += [f"  {line}" for line in self.store.render(self.columns)]
        if self.beyond is not None:
            lines += [
                f"  over the cap of the normal form, in {line}"
                for line in self.beyond.render().splitlines()[:1]
            ]
        return "\n".join(lines)

    def explain(self, event: Mapping[str, object], subscription_id: int) -> str:
        first = int(self._find(np.array([subscription_id], dtype=np.int64))[0])
        if first < 0 and self.beyond is not None:
            return self.beyond.explain(event, subscription_id)
        batch = EventBatch.from_pylist(self.event_type, [event])
        matched = subscription_id in self.match(batch)[1].tolist()
        verdict = f"subscription {subscription_id} {'matches' if matched else 'does not match'}"
        plan = self.plans[int(self.store.arrays.rows[first, ROW_PLAN])].plan
        keys, _ = self.columns.encode(batch)
        return "\n".join([verdict, *explain_rows(self.store, self.columns, plan, first, keys[0])])


def _alike(numbers: npt.NDArray[np.integer]) -> list[Numbers]:
    """The positions of each number, by ascending numbers."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _together(answers: tuple[IdArray, IdArray], others: tuple[IdArray, IdArray]) -> tuple[IdArray, IdArray]:
    """Two answers to one batch in one, ids ascending within each event."""
    events = [np.repeat(np.arange(len(o) - 1, dtype=np.int64), np.diff(o)) for o, _ in (answers, others)]
    event, ids = np.concatenate(events), np.concatenate([answers[1], others[1]])
    order = np.lexsort((ids, event))
    return answers[0] + others[0], ids[order]

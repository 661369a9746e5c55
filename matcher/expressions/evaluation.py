"""The truth of an expression for one event, by the rules in docs/filters.md; with calls, whether their
solutions satisfy it together.

`has_solution` is the oracle for the evaluation of batches, so it is plain Python and shares no code with it:
a row is a choice of solutions, one value per bound free variable, with the constraints that wait for others.
A call joins its solutions to each row, a constraint selects rows, `or` unites them, and the event matches if
a row is left. (Liu et al., section 2.1.)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from covey.matcher.errors import EventError
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.calls import Kinds, argument_kinds, operand_kinds
from covey.matcher.expressions.checking import operator_of
from covey.matcher.expressions.expression import (
    And,
    Argument,
    Call,
    Column,
    Constraint,
    Expression,
    Free,
    Or,
    Predicate,
    Scalar,
    leaves,
)
from covey.matcher.expressions.operators import PASSES, Operator
from covey.matcher.expressions.values import FAMILY, coerce, evaluate
from covey.matcher.operators.named_operator import NamedOperator


def passes(operator: Operator, value: Scalar, operands: list[Scalar]) -> bool:
    """Does a present value satisfy the operator? The value may be NaN, an operand is not."""
    return PASSES[operator](value, operands)


def event_value(kind: Kind, attribute: str, value: object) -> Scalar | None:
    """An event's value of an attribute in its inner form, NaN allowed; None if missing. `EventError` names
    the attribute and the value if it is of another kind."""
    if value is None:
        return None
    if kind is Kind.FLOAT64 and isinstance(value, float):
        return float(value)
    try:
        coerced = coerce(FAMILY[kind], value)
    except ValueError as error:
        raise EventError(f"attribute {attribute}: value {value!r}, {error}") from None
    if kind is Kind.INT64 and not isinstance(coerced, int):
        raise EventError(f"attribute {attribute}: value {value!r}, expected an integer")
    return coerced


def holds(
    expression: Expression,
    kinds: Mapping[str, Kind],
    event: Mapping[str, object],
    values: Mapping[str, Scalar],
) -> bool:
    """Is a checked expression without calls true for this event? `values` are checked and complete."""
    if isinstance(expression, And):
        for part in expression.parts:  # noqa: SIM110 (saves stack)
            if not holds(part, kinds, event, values):
                return False
        return True
    if isinstance(expression, Or):
        for part in expression.parts:  # noqa: SIM110 (saves stack)
            if holds(part, kinds, event, values):
                return True
        return False
    assert isinstance(expression, Predicate), expression
    kind = kinds[expression.attribute]
    value = event_value(kind, expression.attribute, event.get(expression.attribute))
    if value is None:
        return expression.operator is Operator.NOT_EXISTS
    operands = [evaluate(operand, values, kind) for operand in expression.operands]
    return passes(expression.operator, value, operands)


def has_solution(
    expression: Expression,
    kinds: Kinds,
    attributes: Mapping[str, Kind],
    event: Mapping[str, object],
    values: Mapping[str, Scalar],
) -> bool:
    """Is a checked expression true for this event? `kinds` include those of free variables; `values` are
    checked and complete. State of operators starts anew. Raises as an operator does, and `FilterError` for an
    unknown one."""
    search = _Search(kinds, attributes, event, values)
    return any(not row.waiting for row in search.rows(expression, [_Row({}, ())]))


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    bound: Mapping[str, Scalar]
    waiting: tuple[Constraint, ...]

    @property
    def key(self) -> tuple[frozenset[tuple[str, Scalar]], frozenset[Constraint]]:
        return frozenset(self.bound.items()), frozenset(self.waiting)


class _Search:
    def __init__(
        self,
        kinds: Kinds,
        attributes: Mapping[str, Kind],
        event: Mapping[str, object],
        values: Mapping[str, Scalar],
    ) -> None:
        self.kinds = kinds
        self.attributes = attributes
        self.event = event
        self.values = values
        self.answers: dict[tuple[str, tuple[Argument, ...]], Any] = {}

    def rows(self, expression: Expression, rows: list[_Row]) -> list[_Row]:
        if isinstance(expression, Predicate):
            return rows if holds(expression, self.attributes, self.event, self.values) else []
        if isinstance(expression, Constraint):
            return self.selected([_Row(row.bound, (*row.waiting, expression)) for row in rows])
        if isinstance(expression, Call):
            return self.joined(expression, rows)
        if isinstance(expression, And):
            for part in sorted(expression.parts, key=_lateness):
                if rows:
                    rows = self.rows(part, rows)
            return rows
        united: dict[object, _Row] = {}
        for part in expression.parts:
            for row in self.rows(part, rows):
                united.setdefault(row.key, row)
            # A row that a part lets through unchanged has all that other parts could make of it.
            rows = [row for row in rows if row.key not in united]
        return list(united.values())

    def joined(self, call: Call, rows: list[_Row]) -> list[_Row]:
        solutions = self.solutions(call)
        if not call.free:
            return rows if solutions else []
        joined = [
            _Row({**row.bound, **solution}, row.waiting)
            for row in rows
            for solution in solutions
            if all(row.bound.get(name, value) == value for name, value in solution.items())
        ]
        return self.selected(joined)

    def selected(self, rows: Iterable[_Row]) -> list[_Row]:
        """The rows that satisfy their bound constraints, with the constraints that still wait."""
        selected: list[_Row] = []
        for row in rows:
            ready = [c for c in row.waiting if all(name in row.bound for _, name in c.terms)]
            if all(self.satisfies(row.bound, constraint) for constraint in ready):
                waiting = tuple([c for c in row.waiting if c not in ready])
                selected.append(_Row(row.bound, waiting))
        return selected

    def satisfies(self, bound: Mapping[str, Scalar], constraint: Constraint) -> bool:
        (kind,) = operand_kinds(constraint, self.kinds)
        operand = evaluate(constraint.operand, self.values, kind)
        if len(constraint.terms) == 1 and constraint.terms[0][0] == 1:
            return passes(constraint.operator, bound[constraint.terms[0][1]], [operand])
        total = 0.0
        for scale, name in constraint.terms:
            total += float(scale) * float(bound[name])  # type: ignore[arg-type]  # sums are of numbers
        return passes(constraint.operator, total, [operand])

    def solutions(self, call: Call) -> list[dict[str, Scalar]]:
        """The bindings of a call for this event; without free variables one empty binding if it is true, else
        none."""
        if any(self.event.get(attribute) is None for attribute in call.attributes):
            return []
        operator = operator_of(call.operator)
        assert operator is not None
        known = call.operator, call.arguments
        if known not in self.answers:
            self.answers[known] = self.answer(call, operator)
        answer = self.answers[known]
        if not call.free:
            return [{}] if bool(answer) is call.expected else []
        names = {
            operator.parameter(place).name: argument.name
            for place, argument in enumerate(call.arguments)
            if isinstance(argument, Free)
        }
        solutions: list[dict[str, Scalar]] = []
        for each in answer or ():
            fields = each if len(names) > 1 else {next(iter(names)): each}
            solution: dict[str, Scalar] = {}
            if all(
                solution.setdefault(name, fields[field]) == fields[field] for field, name in names.items()
            ):
                solutions.append(solution)
        return solutions

    def answer(self, call: Call, operator: NamedOperator) -> Any:
        arguments: list[Any] = [] if operator.state is None else [operator.state()]
        for argument, kind in zip(call.arguments, argument_kinds(call), strict=True):
            if isinstance(argument, Column):
                its_kind = self.attributes[argument.attribute]
                value = event_value(its_kind, argument.attribute, self.event[argument.attribute])
                arguments.append(pa.array([value], its_kind.arrow))
            elif not isinstance(argument, Free):
                arguments.append(evaluate(argument, self.values, kind))
        answer = operator.evaluate(*arguments)
        (item,) = answer.tolist() if isinstance(answer, np.ndarray) else answer.to_pylist()
        return item


def _lateness(part: Expression) -> int:
    """The order of evaluation in a conjunction: predicates first, last what needs bound variables."""
    latest = max([(Predicate, Call, Constraint).index(type(leaf)) for leaf in leaves(part)], default=0)
    return 2 * latest + isinstance(part, (And, Or))

"""One filter and many subscriptions: which match an event, evaluated columnwise with numpy. Shares no code
with the matcher's engines. Numbers are compared as float64, exact below 2**53, as are all that the simulator
draws. Filters over timestamps, with operators on parts of strings, with calls, or with Motion are evaluated
one subscription at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher import Filter, Kind
from covey.matcher.expressions.expression import And, Constant, Expression, Operand, Or, Predicate
from covey.matcher.expressions.operators import Operator

Bools = npt.NDArray[np.bool_]
Condition = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Does an event match, given the values of a filter's variables?"""

_COMPARISONS: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.gt,
    Operator.LE: operator.ge,
    Operator.GT: operator.lt,
    Operator.GE: operator.le,
}
"""Arguments: the operand, then the event's value."""
_COLUMNWISE = {
    *_COMPARISONS,
    Operator.IN,
    Operator.NOT_IN,
    Operator.BETWEEN,
    Operator.NOT_BETWEEN,
    Operator.EXISTS,
    Operator.NOT_EXISTS,
}


class Columns:
    """The members of one filter, by row. A `condition` replaces the filter's own evaluation."""

    def __init__(self, filter: Filter, condition: Condition | None = None) -> None:
        self.filter = filter
        self.matches = condition or filter.matches
        self.members: list[Any] = []
        self.ready: Bools = np.zeros(16, np.bool_)
        """Whether the member of a row takes part in `matching`."""
        self._values: dict[str, npt.NDArray[Any]] = {}
        self._free: list[int] = []
        self._columnwise = (
            condition is None
            and not filter.calls
            and all(_columnwise(predicate, filter) for predicate in predicates(filter.expression))
        )

    def add(self, member: Any, values: Mapping[str, Any]) -> int:
        """The new row of a member, which takes part once `ready[row]` is set."""
        if self._free:
            row = self._free.pop()
            self.members[row] = member
        else:
            row = len(self.members)
            self.members.append(member)
            if row == len(self.ready):
                self.ready = np.concatenate([self.ready, np.zeros(row, np.bool_)])
        self.ready[row] = False
        self.set(row, values)
        return row

    def set(self, row: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if not isinstance(value, str | int | float):
                self._columnwise = False
                continue
            column = self._values.get(name)
            if column is None or len(column) < len(self.ready):
                kind = object if isinstance(value, str) else np.float64
                larger = np.full(len(self.ready), "" if kind is object else 0.0, kind)
                if column is not None:
                    larger[: len(column)] = column
                column = self._values[name] = larger
            column[row] = value

    def discard(self, row: int) -> None:
        self.members[row] = None
        self.ready[row] = False
        self._free.append(row)

    def matching(self, event: Mapping[str, Any], values_of: Any) -> list[Any]:
        """The members that are ready and match; `values_of(member)` returns a member's newest values."""
        count = len(self.members)
        ready = self.ready[:count]
        if not self._columnwise:
            return [
                self.members[row]
                for row in np.flatnonzero(ready).tolist()
                if self.matches(event, values_of(self.members[row]))
            ]
        matches = self._holds(self.filter.expression, event, count)
        if matches is False:
            return []
        return [self.members[row] for row in np.flatnonzero(ready & matches).tolist()]

    def _holds(self, expression: Expression, event: Mapping[str, Any], count: int) -> Bools | bool:
        """A part without variables is compared once: constants that exclude the event cost no array."""
        if isinstance(expression, And | Or):
            decisive = isinstance(expression, Or)
            combine = operator.or_ if decisive else operator.and_
            result: Bools | bool = not decisive
            for part in expression.parts:
                held = self._holds(part, event, count)
                if held is decisive:
                    return decisive
                result = combine(result, held)
            return result
        assert isinstance(expression, Predicate)
        held = self._test(expression, event, count)
        return held if isinstance(held, np.ndarray) else bool(held)

    def _test(self, predicate: Predicate, event: Mapping[str, Any], count: int) -> Any:
        value = event.get(predicate.attribute)
        sign = predicate.operator
        if sign is Operator.EXISTS:
            return value is not None
        if sign is Operator.NOT_EXISTS:
            return value is None
        if value is None:
            return False
        operands = [self._operand(operand, count) for operand in predicate.operands]
        if sign in (Operator.IN, Operator.NOT_IN):
            contained: Any = False
            for operand in operands:
                contained = contained | (operand == value)
            return np.logical_not(contained) if sign is Operator.NOT_IN else contained
        first = operands[0]
        if sign is Operator.BETWEEN:
            return (first <= value) & (operands[1] >= value)
        if sign is Operator.NOT_BETWEEN:
            return (first > value) | (operands[1] < value)
        return _COMPARISONS[sign](first, value)

    def _operand(self, operand: Operand, count: int) -> Any:
        if isinstance(operand, Constant):
            value: Any = operand.value
            return value if isinstance(value, str) else float(value)
        column = self._values[operand.name][:count]
        if operand.scale == 1 and operand.offset == 0:
            return column
        return operand.scale * column + operand.offset


def predicates(expression: Expression) -> list[Predicate]:
    if isinstance(expression, Predicate):
        return [expression]
    parts = expression.parts if isinstance(expression, And | Or) else ()
    return [predicate for part in parts for predicate in predicates(part)]


def _columnwise(predicate: Predicate, filter: Filter) -> bool:
    kind = filter.event_type.attributes[predicate.attribute]
    return predicate.operator in _COLUMNWISE and kind is not Kind.TIMESTAMP

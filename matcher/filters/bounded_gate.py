"""Gates of filters with calls, narrowed by the bounds that operators state (`NamedOperator.bounds`).

`firm == $f and within(lat, lon, $lat, $lon, 500)` becomes `firm == $f and lat between $a and $b and ...`,
with variables of its own that are computed from the values. An engine so finds the few events in the box, and
operators are asked about these. Invariant: for any values the bounded gate is true wherever the filter is.

How many intervals stand for an attribute is decided by the first values; of later ones with more, those at
the end become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from covey.matcher.covering.call_plans import CallPlan
from covey.matcher.expressions.expression import (
    And,
    Call,
    Constraint,
    Expression,
    Or,
    Predicate,
    Scalar,
    Variable,
    all_of,
    any_of,
)
from covey.matcher.expressions.operators import Operator

if TYPE_CHECKING:
    from covey.matcher.filters.filter import Filter

_Intervals = list[tuple[float, float]]
_EVERYTHING, _NOTHING = (-inf, inf), (inf, -inf)


class BoundedGate:
    """The bounded gate of one filter; `filter` is the plain gate where no operator has bounds."""

    def __init__(self, filter: Filter, values: Mapping[str, Scalar]) -> None:
        self._plans: list[tuple[CallPlan, dict[str, list[tuple[str, str]]]]] = []
        """Per call the variables of the intervals of each attribute."""
        boxes: dict[Call, Expression] = {}
        for number, call in enumerate(filter.calls):
            plan = CallPlan(filter.event_type, call)
            names: dict[str, list[tuple[str, str]]] = {}
            for attribute, intervals in plan.intervals(plan.atom(values)).items():
                prefixes = [f"~{number}.{attribute}.{i}" for i in range(max(1, len(intervals)))]
                names[attribute] = [(f"{prefix}<", f"{prefix}>") for prefix in prefixes]
            if names:
                self._plans.append((plan, names))
                boxes[call] = all_of([_between(attribute, pairs) for attribute, pairs in names.items()])
        self.filter = filter.gate
        if boxes:
            bounded = filter.of_checked(filter.event_type, _gate(filter.expression, boxes))
            if bounded.boxes() is not None or filter.gate.boxes() is None:
                self.filter = bounded
        if self.filter is filter.gate:
            self._plans.clear()

    def values(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """The values of its variables, for checked values of the filter."""
        result = dict(values)
        for plan, names in self._plans:
            intervals = plan.intervals(plan.atom(values))
            for attribute, pairs in names.items():
                fitted = _fitted(intervals.get(attribute, [_EVERYTHING]), len(pairs))
                for (low, high), ends in zip(pairs, fitted, strict=True):
                    result[low], result[high] = ends
        return {name: result[name] for name in self.filter.variables}


def _between(attribute: str, pairs: list[tuple[str, str]]) -> Expression:
    return any_of([Predicate(attribute, Operator.BETWEEN, (Variable(a), Variable(b))) for a, b in pairs])


def _fitted(intervals: _Intervals, count: int) -> _Intervals:
    """As many intervals that hold these."""
    if len(intervals) <= count:
        return intervals + [_NOTHING] * (count - len(intervals))
    last = intervals[count - 1 :]
    return [*intervals[: count - 1], (min(low for low, _ in last), max(high for _, high in last))]


def _gate(expression: Expression, boxes: Mapping[Call, Expression]) -> Expression:
    """As `rewriting.gate_of`, with boxes for calls that have some."""
    if isinstance(expression, And | Or):
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(_gate(part, boxes))  # noqa: PERF401 (saves stack)
        return all_of(parts) if isinstance(expression, And) else any_of(parts)
    if isinstance(expression, Predicate):
        return expression
    if isinstance(expression, Constraint):
        return And()
    return boxes.get(expression, And())

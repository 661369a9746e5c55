"""Gates of filters with calls, narrowed by the bounds of operators (`NamedOperator.bounds`).

`firm == $f and within(lat, lon, $lat, $lon, 500)` becomes `firm == $f and lat between $a and $b and ...`,
with variables of its own that are computed from the values. So an engine finds the few events in the box, and
operators are called for these. Invariant: for any values the bounded gate is true wherever the filter is. The
first values fix the number of intervals per attribute; of later ones with more, the last become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from covey.matcher.covering.call_atoms import CallPlan
from covey.matcher.events.event_type import EventType
from covey.matcher.expressions.expression import (
    Call,
    Expression,
    Predicate,
    Scalar,
    Variable,
    all_of,
    any_of,
)
from covey.matcher.expressions.operators import Operator

_Intervals = list[tuple[float, float]]
_EVERYTHING, _NOTHING = (-inf, inf), (inf, -inf)


class CallBounds:
    """The bounds of calls as predicates with variables; false if no operator has bounds."""

    def __init__(self, event_type: EventType, calls: Iterable[Call], values: Mapping[str, Scalar]) -> None:
        self._plans: list[tuple[CallPlan, dict[str, list[tuple[str, str]]]]] = []
        """Per call: variables of intervals, by attribute."""
        self.boxes: dict[Call, Expression] = {}  # bounds, of calls with any
        for number, call in enumerate(calls):
            plan = CallPlan(event_type, call)
            names: dict[str, list[tuple[str, str]]] = {}
            for attribute, intervals in plan.intervals(plan.atom(values)).items():
                prefixes = [f"~{number}.{attribute}.{i}" for i in range(max(1, len(intervals)))]
                names[attribute] = [(f"{prefix}<", f"{prefix}>") for prefix in prefixes]
            if names:
                self._plans.append((plan, names))
                self.boxes[call] = all_of([_between(attribute, pairs) for attribute, pairs in names.items()])

    def __bool__(self) -> bool:
        return bool(self._plans)

    def values(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Checked values of a filter, and the values of its bounds' variables."""
        result = dict(values)
        for plan, names in self._plans:
            intervals = plan.intervals(plan.atom(values))
            for attribute, pairs in names.items():
                fitted = _fitted(intervals.get(attribute, [_EVERYTHING]), len(pairs))
                for (low, high), ends in zip(pairs, fitted, strict=True):
                    result[low], result[high] = ends
        return result


def _between(attribute: str, pairs: list[tuple[str, str]]) -> Expression:
    return any_of([Predicate(attribute, Operator.BETWEEN, (Variable(a), Variable(b))) for a, b in pairs])


def _fitted(intervals: _Intervals, count: int) -> _Intervals:
    if len(intervals) <= count:
        return intervals + [_NOTHING] * (count - len(intervals))
    last = intervals[count - 1 :]
    return [*intervals[: count - 1], (min(low for low, _ in last), max(high for _, high in last))]

"""Variables that move by themselves, and the wider bounds that a broker announces for bounds that change.

*Motion.* `$limit = Motion(100.0, 0.5)` is 100 now and 0.5 more every second. Filters are evaluated at the
event's ingress time, so the result is the same everywhere.

*Announcements* (future work in Jayaram et al., section 6) are what a broker forwards for a client's
subscription. Damping announces a bound some typical steps wider; a motion is announced as wide as it becomes
within `HORIZON_NS`, and renewed before. Invariant: announced bounds cover the subscription at every time from
`LATE_NS` ago (the longest that events may be in flight) to `until_ns`. Delivery stays exact: the client's
broker matches without the slack, and the client evaluates motion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard, cast

from covey.matcher.errors import VariableError
from covey.matcher.evaluation.bound_calls import is_stateful
from covey.matcher.expressions.expression import And, Call, Expression, Leaf, Or, Predicate, Variable
from covey.matcher.expressions.operators import SPECS

if TYPE_CHECKING:
    from covey.matcher.covering.covering import Region
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter


@dataclass(frozen=True, slots=True)
class Motion:
    """`value + rate * t`, t in seconds since `since_ns`; 0 stands for the time of the call that takes it."""

    value: float
    rate: float
    since_ns: int = 0

    def at(self, now_ns: int) -> float:
        return self.value + self.rate * ((now_ns - self.since_ns) / 1e9)

    def __str__(self) -> str:
        return f"{self.value:g}{'-' if self.rate < 0 else '+'}{abs(self.rate):g}*t"


def leaves(expression: Expression) -> list[Leaf]:
    if isinstance(expression, And | Or):
        return [leaf for part in expression.parts for leaf in leaves(part)]
    return [expression]


def predicates(expression: Expression) -> list[Predicate]:
    return [leaf for leaf in leaves(expression) if isinstance(leaf, Predicate)]


def directions(filter: Filter) -> dict[str, int]:
    """The direction that widens the filter by variable: 1 up, -1 down, 0 for neither, both, or a call's
    argument."""
    signs: dict[str, int] = {}
    for leaf in leaves(filter.expression):
        widening = {} if isinstance(leaf, Call) else SPECS[leaf.operator].widening
        for number, operand in enumerate(_operands(leaf)):
            if isinstance(operand, Variable):
                sign = widening.get(number, 0) * (1 if operand.scale > 0 else -1)
                signs[operand.name] = sign if signs.get(operand.name, sign) == sign else 0
    return signs


def _operands(leaf: Leaf) -> tuple[object, ...]:
    if isinstance(leaf, Predicate):
        return leaf.operands
    return leaf.arguments if isinstance(leaf, Call) else (leaf.operand,)


def moves(values: Mapping[str, object]) -> bool:
    return Motion in map(type, values.values())


def still(values: Mapping[str, Scalar], now_ns: int) -> Mapping[str, Scalar]:
    if not moves(values):
        return values
    return {name: value.at(now_ns) if isinstance(value, Motion) else value for name, value in values.items()}


def check_values(
    filter: Filter, values: Mapping[str, object], *, partial: bool = False, now_ns: int = 0
) -> dict[str, Scalar]:
    """As `Filter.check_values`, with motions, which start at `now_ns` by default. `VariableError` names a
    moving variable that is not a bound or finite, or whose filter calls a stateful operator, whose state
    belongs to values."""
    if not moves(values):
        return filter.check_values(values, partial=partial)
    for call in filter.calls:
        if is_stateful(call):
            raise VariableError(
                f"filter {filter} has a variable that moves, and calls {call.operator}, which has state: "
                "expected values"
            )
    plain = {name: value.value if isinstance(value, Motion) else value for name, value in values.items()}
    checked = filter.check_values(plain, partial=partial)
    for name, value in values.items():
        if not isinstance(value, Motion):
            continue
        for what in ("value", "rate"):
            number = getattr(value, what)
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise VariableError(
                    f"variable ${name} moves with {what} {number!r}: expected a finite number"
                )
        for leaf in leaves(filter.expression):
            if isinstance(leaf, Predicate) and SPECS[leaf.operator].widening:
                continue
            if any(isinstance(operand, Variable) and operand.name == name for operand in _operands(leaf)):
                raise VariableError(
                    f"variable ${name} moves, and stands in {_shown(leaf)}: "
                    "expected a bound of an attribute, in <, <=, >, >= or between"
                )
        checked[name] = cast("Scalar", value if value.since_ns else replace(value, since_ns=now_ns))
    return checked


def _shown(leaf: Leaf) -> str:
    if isinstance(leaf, Predicate):
        return f"{leaf.attribute} {leaf.operator.value}"
    return f"a call of {leaf.operator}" if isinstance(leaf, Call) else "a value constraint"


SECOND_NS = 1_000_000_000
HORIZON_NS = 60 * SECOND_NS
"""How long an announcement of a motion is valid."""
MARGIN_NS = 10 * SECOND_NS
"""How long before its end it is renewed."""
LATE_NS = 5 * SECOND_NS
"""How long events may be in flight and still meet the announcement of their ingress time."""
_LEARN = 1 / 8
"""The weight of a new step in the typical step (an exponential average)."""
_INT64 = 1 << 63


def hull(filter: Filter, values: Mapping[str, Scalar], from_ns: int, until_ns: int) -> dict[str, Scalar]:
    """Values of the structure's variables that accept whatever the filter accepts in this time span."""
    first = filter.lift_values(still(values, from_ns))
    if not moves(values):
        return first
    last = filter.lift_values(still(values, until_ns))
    wider = directions(filter.lift()[0])
    for name, value in last.items():
        if wider[name] > 0:
            first[name] = max(first[name], value)
        elif wider[name] < 0:
            first[name] = min(first[name], value)
    return first


class Announcement:
    """The announced values, valid until `until_ns`, 0 for ever. `damping` is the slack in typical steps."""

    __slots__ = ("_damping", "_directions", "_filter", "_last", "_steps", "structure", "until_ns", "values")

    def __init__(self, filter: Filter, values: Mapping[str, Scalar], damping: float, now_ns: int) -> None:
        self.structure = filter.lift()[0]
        self.until_ns = 0
        self._filter = filter
        self._damping = damping
        self._directions = directions(self.structure)
        self._steps = dict.fromkeys(self._directions, 0.0)
        self._last = self.values = self._needed(values, now_ns)

    def region(self) -> Region:
        return self.structure.region(self.values)

    def _needed(self, values: Mapping[str, Scalar], now_ns: int) -> dict[str, Scalar]:
        self.until_ns = now_ns + HORIZON_NS if moves(values) else 0
        return hull(self._filter, values, now_ns - LATE_NS, now_ns + HORIZON_NS)

    def due(self, now_ns: int) -> bool:
        return 0 < self.until_ns < now_ns + MARGIN_NS

    def move(self, values: Mapping[str, Scalar], now_ns: int) -> bool:
        """Take new values of the subscription; True if the announced ones change. O(operands)."""
        needed = self._needed(values, now_ns)
        for name, value in needed.items():
            step = _distance(value, self._last[name])
            if step:
                known = self._steps[name]
                self._steps[name] = step if not known else known + (step - known) * _LEARN
        self._last = needed
        if all(self._holds(name, value) for name, value in needed.items()):
            return False
        announced = {name: self._with_slack(name, value) for name, value in needed.items()}
        changed = announced != self.values
        self.values = announced
        return changed

    def _holds(self, name: str, value: Scalar) -> bool:
        """Whether the announced bound includes this one and is not much wider."""
        announced = self.values[name]
        if announced == value:
            return True
        if not self._directions[name] or not _is_number(value) or not _is_number(announced):
            return False
        excess = (announced - value) * self._directions[name]
        return bool(0 <= excess <= 2 * self._damping * self._steps[name])

    def _with_slack(self, name: str, value: Scalar) -> Scalar:
        slack = self._damping * self._steps[name]
        direction = self._directions[name]
        if not direction or not slack or not _is_number(value):
            return value
        if isinstance(value, int):
            return max(-_INT64, min(_INT64 - 1, value + direction * math.ceil(slack)))
        assert isinstance(value, float)
        return value + direction * slack


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _distance(a: Scalar, b: Scalar) -> float:
    """0 if either is no number, or the distance is not finite."""
    if not _is_number(a) or not _is_number(b):
        return 0.0
    distance = abs(a - b)
    return float(distance) if math.isfinite(distance) else 0.0

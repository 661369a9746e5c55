"""Announcements: the wider bounds that a broker forwards for a client's subscription whose bounds change.

Both extensions are future work in Jayaram et al. (section 6). *Damping*: a bound is announced wider by some
typical steps, so that changes within cost no message; the slack follows the observed steps. *Motion*: a
moving bound is announced as wide as it becomes within `HORIZON_NS`, and renewed before that ends.

Invariant: the announced bounds cover the subscription at every time from `LATE_NS` ago (the longest that
events may be in flight) to `until_ns`. Delivery stays exact: the client's broker matches without the slack,
and the client evaluates motion at the ingress time of each event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from covey.overlay.core.moving.motion import directions, moves, still

if TYPE_CHECKING:
    from covey.matcher.covering.covering import Region
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter

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
    """Values for the structure's variables that accept whatever the filter accepts in this time span."""
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
    """The announced values of one subscription. `damping` is the slack in typical steps, 0 for none."""

    __slots__ = ("_damping", "_directions", "_filter", "_last", "_steps", "structure", "until_ns", "values")

    def __init__(self, filter: Filter, values: Mapping[str, Scalar], damping: float, now_ns: int) -> None:
        self.structure = filter.lift()[0]
        self.until_ns = 0
        """The end of its validity; 0 if it has none."""
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
        """Whether it has to be renewed."""
        return 0 < self.until_ns < now_ns + MARGIN_NS

    def move(self, values: Mapping[str, Scalar], now_ns: int) -> bool:
        """Take new values of the subscription; whether the announced values change. O(operands)."""
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
    """The distance of two numbers; 0 if one is no number, or the distance is not finite."""
    if not _is_number(a) or not _is_number(b):
        return 0.0
    distance = abs(a - b)
    return float(distance) if math.isfinite(distance) else 0.0

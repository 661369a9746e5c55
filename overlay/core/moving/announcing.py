"""What a broker announces of a client's subscription: where its bounds move, a little more than it asks for.

Two reasons to announce more, both beyond Jayaram et al. (their section 6, future work). *Damping*: a bound is
announced wider by some of its typical steps, and movement within is absorbed here; the slack follows the
observed movement. *Motion*: a bound that moves by itself is announced as wide as it will be for a while
(`HORIZON_NS`), and announced again before that is over.

Invariant: what is announced covers what the subscription asks for, at every time from `LATE_NS` ago (events
may be under way for so long) to `until_ns`. Filtering stays exact at the edge: the broker of the client
matches without the slack, and the client itself at the very time at which an event entered.
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
"""How long an announcement of something that moves holds."""
MARGIN_NS = 10 * SECOND_NS
"""How long before its end it is made again."""
LATE_NS = 5 * SECOND_NS
"""For how long events may be under way and still meet what held when they entered."""
_LEARN = 1 / 8
"""How much of a new step goes into the typical one."""
_INT64 = 1 << 63


def hull(filter: Filter, values: Mapping[str, Scalar], from_ns: int, until_ns: int) -> dict[str, Scalar]:
    """The values of the structure's variables that accept what the filter accepts at any of these times."""
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
    """What is announced of one subscription. `damping` is the slack in typical steps, 0 for none."""

    __slots__ = ("_damping", "_directions", "_filter", "_last", "_steps", "structure", "until_ns", "values")

    def __init__(self, filter: Filter, values: Mapping[str, Scalar], damping: float, now_ns: int) -> None:
        self.structure = filter.lift()[0]
        self.until_ns = 0
        """Until when it holds; 0 for as long as the values stay."""
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
        """Whether it has to be made again, as its time is almost over."""
        return 0 < self.until_ns < now_ns + MARGIN_NS

    def move(self, values: Mapping[str, Scalar], now_ns: int) -> bool:
        """The subscription has these values now; whether anything else is to be announced. O(operands)."""
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
        """Whether what was announced includes this bound and is not much wider."""
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
    """How far apart two numbers are; 0 for what is no number, or not finite."""
    if not _is_number(a) or not _is_number(b):
        return 0.0
    distance = abs(a - b)
    return float(distance) if math.isfinite(distance) else 0.0

"""The subscriptions of a broker's clients whose variables move by themselves, and when to look at them again.

Their engine holds a bound that is good for a short while (`SHORT_NS`), renewed every `PERIOD_NS`, so that no
batch of events waits for values to be computed; what it lets through too much the client drops. What
neighbours were asked for is renewed when its time is almost over (`announcing.py`). Invariant: at every time
both cover what the subscription asks for. Cost: per moving subscription and period one hull.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.overlay.core.moving.announcing import LATE_NS, SECOND_NS, hull
from covey.overlay.core.moving.motion import moves

if TYPE_CHECKING:
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.matching.interest_matching import Matched

PERIOD_NS = SECOND_NS
SHORT_NS = 3 * SECOND_NS


@dataclass(frozen=True, slots=True)
class _Held:
    """A moving interest as its engine holds it."""

    uid: int
    filter: Filter
    values: Mapping[str, Scalar]


class Movers:
    """The moving interests, in the order in which they began to move."""

    def __init__(self) -> None:
        self.next_ns = 0
        """When to look again; 0 while nothing moves."""
        self._interests: dict[int, Interest] = {}

    def held(self, interest: Interest, now_ns: int) -> Matched:
        """What the engine is to hold for an interest, which is taken note of if it moves."""
        if interest.announcement is None:  # what moves is announced
            return interest
        if not moves(interest.values):
            self.discard(interest)
            return interest
        self._interests[interest.uid] = interest
        if not self.next_ns:
            self.next_ns = now_ns + PERIOD_NS
        values = hull(interest.filter, interest.values, now_ns - LATE_NS, now_ns + SHORT_NS)
        return _Held(interest.uid, interest.structure, values)

    def discard(self, interest: Interest) -> None:
        self._interests.pop(interest.uid, None)
        if not self._interests:
            self.next_ns = 0

    def due(self, now_ns: int) -> Iterator[Interest]:
        """The interests to look at again, if it is time."""
        if self.next_ns and now_ns >= self.next_ns:
            self.next_ns = now_ns + PERIOD_NS
            yield from list(self._interests.values())

    def __len__(self) -> int:
        return len(self._interests)

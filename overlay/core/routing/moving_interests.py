"""The clients' interests whose values are motions, and when to renew their bounds.

The engine has a bound that holds for `SHORT_NS` and is renewed every `PERIOD_NS`, so that no batch of events
waits for values to be computed; the client drops the excess. Announcements to neighbours are renewed shortly
before they end (`announcing.py`). Invariant: both always cover the subscription. Cost: one hull per moving
interest and period.
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
class _ShortHull:
    """A moving interest as its engine has it."""

    uid: int
    filter: Filter
    values: Mapping[str, Scalar]


class MovingInterests:
    """The moving interests, in the order in which they began to move."""

    def __init__(self) -> None:
        self.next_ns = 0
        """When the next renewal is due; 0 while nothing moves."""
        self._interests: dict[int, Interest] = {}

    def matched(self, interest: Interest, now_ns: int) -> Matched:
        """What the engine gets for an announced interest, which is added if it moves, and removed if not."""
        if not moves(interest.values):
            self.discard(interest)
            return interest
        self._interests[interest.uid] = interest
        if not self.next_ns:
            self.next_ns = now_ns + PERIOD_NS
        values = hull(interest.routed, interest.values, now_ns - LATE_NS, now_ns + SHORT_NS)
        return _ShortHull(interest.uid, interest.structure, values)

    def discard(self, interest: Interest) -> None:
        self._interests.pop(interest.uid, None)
        if not self._interests:
            self.next_ns = 0

    def due(self, now_ns: int) -> Iterator[Interest]:
        """The interests to renew now."""
        if self.next_ns and now_ns >= self.next_ns:
            self.next_ns = now_ns + PERIOD_NS
            yield from list(self._interests.values())

    def __len__(self) -> int:
        return len(self._interests)

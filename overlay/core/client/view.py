"""What a client holds of one event type: its subscriptions, the engine that evaluates them again, and which
events it has seen.

Each publisher's events of one type arrive in order, so of those seen the highest sequence number is enough,
for the `WATERMARKS` publishers heard of last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.matching import Matching
from covey.overlay.core.moving.motion import moves, still

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter

WATERMARKS = 65_536
"""How many publishers of one type a client remembers the newest event of."""

Int64s = npt.NDArray[np.int64]


class Held:
    """A subscription as its user knows it. `wire_id` is the one the broker knows; `born` the epoch of its
    Subscribe.
    """

    __slots__ = ("born", "filter", "uid", "values", "wire_id")

    def __init__(self, uid: int, filter: Filter, values: dict[str, Scalar]) -> None:
        self.uid = uid
        self.filter = filter
        self.values = values
        self.wire_id = uid
        self.born = 0


@dataclass(frozen=True, slots=True)
class _Still:
    """A subscription at one time, for an engine."""

    uid: int
    filter: Filter
    values: Mapping[str, Scalar]


def _at(subscription: Held, now_ns: int) -> _Still:
    return _Still(subscription.uid, subscription.filter, still(subscription.values, now_ns))


class TypeView:
    """One event type as this client sees it."""

    def __init__(self, event_type: EventType, engine: str) -> None:
        self.event_type = event_type
        self.matching = Matching(engine, event_type)
        self.movers: dict[int, Held] = {}
        self.newest = 0
        """The epoch of the last change to a subscription in this type."""
        self.watermarks: OrderedDict[str, int] = OrderedDict()

    def put(self, subscription: Held) -> None:
        """A subscription is there, or has taken other values."""
        if moves(subscription.values):
            self.movers[subscription.uid] = subscription
        else:
            self.movers.pop(subscription.uid, None)
        self.matching.put(_at(subscription, 0), 0)

    def discard(self, subscription: Held) -> None:
        self.movers.pop(subscription.uid, None)
        self.matching.discard(subscription)

    def match(self, batch: EventBatch) -> tuple[Int64s, Int64s]:
        """Which subscriptions want which events now; what moves by itself, at the time of their entry."""
        for subscription in self.movers.values():
            self.matching.put(_at(subscription, batch.ingress_ns), 0)
        return self.matching.match(EventPoints(batch))

    def fresh(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        """Which events were not seen before, None where all of them; remembers them as seen."""
        if not batch.publisher or not len(batch):
            return None  # without a publisher an event has no identity
        sequences = batch.sequences()
        mark = self.watermarks.get(batch.publisher, -1)
        self.watermarks[batch.publisher] = max(mark, int(sequences.max()))
        self.watermarks.move_to_end(batch.publisher)
        if len(self.watermarks) > WATERMARKS:
            self.watermarks.popitem(last=False)
        fresh = sequences > mark
        return None if fresh.all() else fresh

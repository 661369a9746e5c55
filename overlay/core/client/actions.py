"""What a received message means to a client: the results of `ClientSession.receive` and `matches`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.messages import Answered, Expired, ListenersReport, Message, Notice, Refuse
from covey.overlay.core.messages import message as immutable

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch

Int64s = npt.NDArray[np.int64]


@immutable
class DeliverTo:
    """Events for one subscription, none delivered before; `spurious` ones were filtered out, possibly all.
    `replayed` ones are not in the publisher's order. `for_views` is as in `messages.Deliver`."""

    subscription_id: int
    batch: EventBatch
    spurious: int
    replayed: bool = False
    for_views: bool = False


@immutable
class Matches:
    """The event `batch[rows[i]]` is for the subscription `ids[i]`, as of this client's control epoch `epoch`.
    No event was delivered before; `spurious` counts filtered ones by subscription. `replayed` ones are not in
    the publisher's order. With `expired` subscriptions the batch is empty, and no event for them follows."""

    batch: EventBatch
    rows: Int64s
    ids: Int64s
    spurious: Mapping[int, int]
    replayed: bool = False
    epoch: int = 0
    for_views: bool = False
    expired: tuple[int, ...] = ()

    def divided(self) -> list[DeliverTo]:
        """The events of each subscription, in order of ids. Cost: a sort of the pairs, and a copy of each
        subscription's events, unless all events are for one subscription."""
        batch, rows, ids = self.batch, self.rows, self.ids
        if not self.spurious and 0 < len(ids) == len(batch) and (ids == ids[0]).all():
            return [DeliverTo(int(ids[0]), batch, 0, self.replayed, self.for_views)]
        batches: dict[int, EventBatch] = {}
        if len(rows):
            order = np.argsort(ids, kind="stable")
            rows, ids = rows[order], ids[order]
            edges = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(rows)]
            for start, stop in pairwise(edges):
                batches[int(ids[start])] = self._share(rows[start:stop])
        none = batch.slice(0, 0)
        return [
            DeliverTo(i, batches.get(i, none), self.spurious.get(i, 0), self.replayed, self.for_views)
            for i in sorted(batches.keys() | self.spurious.keys())
        ]

    def _share(self, rows: Int64s) -> EventBatch:
        """These events with their results, so that a subscription evaluates only its own remaining calls."""
        results = self.batch.results
        if results is None:
            return self.batch.take(rows)
        return self.batch.with_results(None).take(rows).with_results(results.part(rows))


@dataclass(frozen=True, slots=True)
class Settled:
    """Every control message up to this epoch has taken effect wherever it had to, or was refused."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Transmit:
    message: Message


ClientAction = DeliverTo | Settled | Refuse | ListenersReport | Notice | Expired | Answered | Transmit

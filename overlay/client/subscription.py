"""A subscription as its user holds it: a stream of events that can be moved.

Invariant (STRICTNESS, Jayaram et al., Fig. 5): what is handed out matches the filter under the newest
values, also where it was waiting here when they changed. What waits here counts against the credit that the
client has granted its broker: a user who does not read holds back the broker, not this process's memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.matcher import EventBatch, EventType, Filter
from covey.matcher.engine import Engine, create_engine
from covey.matcher.expressions.expression import Scalar
from covey.overlay.client.arrivals import Arrivals
from covey.overlay.client.event import Event, events_of
from covey.overlay.core.client.session import DeliverTo, Matches
from covey.overlay.core.moving.motion import moves, still

if TYPE_CHECKING:
    from covey.overlay.client.client import Client


class Claim:
    """Bytes of credit that are given back once all who got a part of a message are done with it; messages
    are numbered as they come."""

    __slots__ = ("_left", "_release", "number")

    def __init__(self, number: int, parts: int, release: Callable[[], None]) -> None:
        self.number = number
        self._left = parts
        self._release = release

    def done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._release()


@dataclass(frozen=True, slots=True)
class Part:
    """What a subscription got of a message, right for the values that it had at `version`."""

    batch: EventBatch
    version: int
    claim: Claim
    replayed: bool


class Subscription:
    """An async iterator of events; `batches()` iterates over whole batches instead. Made by
    `Client.subscribe`.

    `delivered` counts events handed out, `spurious` those that came and did not match the newest values.
    """

    def __init__(self, client: Client, subscription_id: int, filter: Filter) -> None:
        self._client = client
        self.id = subscription_id
        self.filter = filter
        self.delivered = 0
        self.spurious = 0
        self._version = 0
        self._values: Mapping[str, Scalar] = {}
        self._waiting: Arrivals[Part] = Arrivals()
        self._events: deque[Event] = deque()
        self._events_of: Part | None = None
        self._engine: Engine | None = None
        self._engine_version = -1

    @property
    def event_type(self) -> EventType:
        return self.filter.event_type

    @property
    def values(self) -> dict[str, Scalar]:
        """The newest values of the variables."""
        return dict(self._values)

    # --- moving it --------------------------------------------------------------------------------

    async def update(
        self,
        *,
        values: Mapping[str, object] | None = None,
        gapless: bool = False,
        timeout: float | None = None,
        **variables: object,
    ) -> None:
        """Give variables new values, all at once; returns when every broker that had to know has applied
        them.

        A value may be a `Motion(value, rate)`, which changes by itself every second, without any message,
        until it is given another value; time is that of the events' entry into the overlay. `values` is for
        variables whose names are no Python names or clash with a parameter. `gapless` also
        brings what was published since the call and only the new values match, out of order, as far back as
        brokers keep events (`replay_events` of the overlay) and clocks agree. Raises
        `VariableError` at once for values that do not fit, `SubscriptionError` after `unsubscribe`, and
        `NotSettledError` after `timeout` seconds: then the new values stand and take effect when the broker
        that is missing answers.
        """
        self._change({**(values or {}), **variables}, gapless)
        await self._client._settled(timeout, f"the update of subscription {self.id}")

    def update_nowait(
        self, *, values: Mapping[str, object] | None = None, gapless: bool = False, **variables: object
    ) -> None:
        """As `update`, without waiting: the new values are in force here, and under way."""
        self._change({**(values or {}), **variables}, gapless)

    async def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Cancel the subscription: nothing more is handed out, iteration ends."""
        self._client._forget(self)
        self._end(None)
        await self._client._settled(timeout, f"the end of subscription {self.id}")

    def _change(self, values: Mapping[str, object], gapless: bool) -> None:
        self._client._update(self, values, gapless)

    def _moved(self, values: Mapping[str, Scalar]) -> None:
        self._values = values
        self._version += 1

    # --- reading it -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while True:
            while self._events_of is not None:
                event, part = self._events.popleft(), self._events_of
                if not self._events:
                    part.claim.done()
                    self._events_of = None
                if part.version != self._version and not self.filter.matches(
                    event, still(self._values, event.ingress_ns)
                ):
                    self.spurious += 1
                    continue
                self.delivered += 1
                return event
            part = await self._waiting.next()
            if self._events_of is not None:  # Another task reads, too, and has begun one meanwhile.
                self._waiting.put_back(part)
                continue
            self._events.extend(events_of(part.batch))
            self._events_of = part

    async def batches(self) -> AsyncIterator[EventBatch]:
        """The events batch by batch, as they came."""
        while True:
            try:
                part = await self._waiting.next()
            except StopAsyncIteration:
                return
            part.claim.done()
            batch = self._strict(part)
            if len(batch):
                self.delivered += len(batch)
                yield batch

    def _strict(self, part: Part) -> EventBatch:
        """The events that match the newest values."""
        batch = part.batch
        if part.version == self._version:
            return batch
        if self._engine is None:
            self._engine = create_engine("cluster", self.event_type)
            self._engine.add(1, self.filter, still(self._values, batch.ingress_ns))
        elif self._values and (self._engine_version != self._version or moves(self._values)):
            self._engine.update(1, still(self._values, batch.ingress_ns))
        self._engine_version = self._version
        offsets, _ = self._engine.match(batch)
        kept = batch.filter(np.diff(offsets) > 0)
        self.spurious += len(batch) - len(kept)
        return kept

    # --- what the client does with it -------------------------------------------------------------

    def _put(self, share: DeliverTo, claim: Claim) -> None:
        if self._waiting.ended:
            claim.done()
            return
        self._waiting.put(Part(share.batch, self._version, claim, share.replayed))

    def _hand_over(self) -> list[Part]:
        """What waits, in order: somebody else is to read it."""
        parts = self._waiting.take_all()
        if self._events_of is not None:
            batch = self._events_of.batch
            parts.insert(0, replace(self._events_of, batch=batch.slice(len(batch) - len(self._events))))
        self._events.clear()
        self._events_of = None
        return parts

    def _matches(self, part: Part) -> Matches | None:
        """What such a reader hands out of it: None after the subscription was cancelled."""
        if self.id not in self._client._subscriptions:
            return None
        batch = self._strict(part)
        ids = np.full(len(batch), self.id, dtype=np.int64)
        return Matches(batch, np.arange(len(batch)), ids, {}, part.replayed)

    def _end(self, error: BaseException | None) -> None:
        """Nothing more will come. What waits is still handed out, unless the subscription was cancelled."""
        self._waiting.end(error)

    def _discard(self) -> None:
        """Drop what waits."""
        for part in self._hand_over():
            part.claim.done()

    def __repr__(self) -> str:
        values: dict[str, Any] = dict(self._values)
        return f"Subscription({self.id}, {str(self.filter)!r}, {values})"

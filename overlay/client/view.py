"""A view as its user holds it: the last event of each key inside of a filter, and how that changes.

Reading applies what has arrived, in order, to the view's state (`view_state.py`), under the newest values.
What was not read counts against the credit that the client has granted its broker, as for a subscription.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher import EventBatch, EventType, Filter
from covey.matcher.errors import CapacityError
from covey.overlay.client.event import Event, events_of
from covey.overlay.client.part import Claim, Part
from covey.overlay.client.subscription import Owner, Subscription
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.view_state import KINDS, Changes, ViewState

_MOVED, _RESET, _CONFIRMED = "moved", "reset", "confirmed"
_WAITING = 1024
"""Events of changes that wait before they are told together."""


@dataclass(frozen=True, slots=True)
class Change:
    """`kind` is "enter", "change" or "leave". `event` is the newest event of the key, or, where it leaves
    because the bounds have moved, the last one inside.
    """

    kind: str
    event: Event


class View:
    """An async iterator of changes; `batches()` iterates over them in columns, `snapshot()` is what is
    inside. Returned by `Client.view`.

    Several tasks may read it; each change goes to one of them.
    """

    def __init__(self, subscription: Subscription, owner: Owner, max_keys: int) -> None:
        self._subscription = subscription
        self._owner = owner
        self._state = ViewState(subscription.event_type, self._inside, max_keys)
        self._changes: deque[Changes] = deque()
        self._together_at = _WAITING
        self._events: deque[Change] = deque()
        self._signals: deque[tuple[Part, str]] = deque()
        """What has happened, each with the empty part of the subscription's queue that stands for it."""
        self._settles_at = 0
        """The epoch at which a broker that had lost the session has sent all that is inside; 0 for none."""
        self._reading = asyncio.Lock()

    @property
    def event_type(self) -> EventType:
        return self._subscription.event_type

    @property
    def filter(self) -> Filter:
        return self._subscription.filter

    @property
    def values(self) -> dict[str, object]:
        """The newest values of the variables."""
        return dict(self._subscription.values)

    async def update(
        self,
        *,
        values: Mapping[str, object] | None = None,
        timeout: float | None = None,
        **variables: object,
    ) -> None:
        """Give variables new values, all at once; returns when every broker on the way has applied them and
        has sent what is inside now. What leaves by it waits for the reader at once.

        `values`, `timeout` and errors are those of `Subscription.update`; a value may not be a `Motion`.
        """
        self.update_nowait(values=values, **variables)
        await self._owner.settle(timeout, f"the update of view {self._subscription.id}")

    def update_nowait(self, *, values: Mapping[str, object] | None = None, **variables: object) -> None:
        """As `update`, without waiting."""
        self._subscription.update_nowait(values={**(values or {}), **variables})
        self._signal(_MOVED)

    async def close(self, *, timeout: float | None = None) -> None:
        """Cancel the view: nothing more is handed out, iteration ends."""
        await self._subscription.unsubscribe(timeout=timeout)

    def snapshot(self) -> pa.Table:
        """What is inside by all that has arrived, an event per key; its changes still wait for a reader.
        Where many wait, those of a key become one, or a leave and an enter.
        """
        for part in self._subscription._drain():
            self._apply(part)
        if self._waiting > self._together_at:
            self._changes = deque(self._state.net(self._changes))
            self._together_at = 2 * self._waiting + _WAITING
        return pa.Table.from_batches([self._state.batch().record_batch])

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        async with self._reading:
            while not self._events:
                changes = await self._next()
                kinds = [KINDS[code] for code in changes.codes.tolist()]
                self._events.extend(map(Change, kinds, events_of(changes.batch)))
            return self._events.popleft()

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The changes batch by batch: the columns of the events, and `change`: enter, change or leave."""
        while True:
            async with self._reading:
                try:
                    changes = await self._next()
                except StopAsyncIteration:
                    return
            kinds = pa.DictionaryArray.from_arrays(pa.array(changes.codes), pa.array(KINDS))
            records = changes.batch.record_batch
            yield pa.RecordBatch.from_arrays(
                [*records.columns, kinds], names=[*records.schema.names, "change"]
            )

    async def _next(self) -> Changes:
        subscription = self._subscription
        while not self._changes:
            part = await subscription._inbox.head()
            subscription._inbox.pop()
            self._apply(part)
        return self._changes.popleft()

    def _apply(self, part: Part) -> None:
        """Take in what has arrived, or happened."""
        part.claim.done()
        state = self._state
        try:
            if self._signals and self._signals[0][0] is part:
                _, signal = self._signals.popleft()
                if signal == _RESET:
                    state.unconfirm()
                else:
                    self._changes += state.moved() if signal == _MOVED else state.confirmed()
                return
            departed = part.for_views and not part.replayed
            batch = part.batch
            self._subscription.delivered += batch.count
            self._changes += state.arrived(batch, replayed=part.replayed, departed=departed)
        except CapacityError as error:
            self._owner.unsubscribe(self._subscription)
            self._subscription._end(error)
            raise

    @property
    def _waiting(self) -> int:
        return sum(changes.batch.count for changes in self._changes)

    def _inside(self, batch: EventBatch) -> npt.NDArray[np.bool_]:
        rows = self._subscription._strict_rows(batch, -1)
        inside = np.full(batch.count, rows is None, np.bool_)
        if rows is not None:
            inside[rows] = True
        return inside

    def _signal(self, signal: str) -> None:
        """Something has happened, after all that has arrived: once where it was the last that did."""
        inbox = self._subscription._inbox
        if inbox.ended or (self._signals and self._signals[-1] == (inbox.newest, signal)):
            return
        batch = EventBatch.from_pylist(self.event_type, [])
        part = Part(DeliverTo(self._subscription.id, batch, 0), 0, Claim(0, 1, _nothing))
        self._signals.append((part, signal))
        self._subscription._put(part)

    # --- what the client does with it -------------------------------------------------------------

    def _begun_anew(self, epoch: int) -> None:
        """The broker has lost the session: it sends what is inside again, all of it once `epoch` settles."""
        self._settles_at = epoch
        self._signal(_RESET)

    def _settled(self, epoch: int) -> None:
        if self._settles_at and epoch >= self._settles_at:
            self._settles_at = 0
            self._signal(_CONFIRMED)


def _nothing() -> None:
    pass

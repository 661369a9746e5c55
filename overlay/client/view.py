"""A user's handle of a view: the last event of each key that matches a filter, and its changes. Reading
applies arrived events, in order (`core/client/view_reader.py`); unread ones count against the broker's
credit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from covey.matcher import EventType, Filter
from covey.matcher.errors import CapacityError, SubscriptionError
from covey.overlay.client.errors import ClosedError
from covey.overlay.client.event import Event, Part, events_of
from covey.overlay.client.inbox import Reading, Waiters
from covey.overlay.client.subscription import Owner, Subscription
from covey.overlay.core.client.view_reader import KINDS, Changes, ViewReader


@dataclass(frozen=True, slots=True)
class Change:
    """`kind` is "enter", "change" or "leave". `event` is the key's newest event; if the key leaves because
    the bounds moved, its last one inside."""

    kind: str
    event: Event


class ViewSubscription(Subscription):
    """While a task waits for an update, events are applied on arrival, even beyond the granted credit: it may
    be the view's only reader."""

    def __init__(self, owner: Owner, subscription_id: int, filter: Filter, max_keys: int) -> None:
        super().__init__(owner, subscription_id, filter)
        self.reader = ViewReader(owner.core, subscription_id, max_keys)
        self.waiters = Waiters()
        self._awaited = 0
        self._over_bound: CapacityError | None = None

    async def complete(self, timeout: float | None, what: str) -> None:
        """Wait until the view's content has arrived. `NotSettledError` after `timeout` seconds."""
        self._awaited += 1
        try:
            self._apply()
            epoch = self._owner.core.view_epoch(self.id)
            await self._owner.settled(self.waiters, epoch, timeout, f"{what} is not complete")
        finally:
            self._awaited -= 1

    def moved(self) -> None:
        self._tell(self.reader.moved)

    def begun_anew(self) -> None:
        self._tell(self.reader.begun_anew)

    def answered(self, epoch: int) -> None:
        self._tell(lambda: self.reader.answered(epoch))
        self.waiters.settle(epoch)

    def _tell(self, happened: Callable[[], None]) -> None:
        if not self._inbox.ended:
            happened()
            self._arrived()

    def _put(self, part: Part) -> None:
        if self._inbox.ended:
            part.claim.done()
        else:
            self.reader.arrived(part.share, part.claim.done)
            self._arrived()

    def _arrived(self) -> None:
        self._inbox.wake()
        if self._awaited:
            with suppress(CapacityError):
                self._apply()

    def _apply(self) -> None:
        with self.bounded():
            self.reader.apply()

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Ends a view with too many keys; later reads raise the same error."""
        if self._over_bound is not None:
            raise self._over_bound.with_traceback(None)
        try:
            yield
        except CapacityError as error:
            self._over_bound = error
            if not self._inbox.ended:
                with suppress(ClosedError):  # a client that closes sends nothing more of it
                    self._owner.unsubscribe(self)
            self._end(error)
            raise

    def _discard(self) -> None:
        self.reader.discard()

    def _end(self, error: BaseException | None) -> None:
        super()._end(error)
        ended = error if isinstance(error, Exception) else SubscriptionError(f"view {self.id} has ended")
        self.waiters.fail_all(ended)


class View:
    """An async iterator of changes, returned by `Client.view`; each goes to one of its readers. `batches()`
    iterates over columns, `snapshot()` is the content."""

    def __init__(self, subscription: ViewSubscription) -> None:
        self._subscription = subscription
        self._reader = subscription.reader
        self._changes: Changes | None = None
        self._events: deque[Change] = deque()  # the last ones of `_changes`
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
        /,
        *,
        values: Mapping[str, object] | None = None,
        timeout: float | None = None,
        **variables: object,
    ) -> None:
        """Set variables, all at once; returns when every broker on the way has applied them and the new
        content is in `snapshot()`. Arguments and errors as of `Subscription.update`, but no `Motion`."""
        self.update_nowait(values=values, **variables)
        await self._subscription.complete(timeout, f"the update of view {self._subscription.id}")

    def update_nowait(self, /, *, values: Mapping[str, object] | None = None, **variables: object) -> None:
        """As `update`, without waiting."""
        self._subscription.update_nowait(values={**(values or {}), **variables})
        self._subscription.moved()

    async def close(self, *, timeout: float | None = None) -> None:
        """Cancel the view: nothing more is handed out, iteration ends. Repeatable."""
        await self._subscription.unsubscribe(timeout=timeout)

    def snapshot(self) -> pa.Table:
        """What is inside by all that has arrived, one row per key. Its changes still wait for a reader; if
        many wait, those of a key become one or two."""
        with self._subscription.bounded():
            return pa.Table.from_batches([self._reader.batch().record_batch])

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        async with self._reading:
            while not self._events:
                self._changes = changes = await self._next()
                kinds = [KINDS[code] for code in changes.codes.tolist()]
                self._events.extend(map(Change, kinds, events_of(changes.batch)))
            return self._events.popleft()

    def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The changes, in the events' columns and `change`: enter, change or leave."""
        return Reading(self._next_records)

    async def _next_records(self) -> pa.RecordBatch:
        async with self._reading:
            if self._events and self._changes is not None:
                read = len(self._changes.codes) - len(self._events)
                changes = Changes(self._changes.batch.slice(read), self._changes.codes[read:])
                self._events.clear()
            else:
                changes = await self._next()
        kinds = pa.DictionaryArray.from_arrays(pa.array(changes.codes), pa.array(KINDS))
        records = changes.batch.record_batch
        return pa.RecordBatch.from_arrays([*records.columns, kinds], names=[*records.schema.names, "change"])

    async def _next(self) -> Changes:
        while True:
            with self._subscription.bounded():
                changes = self._reader.next()
            if changes is not None:
                return changes
            await self._subscription._inbox.changed()


def check_max_keys(max_keys: object) -> None:
    if type(max_keys) is not int or max_keys < 1:
        raise ValueError(f"max_keys is {max_keys!r}: expected an integer from 1 on")

"""What tasks of a client wait for.

Invariants: a reader gets all that arrived before the end or the error that ended it. Epochs settle
cumulatively; a refusal fails one epoch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Self, TypeVar

import numpy as np

from covey.matcher import EventBatch, EventType
from covey.overlay.core.client.actions import Matches

T = TypeVar("T")
Release = Callable[[], None]


class Inbox(Generic[T]):
    """A queue that can end. Several tasks may read it; each item goes to one."""

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.ended = False
        self._error: BaseException | None = None
        self._readers: dict[asyncio.Future[None], None] = {}

    def put(self, item: T) -> None:
        self.items.append(item)
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def changed(self) -> asyncio.Future[None]:
        """Done at the next item, `wake` or the end. After the end raises its error, or
        `StopAsyncIteration`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self.ended:
            raise StopAsyncIteration
        reader = asyncio.get_running_loop().create_future()
        self._readers[reader] = None
        reader.add_done_callback(self._readers.pop)
        return reader

    def wake(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def drain(self) -> list[T]:
        items = [*self.items]
        self.items.clear()
        return items

    def end(self, error: BaseException | None) -> None:
        self.ended = True
        self._error = error
        self.wake()


class Reading(AsyncIterator[T]):
    """Iterates over `read()` until `StopAsyncIteration`. Several tasks may read it; unlike an async generator
    it survives a cancelled reader."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read

    async def __anext__(self) -> T:
        return await self._read()


class Waiters:
    """Futures by epoch; epochs are added in ascending order. `settle(n)` ends all up to n."""

    def __init__(self) -> None:
        self._futures: dict[int, dict[asyncio.Future[None], None]] = {}
        self._settled = 0

    def wait(self, epoch: int) -> asyncio.Future[None]:
        """Done once `epoch` has settled; a caller that gives up earlier must `leave`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if epoch <= self._settled:
            future.set_result(None)
        else:
            self._futures.setdefault(epoch, {})[future] = None
        return future

    def leave(self, epoch: int, future: asyncio.Future[None]) -> None:
        futures = self._futures.get(epoch, {})
        futures.pop(future, None)
        if not futures:
            self._futures.pop(epoch, None)

    def settle(self, epoch: int) -> None:
        self._settled = max(self._settled, epoch)
        while self._futures and (oldest := next(iter(self._futures))) <= epoch:
            for future in self._futures.pop(oldest):
                if not future.done():
                    future.set_result(None)

    def fail(self, epoch: int, error: Exception) -> None:
        for future in self._futures.pop(epoch, {}):
            if not future.done():
                future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for epoch in list(self._futures):
            self.fail(epoch, error)

    def __len__(self) -> int:
        return sum(len(futures) for futures in self._futures.values())


class Listeners:
    """Truthy while a subscription matches; an async iterator of changes. Returned by `Client.listeners`."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self.any = False
        self._shown: bool | None = None
        self._inbox: Inbox[None] = Inbox()

    def __bool__(self) -> bool:
        return self.any

    def __aiter__(self) -> Listeners:
        return self

    async def __anext__(self) -> bool:
        """First the present state, then each change; ends with the advertisement."""
        while self._shown is self.any:
            await self._inbox.changed()
        self._shown = self.any
        return self.any

    def _set(self, listening: bool) -> None:
        self.any = listening
        self._inbox.wake()

    def _end(self, error: BaseException | None) -> None:
        self._inbox.end(error)

    def __repr__(self) -> str:
        return f"Listeners({self.type_name!r}, {self.any})"


class Deliveries(AsyncIterator[Matches]):
    """An async iterator of `Matches`, returned by `Client.deliveries`; ends with the client. A subscription
    whose validity period ends is named in `Matches.expired` of an item without events."""

    def __init__(self, strict: Callable[[Matches], Matches], forget_expired: Callable[[int], object]) -> None:
        self._strict = strict
        self._forget_expired = forget_expired
        self.inbox: Inbox[tuple[Matches, Release]] = Inbox()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Matches:
        while True:
            while not self.inbox.items:
                await self.inbox.changed()
            matches, release = self.inbox.items.popleft()
            release()
            if matches.expired:
                for subscription_id in matches.expired:
                    self._forget_expired(subscription_id)
                return matches
            matches = self._strict(matches)
            if len(matches.rows):
                return matches

    def _expire(self, subscription_id: int, event_type: EventType) -> None:
        none = np.empty(0, np.int64)
        batch = EventBatch.from_pylist(event_type, [])
        self.inbox.put((Matches(batch, none, none, {}, expired=(subscription_id,)), lambda: None))

"""What has arrived for a reader and was not handed out yet, in order.

Invariant: a reader gets all that arrived before it gets the end, which is an error or just the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that ends. Several tasks may read it; each item goes to one of them."""

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.ended = False
        self._error: BaseException | None = None
        self._readers: dict[asyncio.Future[None], None] = {}
        """Those that wait."""

    def put(self, item: T) -> None:
        self.items.append(item)
        if self._readers:
            self.wake()

    async def head(self) -> T:
        """The next item, as soon as there is one; the reader removes it.

        Raises the error that ended the queue, or `StopAsyncIteration`.
        """
        while not self.items:
            await self.changed()
        return self.items[0]

    async def changed(self) -> None:
        """Wait for an item, `wake`, or the end. Raises as `head`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self.ended:
            raise StopAsyncIteration
        reader = asyncio.get_running_loop().create_future()
        self._readers[reader] = None
        try:
            await reader
        finally:
            self._readers.pop(reader, None)

    def wake(self) -> None:
        """Something that waits elsewhere has changed."""
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def drain(self) -> list[T]:
        """Remove all items."""
        items = [*self.items]
        self.items.clear()
        return items

    def end(self, error: BaseException | None) -> None:
        """Nothing more will arrive."""
        self.ended = True
        self._error = error
        self.wake()


class Reading(AsyncIterator[T]):
    """An iterator of what `read` returns, until that raises `StopAsyncIteration`. Several tasks may read it,
    and one that is cancelled while it waits ends nothing, as it would an asynchronous generator.
    """

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read

    async def __anext__(self) -> T:
        return await self._read()

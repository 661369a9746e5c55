"""What has arrived for a reader and was not handed out yet, in order.

Invariant: a reader gets all that arrived before it gets the end, which is an error or just the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that ends. Several tasks may read it; each item goes to one of them."""

    def __init__(self) -> None:
        self.ended = False
        self.items: deque[T] = deque()
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    def put(self, item: T) -> None:
        self.items.append(item)
        self._changed.set()

    async def head(self) -> T:
        """The next item, as soon as there is one; `pop` removes it.

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
        self._changed.clear()
        await self._changed.wait()

    def wake(self) -> None:
        """Something that waits elsewhere has changed."""
        self._changed.set()

    def pop(self) -> T:
        """Remove the next item."""
        return self.items.popleft()

    def drain(self) -> list[T]:
        """Remove all items."""
        items = [*self.items]
        self.items.clear()
        return items

    def end(self, error: BaseException | None) -> None:
        """Nothing more will arrive."""
        self.ended = True
        self._error = error
        self._changed.set()

    def __len__(self) -> int:
        return len(self.items)

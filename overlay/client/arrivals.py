"""What has arrived and waits to be read, in order.

Invariant: what waits is read before the end is heard of, which is an error or just the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Arrivals(Generic[T]):
    """A queue that ends. Several tasks may read it; each item goes to one of them."""

    def __init__(self) -> None:
        self.ended = False
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._changed.set()

    def put_back(self, item: T) -> None:
        """It is the next to be read."""
        self._items.appendleft(item)
        self._changed.set()

    async def next(self) -> T:
        """The next item, once there is one. Raises the error that ended it, or `StopAsyncIteration`."""
        while not self._items:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self.ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._items.popleft()

    def take_all(self) -> list[T]:
        """What waits, in order; nothing waits then."""
        items = [*self._items]
        self._items.clear()
        return items

    def end(self, error: BaseException | None) -> None:
        """Nothing more will arrive."""
        self.ended = True
        self._error = error
        self._changed.set()

    def __len__(self) -> int:
        return len(self._items)

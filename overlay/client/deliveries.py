"""All that a client gets, in one stream: for clients that hold thousands of subscriptions.

A subscription's own iterator costs something per subscription and batch; this one costs something per batch.
What it gives is as strict: what came is evaluated when it is handed out, on the values that are newest then
(STRICTNESS, Jayaram et al., Fig. 5), and what waits here counts against the credit that the client has
granted its broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self

from covey.overlay.core.client import Matches

Evaluate = Callable[[], Matches | None]
Release = Callable[[], None]


class Deliveries(AsyncIterator[Matches]):
    """An async iterator of `Matches`: a batch, and which of its events are for which subscriptions.

    Made by `Client.deliveries`; iteration ends with the client.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Evaluate, Release]] = deque()
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Matches:
        while True:
            while not self._waiting:
                if self._error is not None:
                    raise self._error
                if self._ended:
                    raise StopAsyncIteration
                self._arrived.clear()
                await self._arrived.wait()
            evaluate, release = self._waiting.popleft()
            release()
            matches = evaluate()
            if matches is not None and len(matches.rows):
                return matches

    def _put(self, evaluate: Evaluate, release: Release) -> None:
        """Something came; `evaluate` is called when it is handed out."""
        self._waiting.append((evaluate, release))
        self._arrived.set()

    def _end(self, error: BaseException | None) -> None:
        self._ended = True
        self._error = error
        self._arrived.set()

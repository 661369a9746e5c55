"""All that a client gets, in one stream: for clients that hold thousands of subscriptions.

A subscription's own iterator costs something per subscription and batch; this one costs something per batch.
What it gives is as strict: what came is evaluated when it is handed out, on the values that are newest then
(STRICTNESS, Jayaram et al., Fig. 5), and what waits here counts against the credit that the client has
granted its broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Self

from covey.overlay.client.arrivals import Arrivals
from covey.overlay.core.client.session import Matches

Evaluate = Callable[[], Matches | None]
Release = Callable[[], None]


class Deliveries(AsyncIterator[Matches]):
    """An async iterator of `Matches`: a batch, and which of its events are for which subscriptions.

    Made by `Client.deliveries`; iteration ends with the client.
    """

    def __init__(self) -> None:
        self._waiting: Arrivals[tuple[Evaluate, Release]] = Arrivals()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Matches:
        while True:
            evaluate, release = await self._waiting.next()
            release()
            matches = evaluate()
            if matches is not None and len(matches.rows):
                return matches

    def _put(self, evaluate: Evaluate, release: Release) -> None:
        """Something came; `evaluate` is called when it is handed out."""
        self._waiting.put((evaluate, release))

    def _end(self, error: BaseException | None) -> None:
        self._waiting.end(error)

"""All that a client gets, in one stream: for clients that hold thousands of subscriptions.

A subscription's own iterator costs something per subscription and batch; this one costs something per batch.
It is as strict: matches are evaluated again when they are handed out, and what waits counts against the
credit that the client has granted its broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Self

from covey.overlay.client.inbox import Inbox
from covey.overlay.core.client.actions import Matches

Release = Callable[[], None]


class Deliveries(AsyncIterator[Matches]):
    """An async iterator of `Matches`: a batch, and which of its events are for which subscriptions.

    Returned by `Client.deliveries`; iteration ends with the client.
    """

    def __init__(self, strict: Callable[[Matches], Matches]) -> None:
        self._strict = strict
        self._inbox: Inbox[tuple[Matches, Release]] = Inbox()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Matches:
        while True:
            matches, release = await self._inbox.head()
            self._inbox.pop()
            release()
            matches = self._strict(matches)
            if len(matches.rows):
                return matches

    def _put(self, matches: Matches, release: Release) -> None:
        self._inbox.put((matches, release))

    def _end(self, error: BaseException | None) -> None:
        self._inbox.end(error)

"""All that a client gets, in one stream: for clients that hold thousands of subscriptions.

A subscription's own iterator costs something per subscription and batch; this one costs something per batch.
It is as strict: matches are evaluated again when they are handed out, and what waits counts against the
credit that the client has granted its broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Self

import numpy as np

from covey.matcher import EventBatch, EventType
from covey.overlay.client.inbox import Inbox
from covey.overlay.core.client.actions import Matches

Release = Callable[[], None]


class Deliveries(AsyncIterator[Matches]):
    """An async iterator of `Matches`: a batch, and which of its events are for which subscriptions.

    Returned by `Client.deliveries`; iteration ends with the client. Where the validity period of a
    subscription has ended, behind its last events, it yields one without events that names it
    (`Matches.expired`).
    """

    def __init__(self, strict: Callable[[Matches], Matches], forget_expired: Callable[[int], object]) -> None:
        self._strict = strict
        self._forget_expired = forget_expired
        self._inbox: Inbox[tuple[Matches, Release]] = Inbox()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Matches:
        while True:
            matches, release = await self._inbox.head()
            self._inbox.items.popleft()
            release()
            if matches.expired:
                for subscription_id in matches.expired:
                    self._forget_expired(subscription_id)
                return matches
            matches = self._strict(matches)
            if len(matches.rows):
                return matches

    def _put(self, matches: Matches, release: Release) -> None:
        self._inbox.put((matches, release))

    def _expire(self, subscription_id: int, event_type: EventType) -> None:
        """The validity period of a subscription has ended."""
        none = np.empty(0, np.int64)
        batch = EventBatch.from_pylist(event_type, [])
        self._put(Matches(batch, none, none, {}, expired=(subscription_id,)), lambda: None)

    def _end(self, error: BaseException | None) -> None:
        self._inbox.end(error)

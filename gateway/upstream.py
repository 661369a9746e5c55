"""A client session at the broker, and the browsers that it serves.

Browsers without a token share one, which costs per batch and not per browser. A browser with a token, or that
wants to block publishers, has its own, for its rights and its stalls; equal tokens share none, since a
renewal would change another tab's rights. Invariant: a subscription gets every event that its client
receives, also before `subscribe` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from covey.gateway import messages
from covey.gateway.encoding import EncodedBatch, Rows
from covey.matcher.errors import CoveyError
from covey.overlay import Client, ClosedError, ConnectError, Gap, Notice, Subscription, Tls, View
from covey.overlay.core.client.actions import Matches

Token = str | Callable[[], str | Awaitable[str]]

log = logging.getLogger("covey.gateway")

_MOST_EARLY = 1_000
"""Batches' shares, and ends, retained for subscriptions whose `subscribe` has not returned."""


class Subscriber(Protocol):
    def deliver(self, subscription: int, batch: EncodedBatch, rows: Rows) -> None: ...

    async def room(self) -> None: ...

    def lose(self, gap: Gap, *, of_views: bool = False) -> None: ...

    def expire(self, subscription: int) -> None: ...

    def notice(self, subscription: int, notice: Notice) -> None: ...

    def connection(self, connected: bool, reason: str) -> None: ...

    def fail(self, error: Exception) -> None: ...


@dataclass(frozen=True, slots=True)
class Access:
    broker: str
    tls: Tls | str | Path | None = None
    token: Token | None = None
    timeout_s: float = 10.0


class Upstream:
    """Opens once. With `block` it serves one browser alone, whose stalls then block publishers."""

    def __init__(self, access: Access, *, block: bool) -> None:
        self._options: dict[str, Any] = {
            "slow_consumer": "block" if block else "drop_oldest",
            "tls": access.tls,
            "token": access.token,
            "connect_timeout": access.timeout_s,
        }
        self._broker = access.broker
        self._timeout_s = access.timeout_s
        self._client = Client(
            access.broker,
            **self._options,
            on_state=self._on_state,
            on_gap=self._on_gap,
            on_notice=self._on_notice,
        )
        self.blocks = block
        self._viewing: Client | None = None
        """The client of views, since a client has either views or `deliveries`; opened for the first view."""
        self._opening = asyncio.Lock()
        self._subscribers: dict[int, tuple[Subscriber, int]] = {}
        """By the client's subscription id, the session and its number."""
        self._sessions: dict[Subscriber, None] = {}
        self._subscribing = 0
        self._early: list[tuple[int, EncodedBatch, Rows]] = []
        self._ended_early: set[int] = set()
        """Subscriptions that expired before their `subscribe` returned."""
        self._more_ended = False
        """More have expired than are retained."""
        self._advertising = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self.error: Exception | None = None

    async def open(self) -> None:
        """`ConnectError` if no broker answers or it refuses this client."""
        await self._client.open()
        self._reader = asyncio.create_task(self._read(), name="covey gateway upstream")

    async def verify(self, token: str) -> None:
        """`ConnectError` if the broker refuses this token for this client's owner, or does not answer. Opens
        a connection of its own, since the client's was authenticated by the old token."""
        owner, slash, _ = self._client.name.rpartition("/")
        name = f"{owner}/{secrets.token_hex(6)}" if slash else None
        client = Client(self._broker, name, **{**self._options, "token": token})
        try:
            await client.open()
        finally:
            await client.close(grace=0.0)

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        await self._client.close(grace=1.0)
        async with self._opening:
            if self._viewing is not None:
                await self._viewing.close(grace=1.0)

    def join(self, session: Subscriber) -> None:
        self._sessions[session] = None

    def leave(self, session: Subscriber) -> None:
        self._sessions.pop(session, None)

    # --- requests -----------------------------------------------------------------------------------

    async def subscribe(self, session: Subscriber, message: messages.Subscribe) -> Subscription:
        """As `Client.subscribe`, for a session's number."""
        self._subscribing += 1
        try:
            values = messages.values_of(message.values)
            subscription = await self._client.subscribe(
                message.type,
                message.filter,
                values=values,
                valid_for=message.valid_for,
                timeout=self._timeout_s,
            )
            self._take_early(session, message.subscription, subscription)
            return subscription
        finally:
            self._subscribing -= 1
            if not self._subscribing:
                self._early.clear()
                self._ended_early.clear()
                self._more_ended = False

    def _take_early(self, session: Subscriber, number: int, subscription: Subscription) -> None:
        """Each subscription takes its events at once, since others may always be opening."""
        self._subscribers[subscription.id] = session, number
        early, self._early = self._early, []
        for part in early:
            if part[0] == subscription.id:
                session.deliver(number, *part[1:])
            else:
                self._early.append(part)
        if subscription.id in self._ended_early or (self._more_ended and subscription.expired):
            self._ended_early.discard(subscription.id)
            self._expire(subscription.id)

    async def view(self, message: messages.View, max_keys: int) -> View:
        """As `Client.view`; raises what `Client.open` raises for the first view."""
        values, client = messages.values_of(message.values), await self._views_client()
        return await client.view(
            message.type,
            message.filter,
            leave=message.leave,
            values=values,
            max_keys=max_keys,
            timeout=self._timeout_s,
        )

    async def _views_client(self) -> Client:
        """The client of views, replaced if it has ended, but not while its broker is away."""
        async with self._opening:
            ended = self._viewing
            if ended is not None and ended.error is None:
                return ended
            client = Client(self._broker, **self._options, on_gap=partial(self._on_gap, of_views=True))
            await client.open()
            self._viewing = client
            if ended is not None:
                await ended.close(grace=0.0)
            return client

    async def key_of(self, type_name: str) -> str | None:
        """The key of an event type; `UnknownTypeError` as `Client.event_type`."""
        return (await self._client.event_type(type_name)).key

    def drop(self, subscription: Subscription) -> None:
        """Deliver nothing of it any more, nor its end."""
        self._subscribers.pop(subscription.id, None)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """As `drop`; returns as `Subscription.unsubscribe`."""
        self.drop(subscription)
        if not subscription.expired:
            await subscription.unsubscribe(timeout=self._timeout_s)

    async def publish(self, type_name: str, events: list[dict[str, Any]]) -> None:
        """Publish events; returns when they are accepted. Their type is advertised first, and again where
        they use attributes by which it was widened since."""
        async with self._advertising:
            advertised = self._client.session.advertised.get(type_name)
            if advertised is None or not set().union(*events) <= advertised.event_type.attributes.keys():
                known = await self._client.event_type(type_name)
                if advertised is None or not advertised.event_type.includes(known):
                    await self._client.advertise(known)
        await self._client.publish_batch(type_name, events, confirm=True)

    # --- events -------------------------------------------------------------------------------------

    async def _read(self) -> None:
        error: Exception = ClosedError("the gateway's client is closed")
        try:
            async for matches in self._client.deliveries():
                await self._hand_out(matches)
                await asyncio.sleep(0)  # a full inbox must not keep the loop
        except CoveyError as failure:
            error = failure
        except Exception as failure:
            log.exception("handing out events failed")
            error = failure
        self.error = error
        for session in [*self._sessions]:
            session.fail(error)

    async def _hand_out(self, matches: Matches) -> None:
        batch = EncodedBatch(matches.batch, matches.replayed)
        for subscription_id in matches.expired:
            self._expire(subscription_id)
        order = np.argsort(matches.ids, kind="stable")
        rows, ids = matches.rows[order], matches.ids[order]
        edges = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(edges) if len(rows) else ():  # none where subscriptions have ended
            subscription_id = int(ids[start])
            known = self._subscribers.get(subscription_id)
            if known is not None:
                known[0].deliver(known[1], batch, rows[start:stop])
            elif self._subscribing:
                self._keep(subscription_id, batch, rows[start:stop])
        if self.blocks:
            for session in [*self._sessions]:
                await session.room()

    def _expire(self, subscription_id: int) -> None:
        known = self._subscribers.pop(subscription_id, None)
        if known is not None:
            known[0].expire(known[1])
        elif self._subscribing:
            if len(self._ended_early) < _MOST_EARLY:
                self._ended_early.add(subscription_id)
            else:
                self._more_ended = True

    def _keep(self, subscription_id: int, batch: EncodedBatch, rows: Rows) -> None:
        if len(self._early) >= _MOST_EARLY:  # a broker that does not answer, and many events
            _, oldest, lost = self._early.pop(0)
            self._on_gap(Gap(oldest.batch.event_type.name, oldest.batch.ingress_ns, oldest.batch.ingress_ns,
                             len(lost)))  # fmt: skip
        self._early.append((subscription_id, batch, rows))

    # --- what the client tells ------------------------------------------------------------------------

    def _on_gap(self, gap: Gap, *, of_views: bool = False) -> None:
        for session in [*self._sessions]:
            session.lose(gap, of_views=of_views)

    def _on_notice(self, notice: Notice) -> None:
        for subscription_id in notice.subscription_ids:
            known = self._subscribers.get(subscription_id)
            if known is not None:
                known[0].notice(known[1], notice)

    def _on_state(self, connected: bool, reason: str) -> None:
        for session in [*self._sessions]:
            session.connection(connected, reason)


class SharedUpstream:
    """The upstream of all browsers without a token; opens for the first, and again after it has failed for
    good."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._current: Upstream | None = None
        self._attempt: asyncio.Task[Upstream] | None = None

    async def get(self) -> Upstream:
        """`ConnectError` as `Upstream.open`; callers during an attempt share its result."""
        if self._current is not None and self._current.error is None:
            return self._current
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.create_task(self._open())
            self._attempt.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._attempt)

    async def _open(self) -> Upstream:
        failed, self._current = self._current, None
        if failed is not None:
            await failed.close()
        upstream = Upstream(self._access, block=False)
        await upstream.open()
        self._current = upstream
        return upstream

    def has(self, upstream: Upstream) -> bool:
        return upstream is self._current

    async def close(self) -> None:
        if self._attempt is not None:
            with contextlib.suppress(CoveyError):
                await self._attempt
        current, self._current = self._current, None
        if current is not None:
            with contextlib.suppress(ConnectError):
                await current.close()

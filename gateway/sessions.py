"""The sessions of a gateway's browsers: a hello opens one, and it outlives its connection for a lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from covey.gateway.browser_queue import BrowserQueue, Totals
from covey.gateway.limits import Addresses, Limits, Overflow, prefix
from covey.gateway.messages import Hello, Welcome
from covey.gateway.session import BearerToken, Session
from covey.gateway.upstream import Access, SharedUpstream, Upstream
from covey.matcher.errors import CoveyError
from covey.overlay import RefusedError

log = logging.getLogger("covey.gateway")


class Holder:
    """A connection that has a session; `error` is why it was ended."""

    error: Exception | None = None
    tasks: tuple[asyncio.Task[None], ...] = ()

    def end(self, error: Exception) -> None:
        self.error = error
        for task in self.tasks:
            task.cancel()

    async def until_first(self, *work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as `tasks` until one of them ends, or the connection is ended."""
        self.tasks = tuple(map(asyncio.create_task, work))
        try:
            await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.wait(self.tasks)


@dataclass(slots=True)
class _Entry:
    session: Session
    purpose: str
    """The request of a stream of events; "" for a WebSocket."""
    address: str
    holder: Holder | None = None
    lease: asyncio.TimerHandle | None = None


class Sessions:
    """`publishable` are globs of the event types that browsers may publish. With `allow_block` browsers
    without a token may block publishers. `door` is our own server's count of connections, which refuses them
    before the application sees them."""

    def __init__(
        self, access: Access, limits: Limits, publishable: tuple[str, ...], *, allow_block: bool = False
    ) -> None:
        self.limits = limits
        self._allow_block = allow_block
        self.addresses = Addresses(limits)
        self.door: Addresses | None = None
        self._access = access
        self._publishable = publishable
        self._shared = SharedUpstream(access)
        self._entries: dict[str, _Entry] = {}
        self._away: dict[str, dict[Session, None]] = {}
        """Sessions without a connection, by address, the longest away first."""
        self.totals = Totals()
        self._opening = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._dropped = 0

    async def open(
        self, hello: Hello, holder: Holder, address: str, *, acknowledges: bool = True, purpose: str = ""
    ) -> tuple[Session, bool]:
        """The session of a connection, and whether it is resumed, which needs the same `purpose`. An address
        has as many sessions as connections; beyond that the longest away ends. `ConnectError` if the broker
        is unreachable or refuses the token, `RefusedError` for too many sessions."""
        entry = self._entries.get(hello.session or "")
        if entry is not None and entry.purpose == purpose:
            resumes = self._resumes(entry, hello)
            begins_again = not resumes and bool(purpose) and entry.session.fits(hello.token)
            if entry.holder is not None and (resumes or begins_again):
                entry.holder.end(RefusedError("ABORTED", "another connection goes on with this session"))
            if resumes:
                if entry.lease is not None:
                    entry.lease.cancel()
                entry.holder, entry.lease = holder, None
                self._is_back(entry)
                return entry.session, True
            if begins_again:  # a stream, whose view need not wait for the end of its lease
                self._end(entry.session)
        self._make_room(address)
        if len(self._entries) + self._opening >= self.limits.max_sessions:
            bound = self.limits.max_sessions
            raise RefusedError("RESOURCE_EXHAUSTED", f"max_sessions is {bound}, and the gateway has them")
        self._opening += 1
        try:
            session = await self._new(hello, acknowledges)
        finally:
            self._opening -= 1
        self._entries[session.id] = _Entry(session, purpose, prefix(address), holder)
        return session, False

    def _make_room(self, address: str) -> None:
        """Otherwise one address could take all sessions, by connections that it opens and breaks."""
        away = self._away.get(prefix(address), {})
        most = max(0, self.limits.max_connections_per_address - self.addresses.of(address))
        for session in [*away][: max(0, len(away) - most)]:
            self._end(session)

    def _resumes(self, entry: _Entry, hello: Hello) -> bool:
        """The token is taken last: a hello that resumes nothing brings its token to a new session."""
        session = entry.session
        if session.error is not None or not session.fits(hello.token):
            return False
        if not session.queue.resume(hello.received):
            return False
        session.renew(hello.token)
        return True

    async def _new(self, hello: Hello, acknowledges: bool) -> Session:
        overflow = Overflow(hello.overflow)
        token = None if hello.token is None else BearerToken(hello.token)
        block = overflow is Overflow.BLOCK
        if block and token is None and not self._allow_block:
            expected = "expected another policy, or a token (or --allow-block of the gateway)"
            raise RefusedError("PERMISSION_DENIED", f"hello: overflow is 'block': {expected}")
        if token is None and not block:
            upstream = await self._shared.get()
        else:
            access = self._access if token is None else replace(self._access, token=token)
            upstream = Upstream(access, block=block)
            await upstream.open()
        queue = BrowserQueue(overflow, self.limits, acknowledges=acknowledges, totals=self.totals)
        return Session(upstream, queue, hello.format, self.limits, self._publishable, token, self._failed)

    def welcome(self, session: Session, resumed: bool, request: int = 0) -> Welcome:
        return Welcome(
            session=session.id,
            resumed=resumed,
            request=request,
            max_message_bytes=self.limits.max_message_bytes,
            window_bytes=self.limits.window_bytes,
            lease_s=self.limits.lease_s,
        )

    def leave(self, session: Session, holder: Holder, *, end: bool) -> None:
        """A connection has ended; its session stays for the lease, unless `end`."""
        entry = self._entries.get(session.id)
        if entry is None or entry.holder is not holder:
            return
        entry.holder = None
        if end or session.error is not None:
            self._end(session)
        else:
            loop = asyncio.get_running_loop()
            entry.lease = loop.call_later(self.limits.lease_s, self._end, session)
            self._away.setdefault(entry.address, {})[session] = None

    def _failed(self, session: Session) -> None:
        entry = self._entries.get(session.id)
        if entry is not None and entry.holder is not None and session.error is not None:
            entry.holder.end(session.error)
        self._end(session)

    def _is_back(self, entry: _Entry) -> None:
        away = self._away.get(entry.address, {})
        away.pop(entry.session, None)
        if not away:
            self._away.pop(entry.address, None)

    def _end(self, session: Session) -> None:
        entry = self._entries.pop(session.id, None)
        if entry is not None:
            self._is_back(entry)
            if entry.lease is not None:
                entry.lease.cancel()
            self._dropped += session.queue.dropped
            task = asyncio.create_task(self._close(session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, session: Session) -> None:
        with contextlib.suppress(CoveyError):
            if self._shared.has(session.upstream):
                await session.close()
            else:  # which ends all subscriptions at once
                await session.upstream.close()
                await session.close()

    async def close(self) -> None:
        for entry in [*self._entries.values()]:
            if entry.lease is not None:
                entry.lease.cancel()
            if entry.holder is not None:
                entry.holder.end(RefusedError("UNAVAILABLE", "the gateway stops"))
            self._end(entry.session)
        await self._shared.close()  # which ends all subscriptions at once, also where the broker is away
        if self._closing:
            await asyncio.wait(self._closing)

    def all(self) -> list[tuple[Session, bool]]:
        return [(entry.session, entry.holder is not None) for entry in self._entries.values()]

    @property
    def refused_connections(self) -> int:
        return self.addresses.refused + (0 if self.door is None else self.door.refused)

    def counts(self) -> dict[str, int]:
        entries = self._entries.values()
        return {
            "sessions": len(entries),
            "connections": self.addresses.total,
            "refused_connections": self.refused_connections,
            "dropped_events": self._dropped + sum(entry.session.queue.dropped for entry in entries),
        }

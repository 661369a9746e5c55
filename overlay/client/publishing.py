"""Publishing calls. Invariant: concurrent calls get room in the outbox in the order in which they were
made."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from covey.matcher import EventBatch
from covey.matcher.errors import CoveyError
from covey.overlay.client.errors import OutboxFullError
from covey.overlay.client.reports import ClientTracing
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.outbox import UNTRACED, Confirmation

log = logging.getLogger("covey.client")

_TURN_EVENTS = 64
"""After so many events without waiting, a call yields to the loop, so that frames are read and written."""
_LOG_EVERY_S = 1.0


class Publishing:
    def __init__(self, name: str, endpoint: ClientEndpoint, wake: Callable[[], None]) -> None:
        self.name = name
        self.tracing: ClientTracing | None = None
        self._endpoint = endpoint
        self._outbox = endpoint.outbox
        self.wake = wake
        self._turn = _TURN_EVENTS
        self._room: dict[str, OrderedDict[asyncio.Future[None], None]] = {}
        """Futures of calls that wait for room, by event type; any may be cancelled."""
        self._confirming: dict[Confirmation, asyncio.Future[None]] = {}
        self._error: Exception | None = None
        self._logged = 0
        self._log_at = 0.0

    def put(self, type_name: str, values: Mapping[str, object]) -> bool:
        """Publish without waiting or tracing; False if the call may need either."""
        if self._turn <= 1 or self._room or self.tracing is not None or self._outbox.full(type_name):
            return False
        self._turn -= 1
        if self._endpoint.publish(type_name, values):
            self.wake()
        return True

    def publish_nowait(self, type_name: str, values: Mapping[str, object]) -> None:
        """`OutboxFullError` instead of waiting for room."""
        if self._room.get(type_name) or self._outbox.full(type_name):
            self._endpoint.row(type_name, values)
            raise OutboxFullError(
                f"{type_name}: the outbox of client {self.name} is full, {self._outbox.pending:,} events are "
                "not accepted: expected `publish`, which waits for room"
            )
        if self.tracing is None:
            self._put(type_name, values, UNTRACED)
            return
        with self._span(type_name) as traceparent:
            self._put(type_name, values, traceparent)

    def _span(self, type_name: str, count: int | None = None) -> AbstractContextManager[str]:
        """The traceparent of an event or, with `count`, of a batch. Within it, the call's span, if any."""
        if self.tracing is None:
            return nullcontext(UNTRACED)
        traceparent = self.tracing.of_event() if count is None else None
        if traceparent is not None:
            return nullcontext(traceparent)
        return self.tracing.sending(type_name, 1 if count is None else count)

    def _put(self, type_name: str, values: Mapping[str, object], traceparent: str) -> None:
        # Where events wait for a timer, it wakes the writer; a batch that is whole does not wait for it.
        if self._endpoint.publish(type_name, values, traceparent):
            self.wake()

    async def publish(self, type_name: str, values: Mapping[str, object], confirm: bool) -> None:
        with self._span(type_name) as traceparent:
            if self._room or self._outbox.full(type_name):
                self._endpoint.row(type_name, values)
                await self._wait_for_room(type_name)
            self._put(type_name, values, traceparent)
            if confirm:
                await self._finished(self._outbox.confirm(type_name, 1))
                return
            self._turn -= 1
            if not self._turn:
                self._turn = _TURN_EVENTS
                await asyncio.sleep(0)

    async def publish_batch(self, batch: EventBatch, confirm: bool) -> None:
        type_name = batch.event_type.name
        with self._span(type_name, batch.count) as traceparent:
            await self._wait_for_room(type_name)
            count, refusal = self._endpoint.publish_batch(batch, traceparent)
            self.wake()
            if confirm:
                await self._finished(self._outbox.confirm(type_name, count))
            else:
                await asyncio.sleep(0)
            if refusal is not None:
                raise refusal

    async def flush(self) -> None:
        confirmation = self._outbox.flush()
        self.wake()
        await self._finished(confirmation)

    async def drained(self) -> None:
        while self._outbox.pending and self._error is None:
            with suppress(CoveyError):
                await self.flush()

    # --- waiting --------------------------------------------------------------------------------------------

    async def _wait_for_room(self, type_name: str) -> None:
        waiting = self._room.get(type_name)
        if waiting is None:
            if not self._outbox.full(type_name):
                return
            waiting = self._room[type_name] = OrderedDict()
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[room] = None
        try:
            await room
            if self._error is not None:
                raise self._error.with_traceback(None)
        except BaseException:
            waiting.pop(room, None)
            raise
        finally:
            if not waiting:
                if self._room.get(type_name) is waiting:  # Else others wait in a newer one.
                    del self._room[type_name]
            else:  # The next one has its turn behind this one.
                asyncio.get_running_loop().call_soon(self._grant_room)

    def _grant_room(self) -> None:
        for type_name, waiting in self._room.items():
            if waiting and not self._outbox.full(type_name):
                room, _ = waiting.popitem(last=False)
                if not room.done():
                    room.set_result(None)

    async def _finished(self, confirmation: Confirmation) -> None:
        if not confirmation.finished:
            future = self._confirming[confirmation] = asyncio.get_running_loop().create_future()
            try:
                await future
            finally:
                del self._confirming[confirmation]
        if confirmation.error is not None:
            raise confirmation.error.with_traceback(None)  # or it would grow with each call

    # --- what the client calls ------------------------------------------------------------------------------

    def advance(self) -> None:
        if self._outbox.finished:
            for confirmation in self._endpoint.take_finished():
                future = self._confirming.get(confirmation)
                if future is not None and not future.done():
                    future.set_result(None)
        if self._room:
            self._grant_room()
        if self._outbox.refused != self._logged:
            self._log_refusals()

    def fail(self, error: Exception) -> None:
        self._error = error
        if self._outbox.pending:
            count = self._outbox.pending
            log.warning("client %s: %d events were not accepted: %s", self.name, count, error)
        self._outbox.fail(error)
        self.advance()
        for waiting in self._room.values():
            for room in waiting:
                if not room.done():
                    room.set_exception(error)

    def _log_refusals(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._log_at:
            count, self._logged = self._outbox.refused - self._logged, self._outbox.refused
            self._log_at = now + _LOG_EVERY_S
            why = self._outbox.last_refusal
            log.warning("client %s: events refused: %d, the last one: %s", self.name, count, why)

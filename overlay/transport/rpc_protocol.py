"""A connection with gRPC calls on the event loop: feeds `RpcConnection`, drains it, re-arms its timer.

What is woken or sent in one turn of the loop is written at its end, in one piece of about 256 KiB at most.
While the transport takes no more, nothing is taken from the connection. With a `TlsLayer` all bytes pass it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from covey.overlay.core.access.identity import Certified
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.http2.messages import MessageReader, MessagesReceived
from covey.overlay.http2.rpc import CallEnded, CallStarted, RpcConnection, RpcEvent
from covey.overlay.transport.event_loop import LoopTimer, WaitingLine
from covey.overlay.transport.rpc_call import RpcCall
from covey.overlay.transport.tls import EXPECTS_TLS, TlsLayer, is_alert

_UNCUT = 64 << 10
"""Bytes of messages, of a peer whose turn it is not always, from which on no more are read."""
_FLUSH_S = 2.0
"""How long a connection that has ended waits for a peer that does not read the last of it."""


class RpcProtocol(asyncio.Protocol):
    """`started` gets the calls of a client; `opened` and `closed` are called when the connection begins and
    has ended. A server's has its `line`. `unreached` is why calls fail if the peer never answers.
    `established` has a result, the sentence of a failure or "", once TLS is, or at once without it.
    """

    def __init__(
        self,
        rpc: RpcConnection,
        *,
        started: Callable[[RpcCall, RpcProtocol], None] | None = None,
        opened: Callable[[RpcProtocol], None] | None = None,
        closed: Callable[[RpcProtocol], None] | None = None,
        unreached: str = "the connection broke",
        tls: TlsLayer | None = None,
        line: WaitingLine | None = None,
    ) -> None:
        self.rpc = rpc
        self.line = line
        self._ample = rpc.http2.budget.ample
        """Whether what the client of a server sends is handled at once."""
        self.tls = tls
        self.peer = ""
        self.host = ""
        self.lost = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self.established: asyncio.Future[str] = self._loop.create_future()
        self._started = started
        self._opened = opened
        self._closed = closed
        self._unreached = unreached
        self._calls: dict[int, RpcCall] = {}
        self._transport: asyncio.Transport | None = None
        self._timer = LoopTimer()
        self._paused = False
        self._pending: bytes | None = None
        """Bytes that wait for their turn in the line, None while none do."""
        self._waits = False
        """Whether nothing is read."""
        self._writable = False
        """Whether bytes may be written: the connection is established, and does not end."""
        self._flushing = False
        self._woken: dict[int, RpcCall] = {}
        self._blocked: dict[int, RpcCall] = {}
        self._room: asyncio.Future[None] | None = None

    # --- what the transport calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address: Any = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.host, self.peer = address[0], f"{address[0]}:{address[1]}"
        else:
            self.host, self.peer = "unix:", f"unix:{address or ''}"
        if self._opened is not None:
            self._opened(self)
        self._arm()
        if self.tls is None:
            self._establish()
        elif self.rpc.is_client:
            self.tls.start()
            self._write(self.tls.take_output())
        self._flush()

    def data_received(self, data: bytes, *, served: bool = False) -> None:
        """Bytes have arrived; or, `served`, it is their turn in the line."""
        now_ns = time.monotonic_ns()
        waits = not served and self.line is not None and not self._ample(now_ns)
        if waits or self._pending is not None:
            self._wait(data)
            return
        rpc = self.rpc
        if self.tls is not None:
            data = self.tls.receive(data)
            self._write(self.tls.take_output())
            if not self.established.done() and self.tls.established:
                self._establish()
                self.flush_soon()
        elif not rpc.http2.begun and rpc.is_client and is_alert(data):
            self._fail(EXPECTS_TLS)
            return
        http2 = rpc.http2
        if data or http2.unread:
            events = http2.receive(data, now_ns)
            if len(events) == 1 and events[0].__class__ is MessagesReceived:  # nearly always
                call = self._calls.get(events[0].call_id)
                if call is not None:
                    call._received(events[0].reader, now_ns)
                if not self._flushing and (http2.output or http2.ready):
                    self.flush_soon()
            else:
                self._handle(rpc.handle(events), now_ns)
        if http2.unread:
            self._wait(b"")
        if self.tls is not None and self.tls.failure:
            self._fail(self.tls.failure)
        elif self.tls is not None and self.tls.ended:
            self._close_transport()

    def _wait(self, data: bytes) -> None:
        """Handle bytes when it is their turn, and read no more before."""
        line, transport = self.line, self._transport
        if transport is None or transport.is_closing():
            return
        if line is None:
            self._loop.call_soon(self._serve)
        elif line.full:
            self.rpc.http2.faults[ErrorCode.ENHANCE_YOUR_CALM] += 1
            self.abort()
            return
        else:
            line.bytes += len(data)
            if self._pending is None:
                line.join(self._serve)
        self._pending = (self._pending or b"") + data
        self._read_on()

    def _serve(self) -> None:
        data, self._pending = self._pending or b"", None
        if self.line is not None:
            self.line.bytes -= len(data)
        if self._transport is not None and not self._transport.is_closing():
            self.data_received(data, served=True)
        self._read_on()

    def later(self, call: Callable[[], None]) -> None:
        """Call something once the loop has served others: what has arrived on other connections."""
        if self.line is None or self._ample(time.monotonic_ns()):
            self._loop.call_soon(self._loop.call_soon, call)
        else:
            self.line.join(call)

    def _read_on(self) -> None:
        """Read while nothing waits for its turn: what has not been read is bounded by the system."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waits = self._pending is not None
        if self.line is not None and not waits:
            waits = any(call.uncut_bytes > _UNCUT for call in self._calls.values())
            waits = waits and not self._ample(time.monotonic_ns())
        if waits != self._waits:
            self._waits = waits
            if waits:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        why = "the connection broke" if self.rpc.http2.begun else self._unreached
        self._writable = False
        self._handle(self.rpc.lost(why))
        self._timer.cancel()
        self._establish(why)
        self._make_room()
        if not self.lost.done():
            self.lost.set_result(None)
        if self._closed is not None:
            self._closed(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush_soon()

    @property
    def certified(self) -> Certified | None:
        """What the verified certificate of the peer says; None without one."""
        return None if self.tls is None else self.tls.certified

    # --- what calls use -------------------------------------------------------------------------------------

    def start(self, path: str, timeout_s: float | None, authorization: bytes = b"") -> RpcCall | None:
        """A new call of a client; None if the connection takes no more."""
        timeout_ns = None if timeout_s is None else int(timeout_s * 1e9)
        now_ns = time.monotonic_ns()
        call_id = self.rpc.start(path, timeout_ns=timeout_ns, authorization=authorization, now_ns=now_ns)
        if call_id is None:
            return None
        call = self._calls[call_id] = RpcCall(self, call_id, path)
        self._arm()
        self.flush_soon()
        return call

    def charge(self, permits: float) -> None:
        """What the peer has sent has made so much work, and brought nothing (`core/budget.py`)."""
        self._loop.call_soon(self._charge, permits)

    def _charge(self, permits: float) -> None:
        self._handle(self.rpc.charge(permits, time.monotonic_ns()))

    def cut(self, call_id: int, reader: MessageReader, most: int) -> list[bytes]:
        """As `RpcConnection.cut`."""
        messages = self.rpc.cut(call_id, reader, most, time.monotonic_ns())
        if self._waits:
            self._read_on()
        if events := self.rpc.take_events():
            self._handle(events)
        return messages

    def block(self, call: RpcCall) -> None:
        """Wake a call once it is writable."""
        self._blocked[call.id] = call

    def finish(self, call_id: int, status: str, details: str) -> None:
        self._forget(call_id)
        self.rpc.finish(call_id, status, details)
        self._arm()
        self.flush_soon()

    def cancel(self, call_id: int) -> None:
        self._forget(call_id)
        self.rpc.cancel(call_id)
        self.flush_soon()

    async def wait_for_room(self) -> None:
        """Until something was written, or a call has ended."""
        if self._room is None:
            self._room = self._loop.create_future()
        await asyncio.shield(self._room)

    def shut_down(self) -> None:
        """Take no more calls, and close once those that are open have ended."""
        self.rpc.http2.shut_down()
        self.flush_soon()

    def abort(self) -> None:
        """Close without another byte."""
        self._writable = False
        if self._transport is not None:
            self._transport.abort()

    def forget_transport(self) -> None:
        """The attempt to connect was given up, maybe after it had succeeded: uvloop then closes the transport
        and does not say so.
        """
        self._transport = None
        self._writable = False
        self._timer.cancel()

    def close(self) -> None:
        """Close at once; open calls fail."""
        self._handle(self.rpc.lost("the connection was closed by this end"))
        self._close_transport()

    # --- inside ---------------------------------------------------------------------------------------------

    def _fail(self, why: str) -> None:
        """TLS has failed, or is missing."""
        why = f"{'the connection broke' if self.rpc.http2.begun else self._unreached}: {why}"
        self._handle(self.rpc.lost(why))
        self._establish(why)
        self._close_transport()

    def _establish(self, failure: str = "") -> None:
        if not self.established.done():
            self._writable = not failure
            self.established.set_result(failure)

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _handle(self, events: list[RpcEvent], now_ns: int = 0) -> None:
        """Events; messages among them have arrived now."""
        for event in events:
            if isinstance(event, MessagesReceived):
                receiver = self._calls.get(event.call_id)
                if receiver is not None:
                    receiver._received(event.reader, now_ns)
            elif isinstance(event, CallStarted):
                started = RpcCall(self, event.call_id, event.path, event.authorization)
                self._calls[event.call_id] = started
                self._arm()
                assert self._started is not None
                self._started(started, self)
            elif isinstance(event, CallEnded):
                call = self._forget(event.call_id)
                if call is not None:
                    if self.line is not None and not self._ample(time.monotonic_ns()):
                        call._drop()  # its turns would come long after it has gone
                    call._set_ended(event.status, event.details)
                self._make_room()
            elif event.call_id in self._calls:
                self._calls[event.call_id]._set_complete()
        http2 = self.rpc.http2
        if not self._flushing and (http2.output or http2.ready or http2.closing or http2.closed is not None):
            self.flush_soon()

    def _forget(self, call_id: int) -> RpcCall | None:
        if self._waits:
            self._loop.call_soon(self._read_on)
        self._woken.pop(call_id, None)
        self._blocked.pop(call_id, None)
        return self._calls.pop(call_id, None)

    def flush_soon(self, woken: RpcCall | None = None) -> None:
        """Write at the end of this turn what is due, and what a woken call has."""
        if woken is not None and woken.status is None:  # or an ended connection would keep the call
            self._woken[woken.id] = woken
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        http2, transport = self.rpc.http2, self._transport
        if transport is None or not self._writable:
            self._flushing = False
            if http2.over:
                self._close_transport()
            return
        woken, self._woken = self._woken, {}
        for call in woken.values():
            call._fill()
        self._flushing = False  # what calls have sent is written now
        if not self._paused and (output := http2.take_output()):
            if self.tls is not None:
                self.tls.send(output)
                output = self.tls.take_output()
            transport.write(output)
            if self._room is not None:
                self._make_room()
            if self._blocked:
                for call in [call for call in self._blocked.values() if call.writable]:
                    del self._blocked[call.id]
                    call.wake()
        if self._woken or ((http2.ready or http2.output) and not self._paused):
            self.flush_soon()
        elif (http2.closing or http2.closed is not None) and http2.over:
            self._close_transport()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _close_transport(self) -> None:
        self._writable = False
        if self._transport is not None and not self._transport.is_closing():
            if self.tls is not None:
                self.tls.end()
                self._write(self.tls.take_output())
            self._transport.close()
            self._loop.call_later(_FLUSH_S, self._transport.abort)

    def _arm(self) -> None:
        self._timer.arm(self.rpc.next_timer(), self._on_timer)

    def _on_timer(self, now_ns: int) -> None:
        self._handle(self.rpc.handle_timer(now_ns))
        self._arm()

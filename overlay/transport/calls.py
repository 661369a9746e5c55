"""gRPC calls and their connection on the event loop, at either end: feeds and drains `RpcConnection`.

A call's messages are read one by one, or are a link's frames, which are handled together in the turn in which
they arrive. Frames that the link's end leaves wait, unread by flow control, until the loop has served other
connections. Output is written at the end of a turn, about 256 KiB at most. The exchange ends with its call;
the link outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from covey.overlay.core.access.identity import Certified
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.http2.messages import PREFIX_BYTES, MessageReader, MessagesReceived
from covey.overlay.http2.rpc import NO_SECRET, CallEnded, CallStarted, RpcConnection, RpcEvent, Secret
from covey.overlay.transport.event_loop import LoopTimer, WaitingLine
from covey.overlay.transport.tls import EXPECTS_TLS, TlsLayer, is_alert

if TYPE_CHECKING:  # a call that exchanges no frames needs no codec
    from covey.overlay.core.link.link import Frame
    from covey.overlay.transport.codec import WireMessage
    from covey.overlay.transport.packets import LinkEnd

T = TypeVar("T")

_QUEUED_BYTES = 64 << 10
_OFFERED = 256
_GOODBYE_S = 1.0
_RETURNED_BYTES = 16 << 10
"""Processed bytes kept back from the peer's windows: over all calls, a tenth of the connection's window."""
_UNCUT = 64 << 10
"""Bytes of uncut messages from which on reading pauses, for an untrusted peer."""
_FLUSH_S = 2.0
"""For a peer that does not read the rest of an ended connection."""


class RpcCall:
    """Messages wait for `read`, or are frames for `exchange`. Once the call has ended it has `status` and
    `details`, and what is sent is lost. One task at a time may wait. `authorization` is the header."""

    def __init__(
        self, connection: RpcProtocol, call_id: int, path: str, authorization: Secret = NO_SECRET
    ) -> None:
        self.id = call_id
        self.path = path
        self.authorization = authorization
        self.status: str | None = None
        self.details = ""
        self._connection = connection
        self._http2 = connection.rpc.http2
        self._stream = self._http2.stream(call_id)
        self._held = False
        self._processed = 0
        """Not yet returned to the peer's windows."""
        self._reader: MessageReader | None = None
        self._unread: list[bytes] = []
        self._complete = False
        self._waiter: asyncio.Future[None] | None = None
        self._end: LinkEnd | None = None
        self._left: list[Frame[WireMessage]] = []
        """The first unread messages, decoded."""
        self._error: Exception | None = None

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def host(self) -> str:
        """The peer's address without port; "unix:" for a socket file."""
        return self._connection.host

    @property
    def certified(self) -> Certified | None:
        return self._connection.certified

    def trust(self) -> None:
        """For a peer that has proven its identity, or where everybody has all rights."""
        self._http2.budget.trust()

    def charge(self, permits: float) -> None:
        """Charge the peer for work that brought nothing (`core/budget.py`)."""
        if self.status is None:
            asyncio.get_running_loop().call_soon(self._connection.charge, permits)

    # --- reading --------------------------------------------------------------------------------------------

    async def answer(self, answer: Callable[[], T]) -> T:
        line = self._connection.line
        return answer() if line is None else await line.run(answer)

    async def read(self) -> bytes | None:
        """The next message; None once the peer has ended. One reader, before `exchange`."""
        while not self._cut():
            if self._complete:
                return None
            await self._wait()
        message = self._unread.pop(0)
        self._http2.consume(self.id, len(message))
        self._connection.flush_soon()
        return message

    async def drain(self) -> None:
        while await self.read() is not None:
            pass

    async def ended(self) -> None:
        while self.status is None:
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def unbegun(self) -> bool:
        """Whether this end closed the connection before the peer began HTTP/2."""
        closed = self._http2.closed
        return closed is not None and closed.ours and not self._http2.begun

    @property
    def uncut_bytes(self) -> int:
        """Bytes that have arrived, 0 unless a message is whole: else only reading on could make it whole."""
        return 0 if self._reader is None or not self._reader.waiting else self._reader.size

    @property
    def _waits(self) -> bool:
        return bool(self._unread) or (self._reader is not None and self._reader.waiting)

    def _cut(self) -> bool:
        """Cuts messages if there are none; whether there are any."""
        if not self._unread and self._reader is not None and self._reader.waiting:
            self._unread = self._connection.cut(self.id, self._reader, _OFFERED)
        return bool(self._unread)

    # --- frames ---------------------------------------------------------------------------------------------

    async def exchange(self, end: LinkEnd, *, await_end: bool = False) -> None:
        """Pass messages, unread ones included, to `end` and send its frames until the call ends. Raises the
        error that ended the call, if known. Afterwards another call may use `end`.

        `close` makes it send a goodbye and, with `await_end`, wait a little for the peer to end the call.
        """
        from covey.overlay.transport.packets import (
            Goodbye,
            PeerClosedError,
            StreamClosedError,
            encode_goodbye,
        )

        error: Exception | None = None
        try:
            if self._error is None:
                self._begin(end)
                while self._end is not None:
                    await self._wait()
            # The error's traceback leads to the call: if kept, the cycle would keep both, and the last
            # frames, in memory until a full garbage collection.
            error, self._error = self._error, None
            if isinstance(error, StreamClosedError) and not isinstance(error, PeerClosedError):
                self.send(encode_goodbye(Goodbye(error.status, str(error))))
                if await_end:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_GOODBYE_S):
                            await self.drain()
            if error is not None:
                raise error
        finally:
            error = None
            self._finish_exchange()

    def _begin(self, end: LinkEnd) -> None:
        self._end = end
        if self._waits:
            self._held = True
            self._resume_later()
        else:
            self._resume()
        self.wake()

    def _finish_exchange(self) -> None:
        self._end, self._left = None, []
        self._wake_reader()

    def close(self, status: str, reason: str) -> None:
        """End `exchange`, now or once it begins, with a `StreamClosedError`."""
        from covey.overlay.transport.packets import StreamClosedError

        self._fail(StreamClosedError(status, reason))

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._finish_exchange()

    def _resume(self) -> None:
        self._held = False
        if self._end is not None and self._reader is not None:
            self._received(self._reader, time.monotonic_ns())
            self._connection.flush_soon()
        if self._complete and not self._held and self._end is not None:
            self._finish_exchange()

    def _resume_later(self) -> None:
        self._connection.later(self._resume)

    def _received(self, reader: MessageReader, now_ns: int) -> None:
        """What the link's end leaves stays in the peer's window until it is offered again, in order."""
        self._reader, end = reader, self._end
        if end is None:
            self._wake_reader()
            return
        if self._held:
            return
        if reader.alone is not None and not self._unread:
            messages = [reader.alone]
            reader.alone, reader.size = None, 0
            self._processed += PREFIX_BYTES
            if self._connection._waits:
                self._connection._read_on()
        elif self._cut():
            messages = self._unread
        else:
            return
        if end.delay_ns is not None and (delay_ns := end.delay_ns(now_ns)):
            self._unread, self._held = messages, True
            asyncio.get_running_loop().call_later(delay_ns / 1e9, self._resume_later)
            return
        self._unread = []
        self._processed += sum(map(len, messages))
        try:
            while messages:
                frames = self._left or end.decode(messages)
                done = end.receive(frames, now_ns)
                if self._end is not end:  # what it received has closed it
                    messages = []
                    break
                messages, self._left = messages[done:], frames[done:]
                if self._left:
                    break
                if messages:
                    now_ns = time.monotonic_ns()
        except Exception as error:
            self._fail(error)
            messages = []
        if messages or reader.size:
            self._unread, self._held = messages, bool(messages) or reader.waiting
            self._processed -= sum(map(len, messages))
            if self._held:
                self._resume_later()
        if self._processed >= _RETURNED_BYTES or self.status is not None:
            self._return()

    # --- sending --------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._stream is not None and self._stream.queued_bytes < _QUEUED_BYTES

    @property
    def wake(self) -> Callable[[], None]:
        """Requests the link's next frame at the end of this turn of the loop."""
        return partial(self._connection.flush_soon, self)

    def send(self, message: bytes) -> None:
        """Queue a message, without a bound."""
        if self._stream is not None:
            self._http2.send_message(self._stream, message)
            self._connection.flush_soon()

    async def sent(self) -> None:
        """Wait until little is queued, or the call has ended."""
        while self.status is None and not self.writable:
            await self._connection.wait_for_room()

    def end_request(self) -> None:
        self._http2.end_stream(self.id)
        self._connection.flush_soon()

    def finish(self, status: str, details: str = "") -> None:
        """A server ends the call, behind its messages."""
        if self.status is None:
            self._set_ended(status, details)
            self._connection.finish(self.id, status, details)
        self._drop()  # what no exchange has taken of an ended call, too
        self._connection.flush_soon()

    def cancel(self) -> None:
        """A client ends the call at once."""
        if self.status is None:
            self._set_ended("CANCELLED", "cancelled by this end")
            self._connection.cancel(self.id)

    # --- what the protocol calls ----------------------------------------------------------------------------

    def _drop(self) -> None:
        unread = sum(map(len, self._unread)) + (0 if self._reader is None else self._reader.drop())
        self._unread, self._left = [], []
        self._held = False
        self._http2.consume(self.id, unread)

    def _set_complete(self) -> None:
        self._complete = True
        self._wake_reader()
        if self._end is not None and not self._held:
            self._finish_exchange()

    def _return(self) -> None:
        processed, self._processed = self._processed, 0
        self._http2.consume(self.id, processed)
        self._connection.flush_soon()

    def _set_ended(self, status: str, details: str) -> None:
        self._return()
        self._stream = None
        self.status = status
        self.details = details
        if not self._complete:
            self._set_complete()
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class RpcProtocol(asyncio.Protocol):
    """`started` is called with a client's new call, `opened` and `closed` with the connection. Only servers
    have a `line`. `unreached` is why calls fail if the peer never answers. `established` resolves to "" or
    the failure, with TLS after its handshake."""

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
        self._http2 = rpc.http2
        self.line = line
        self._ample = rpc.http2.budget.ample
        """Whether the peer's bytes are handled at once."""
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
        """Bytes that wait in the line; None if none do."""
        self._waits = False
        self._writable = False
        """Whether the connection is established and not ending."""
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
        """`served`: it is the bytes' turn in the line."""
        now_ns = time.monotonic_ns()
        if self._pending is not None or not (served or self.line is None or self._ample(now_ns)):
            self._wait(data)
            return
        http2 = self._http2
        if self.tls is not None:
            data = self.tls.receive(data)
            self._write(self.tls.take_output())
            if not self.established.done() and self.tls.established:
                self._establish()
                self.flush_soon()
        elif not http2.begun and self.rpc.is_client and is_alert(data):
            self._fail(EXPECTS_TLS)
            return
        events = http2.receive(data, now_ns) if data or http2.unread else []
        if events and events[0].__class__ is MessagesReceived:  # alone, as nearly always
            call = self._calls.get(events[0].call_id)
            if call is not None:
                call._received(events[0].reader, now_ns)
        else:
            self._handle(self.rpc.handle(events), now_ns)
            if http2.unread:
                self._wait(b"")
        if self.tls is not None:
            if self.tls.failure:
                self._fail(self.tls.failure)
            elif self.tls.ended:
                self._close_transport()

    def _wait(self, data: bytes) -> None:
        line, transport = self.line, self._transport
        if transport is None or transport.is_closing():
            return
        if line is None:
            self._loop.call_soon(self._serve)
        elif line.full:
            self._http2.faults[ErrorCode.ENHANCE_YOUR_CALM] += 1
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
        """Call after the loop has served other connections."""
        if self.line is None or self._ample(time.monotonic_ns()):
            self._loop.call_soon(self._loop.call_soon, call)
        else:
            self.line.join(call)

    def _read_on(self) -> None:
        """Pause reading while bytes wait for their turn: the system bounds what is unread."""
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
        why = "the connection broke" if self._http2.begun else self._unreached
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
        return None if self.tls is None else self.tls.certified

    # --- what calls use -------------------------------------------------------------------------------------

    def start(self, path: str, timeout_s: float | None, authorization: bytes = b"") -> RpcCall | None:
        """A client's new call; None if the connection takes no more."""
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
        self._handle(self.rpc.charge(permits, time.monotonic_ns()))

    def cut(self, call_id: int, reader: MessageReader, most: int) -> list[bytes]:
        messages = self.rpc.cut(call_id, reader, most, time.monotonic_ns())
        if self._waits:
            self._read_on()
        self._handle(self.rpc.take_events())
        return messages

    def finish(self, call_id: int, status: str, details: str) -> None:
        self._forget(call_id)
        self.rpc.finish(call_id, status, details)
        self._arm()

    def cancel(self, call_id: int) -> None:
        self._forget(call_id)
        self.rpc.cancel(call_id)
        self.flush_soon()

    async def wait_for_room(self) -> None:
        """Wait until something was written or a call has ended."""
        if self._room is None:
            self._room = self._loop.create_future()
        await asyncio.shield(self._room)

    def shut_down(self) -> None:
        """Accept no more calls; close once open ones have ended."""
        self._http2.shut_down()
        self.flush_soon()

    def abort(self) -> None:
        """Close without another byte."""
        self._writable = False
        if self._transport is not None:
            self._transport.abort()

    def forget_transport(self) -> None:
        """For an abandoned attempt to connect: if it had succeeded, uvloop closes the transport without
        notice."""
        self._transport = None
        self._writable = False
        self._timer.cancel()

    def close(self) -> None:
        """Close at once; open calls fail."""
        self._handle(self.rpc.lost("the connection was closed by this end"))
        self._close_transport()

    # --- inside ---------------------------------------------------------------------------------------------

    def _fail(self, why: str) -> None:
        why = f"{'the connection broke' if self._http2.begun else self._unreached}: {why}"
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
        http2 = self._http2
        if not self._flushing and (http2.output or http2.ready or http2.closing or http2.closed is not None):
            self.flush_soon()

    def _forget(self, call_id: int) -> RpcCall | None:
        if self._waits:
            self._loop.call_soon(self._read_on)
        self._woken.pop(call_id, None)
        self._blocked.pop(call_id, None)
        return self._calls.pop(call_id, None)

    def flush_soon(self, woken: RpcCall | None = None) -> None:
        """Write pending output at the end of this turn, and the next frame of `woken`."""
        if woken is not None and woken.status is None:  # or an ended connection would keep the call
            self._woken[woken.id] = woken
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        http2, transport = self._http2, self._transport
        if transport is None or not self._writable:
            self._flushing = False
            if http2.over:
                self._close_transport()
            return
        woken, self._woken = self._woken, {}
        for call in woken.values():  # one frame of each: it is on its way while the next is made
            end, stream = call._end, call._stream
            if end is None or stream is None:
                continue
            if stream.queued_bytes >= _QUEUED_BYTES:
                self._blocked[call.id] = call
                continue
            try:
                frame = end.next_frame()
                if frame is not None:
                    http2.send_message(stream, end.encode(frame, schemas=end.schemas))
            except Exception as error:
                call._fail(error)
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

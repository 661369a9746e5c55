"""One gRPC call on the event loop, at either end. Its messages are read one by one, or are the frames of a
link, which brokers and clients exchange alike.

Frames are handled in the turn of the loop in which they arrive, those that arrived together in one call, and
what they cause is written at the end of that turn. What its end leaves of them waits, unread by flow control,
until the loop has served what else is ready, and as long as the end says. Nothing polls, and nothing is
decided here: an idle connection costs nothing. The exchange ends with its call; the link outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from covey.overlay.core.access.identity import Certified
from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Message
from covey.overlay.http2.messages import PREFIX_BYTES, MessageReader
from covey.overlay.http2.rpc import NO_SECRET, RpcConnection, Secret
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.event_loop import WaitingLine
from covey.overlay.transport.packets import (
    Goodbye,
    PeerClosedError,
    StreamClosedError,
    decode_frames,
    encode_frame,
    encode_goodbye,
)

T = TypeVar("T")

_QUEUED_BYTES = 64 << 10
_OFFERED = 256
"""Messages that are offered to a link at once, however many a window holds."""
_GOODBYE_S = 1.0


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The endpoint of an interface. Times are nanoseconds of the monotonic clock.

    `receive` gets frames and when they arrived, and returns how many it is done with: the others are to be
    received again. What it raises ends the connection. `next_frame` has the frame to send, if there is one;
    with `schemas` its subscriptions carry their event types. `delay_ns` is how long what has arrived by now
    has to wait, 0 if it may be received.
    """

    receive: Callable[[list[Frame[WireMessage]], int], int]
    next_frame: Callable[[], Frame[Message] | None]
    schemas: bool
    delay_ns: Callable[[int], int] | None = None


class Carrier(Protocol):
    """The connection of a call."""

    rpc: RpcConnection
    peer: str
    host: str
    line: WaitingLine | None

    @property
    def certified(self) -> Certified | None: ...
    def cut(self, call_id: int, reader: MessageReader, most: int) -> list[bytes]: ...
    def flush_soon(self, woken: RpcCall | None = None) -> None: ...
    def finish(self, call_id: int, status: str, details: str) -> None: ...
    def cancel(self, call_id: int) -> None: ...
    def block(self, call: RpcCall) -> None: ...
    async def wait_for_room(self) -> None: ...
    def charge(self, permits: float) -> None: ...
    def later(self, call: Callable[[], None]) -> None: ...


class RpcCall:
    """Messages wait for `read`, or are frames that `exchange` passes on. A call that has ended has a `status`
    and `details`; what is sent on it then is lost. One task at a time waits. `authorization` is that metadata
    of a client.
    """

    def __init__(self, carrier: Carrier, call_id: int, path: str, authorization: Secret = NO_SECRET) -> None:
        self.id = call_id
        self.path = path
        self.authorization = authorization
        self.status: str | None = None
        self.details = ""
        self._carrier = carrier
        self._http2 = carrier.rpc.http2
        self._stream = self._http2.stream(call_id)
        self._held = False
        self._reader: MessageReader | None = None
        self._unread: list[bytes] = []
        self._complete = False
        self._waiter: asyncio.Future[None] | None = None
        self._end: LinkEnd | None = None
        """What gets the frames, while they are exchanged."""
        self._left: list[Frame[WireMessage]] = []
        """The first of the unread messages, decoded."""
        self._exchanged: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        """Why this end ends the exchange."""

    @property
    def peer(self) -> str:
        return self._carrier.peer

    @property
    def host(self) -> str:
        """The address of the peer without its port; "unix:" for a socket file."""
        return self._carrier.host

    @property
    def certified(self) -> Certified | None:
        """What the verified certificate of the peer says; None without one."""
        return self._carrier.certified

    def trust(self) -> None:
        """The peer has proven who it is, or everybody may do everything."""
        self._http2.budget.trust()

    def charge(self, permits: float) -> None:
        """What the peer has sent has made so much work, and brought nothing (`core/budget.py`)."""
        if self.status is None:
            self._carrier.charge(permits)

    # --- reading --------------------------------------------------------------------------------------------

    async def answer(self, answer: Callable[[], T]) -> T:
        """What is computed for a client, when it is its turn."""
        line = self._carrier.line
        return answer() if line is None else await line.run(answer)

    async def read(self) -> bytes | None:
        """The next message; None once the peer sends no more. For one reader, before frames are exchanged."""
        while not self._cut():
            if self._complete:
                return None
            await self._wait()
        message = self._unread.pop(0)
        self._http2.consume(self.id, len(message))
        self._carrier.flush_soon()
        return message

    async def drain(self) -> None:
        """Until the peer sends no more. Messages that come meanwhile are dropped."""
        while await self.read() is not None:
            pass

    async def ended(self) -> None:
        """Until the call has a status."""
        while self.status is None:
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def uncut_bytes(self) -> int:
        """Of messages that have arrived, if one is whole: else none could be cut before more is read."""
        return 0 if self._reader is None or not self._reader.waiting else self._reader.size

    @property
    def _waits(self) -> bool:
        return bool(self._unread) or (self._reader is not None and self._reader.waiting)

    def _cut(self) -> bool:
        """Have some of the messages that have arrived; whether there are any."""
        if not self._unread and self._reader is not None and self._reader.waiting:
            self._unread = self._carrier.cut(self.id, self._reader, _OFFERED)
        return bool(self._unread)

    # --- frames ---------------------------------------------------------------------------------------------

    async def exchange(self, end: LinkEnd, *, await_end: bool = False) -> None:
        """Pass all messages, those that have not been read included, to the end of a link, and send its
        frames, until the call ends. Raises the error that ended it, if it is known.

        One that is closed sends a goodbye, and with `await_end` waits a little for the peer to end the call.
        The end is not touched afterwards: another call may use it.
        """
        self._exchanged = asyncio.get_running_loop().create_future()
        error: Exception | None = None
        try:
            if self._error is None:
                self._begin(end)
                await self._exchanged
            # Nothing keeps the error, whose traceback leads to the call: a reference cycle would keep both,
            # and the frames that arrived last, in memory until a full garbage collection.
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
        if self._exchanged is not None and not self._exchanged.done():
            self._exchanged.set_result(None)

    def close(self, status: str, reason: str) -> None:
        """End `exchange`, now or once it begins, with a `StreamClosedError`."""
        self._fail(StreamClosedError(status, reason))

    def _fail(self, error: Exception) -> None:
        if self._error is None and (self._exchanged is None or not self._exchanged.done()):
            self._error = error
            self._finish_exchange()

    def _resume(self) -> None:
        """Offer the end of the link what it has not received, some at a time."""
        self._held = False
        if self._end is not None and self._cut():
            offered = self._unread
            self._unread = self._offer(self._end, offered, time.monotonic_ns())
            taken = len(offered) - len(self._unread)
            self._http2.consume(self.id, sum(map(len, offered[:taken])))
            self._held = self._waits
            if self._held and not self._unread:
                self._resume_later()
            self._carrier.flush_soon()
        if self._complete and not self._held and self._end is not None:
            self._finish_exchange()

    def _resume_later(self) -> None:
        """As `_resume`, once the loop has served others."""
        self._carrier.later(self._resume)

    def _offer(self, end: LinkEnd, messages: list[bytes], now_ns: int) -> list[bytes]:
        """Pass messages on, in order; returns those that are left, which are offered again with those that
        come meanwhile. Until then they fill the peer's window.
        """
        if end.delay_ns is not None and (delay_ns := end.delay_ns(now_ns)):
            asyncio.get_running_loop().call_later(delay_ns / 1e9, self._resume_later)
            return messages
        try:
            while True:
                frames = self._left or decode_frames(messages)
                done = end.receive(frames, now_ns)
                if self._end is not end:  # what it received has closed it
                    return []
                messages, self._left = messages[done:], frames[done:]
                if not messages:
                    return messages
                if self._left:
                    break
                now_ns = time.monotonic_ns()
        except Exception as error:
            self._fail(error)
            return []
        self._resume_later()
        return messages

    # --- sending --------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether less is queued than the peer should be sent at once."""
        stream = self._stream
        return self.status is None and stream is not None and stream.queued_bytes < _QUEUED_BYTES

    @property
    def wake(self) -> Callable[[], None]:
        """Sends the frame that the link has, at the end of this turn of the loop."""
        return partial(self._carrier.flush_soon, self)

    def send(self, message: bytes) -> None:
        """Queue a message, however much is queued."""
        if self.status is None and self._stream is not None:
            self._http2.send_message(self._stream, message)
            self._carrier.flush_soon()

    async def sent(self) -> None:
        """Until little is queued, or the call has ended."""
        while self.status is None and not self.writable:
            await self._carrier.wait_for_room()

    def end_request(self) -> None:
        """A client sends no more messages."""
        self._carrier.rpc.end_request(self.id)
        self._carrier.flush_soon()

    def finish(self, status: str, details: str = "") -> None:
        """A server ends the call, behind its messages."""
        if self.status is None:
            self._set_ended(status, details)
            self._http2.consume(self.id, self._drop())
            self._carrier.finish(self.id, status, details)

    def cancel(self) -> None:
        """A client ends the call at once."""
        if self.status is None:
            self._set_ended("CANCELLED", "cancelled by this end")
            self._carrier.cancel(self.id)

    # --- what the protocol calls ----------------------------------------------------------------------------

    def _drop(self) -> int:
        """Drop what has arrived and was not read; returns its bytes."""
        unread = sum(map(len, self._unread)) + (0 if self._reader is None else self._reader.drop())
        self._unread, self._left = [], []
        self._held = False
        return unread

    def _received(self, reader: MessageReader, now_ns: int) -> None:
        self._reader = reader
        if self._end is None:
            self._wake_reader()
        elif not self._held:
            if reader.alone is None or self._unread:
                self._resume()
                return
            message = reader.alone[PREFIX_BYTES:]
            reader.alone, reader.size = None, 0
            self._unread = self._offer(self._end, [message], now_ns)
            self._held = bool(self._unread)
            self._http2.consume(self.id, PREFIX_BYTES + (0 if self._held else len(message)))

    def _set_complete(self) -> None:
        self._complete = True
        self._wake_reader()
        if self._end is not None and not self._held:
            self._finish_exchange()

    def _set_ended(self, status: str, details: str) -> None:
        self.status = status
        self.details = details
        if not self._complete:
            self._set_complete()
        self._wake_reader()

    def _fill(self) -> None:
        """Send one frame: it is on its way while the next is made."""
        end, stream = self._end, self._stream
        if end is None or stream is None or self.status is not None:
            return
        if stream.queued_bytes >= _QUEUED_BYTES:
            self._carrier.block(self)
            return
        try:
            frame = end.next_frame()
            if frame is not None:
                self._http2.send_message(stream, encode_frame(frame, schemas=end.schemas))
        except Exception as error:
            self._fail(error)

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

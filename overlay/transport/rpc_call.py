"""One gRPC call on the event loop, at either end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from covey.overlay.core.access.identity import Certified
from covey.overlay.http2.messages import PREFIX_BYTES, MessageReader
from covey.overlay.http2.rpc import NO_SECRET, RpcConnection, Secret
from covey.overlay.transport.waiting_line import WaitingLine

T = TypeVar("T")

_QUEUED_BYTES = 64 << 10
_OFFERED = 256
"""Messages that a receiver is offered at once, however many a window holds."""


class Receiver(Protocol):
    """What takes the messages of a call in the turn of the loop in which they arrive."""

    def take(self, messages: list[bytes], now_ns: int) -> list[bytes]:
        """Messages that were read, in order, and when; returns those that were not taken. They are offered
        again after `resume`, with those that have come meanwhile; until then they fill the peer's window.
        """
        ...

    def fill(self) -> bytes | None:
        """The message to send, if there is one; `wake` the call if there is another."""
        ...

    def ended(self) -> None:
        """No more messages come."""
        ...


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
    def trust(self) -> None: ...
    def charge(self, permits: float) -> None: ...
    def later(self, call: Callable[[], None]) -> None: ...


class RpcCall:
    """Messages wait for `read`, or go to a receiver. A call that has ended has a `status` and `details`; what
    is sent on it then is lost. One task at a time waits. `authorization` is that metadata of a client.
    """

    def __init__(
        self, carrier: Carrier, call_id: int, path: str, authorization: Secret = NO_SECRET
    ) -> None:
        self.id = call_id
        self.path = path
        self.authorization = authorization
        self.status: str | None = None
        self.details = ""
        self._carrier = carrier
        self._http2 = carrier.rpc.http2
        self._stream = self._http2.stream(call_id)
        self._receiver: Receiver | None = None
        self._held = False
        self._reader: MessageReader | None = None
        self._unread: list[bytes] = []
        self._complete = False
        self._waiter: asyncio.Future[None] | None = None

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
        self._carrier.trust()

    def charge(self, permits: float) -> None:
        """What the peer has sent has made so much work, and brought nothing (`core/budget.py`)."""
        if self.status is None:
            self._carrier.charge(permits)

    # --- receiving ------------------------------------------------------------------------------------------

    async def answer(self, answer: Callable[[], T]) -> T:
        """What is computed for a client, when it is its turn."""
        line = self._carrier.line
        return answer() if line is None else await line.run(answer)

    async def read(self) -> bytes | None:
        """The next message; None once the peer sends no more. For one reader, before there is a receiver."""
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

    def attach(self, receiver: Receiver) -> None:
        """Pass all messages to a receiver, those that have not been read included."""
        self._receiver = receiver
        if self._waits:
            self._held = True
            self.resume_later()
        else:
            self.resume()
        self.wake()

    def detach(self) -> None:
        self._receiver = None

    def resume(self) -> None:
        """Offer the receiver what it could not take, some at a time."""
        self._held = False
        if self._receiver is not None and self._cut():
            offered = self._unread
            self._unread = self._receiver.take(offered, time.monotonic_ns())
            taken = len(offered) - len(self._unread)
            self._http2.consume(self.id, sum(map(len, offered[:taken])))
            self._held = self._waits
            if self._held and not self._unread:
                self.resume_later()
            self._carrier.flush_soon()
        if self._complete and not self._held and self._receiver is not None:
            self._receiver.ended()

    def resume_later(self) -> None:
        """As `resume`, once the loop has served others."""
        self._carrier.later(self.resume)

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

    # --- sending --------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether less is queued than the peer should be sent at once."""
        stream = self._stream
        return self.status is None and stream is not None and stream.queued_bytes < _QUEUED_BYTES

    @property
    def wake(self) -> Callable[[], None]:
        """Has the receiver send what it has, at the end of this turn of the loop."""
        return partial(self._carrier.flush_soon, self)

    def send(self, message: bytes) -> None:
        """Queue a message, however much is queued."""
        if self.status is None and self._stream is not None:
            self._http2.sender.send_message(self._stream, message)
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
        self._unread = []
        self._held = False
        return unread

    def _received(self, reader: MessageReader, now_ns: int) -> None:
        self._reader = reader
        if self._receiver is None:
            self._wake_reader()
        elif not self._held:
            message = None if self._unread else reader.cut_alone()
            if message is None:
                self.resume()
            else:
                self._unread = self._receiver.take([message], now_ns)
                self._held = bool(self._unread)
                self._http2.consume(self.id, PREFIX_BYTES + (0 if self._held else len(message)))

    def _set_complete(self) -> None:
        self._complete = True
        self._wake_reader()
        if self._receiver is not None and not self._held:
            self._receiver.ended()

    def _set_ended(self, status: str, details: str) -> None:
        self.status = status
        self.details = details
        if not self._complete:
            self._set_complete()
        self._wake_reader()

    def _fill(self) -> None:
        if self._receiver is None or self.status is not None or self._stream is None:
            return
        if self._stream.queued_bytes >= _QUEUED_BYTES:
            self._carrier.block(self)
        elif (message := self._receiver.fill()) is not None:
            self._http2.sender.send_message(self._stream, message)

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

"""Moves the frames of one link over one call; brokers and clients use it alike.

A frame is handled in the turn of the loop in which it arrives, and what it causes is written at the end of
that turn; a timer sends acknowledgements that no frame has carried. Nothing polls: an idle connection costs
nothing. The pump ends with its call; the link outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from covey.overlay.core.link.link import Frame, Link
from covey.overlay.core.messages import Acknowledge, Message
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.errors import CallError
from covey.overlay.transport.packets import Goodbye, Greeting, decode_packet, encode_frame, encode_goodbye
from covey.overlay.transport.rpc_call import RpcCall

_GOODBYE_S = 1.0
_BUSY_S = 0.005


class StreamClosedError(CallError):
    """This side ends the connection deliberately."""


class PeerClosedError(StreamClosedError):
    """The peer ended the connection deliberately, with a goodbye."""


class Pump:
    """The life of one connection of a link.

    `take` gets the messages of every frame that arrives, in wire form, and must not wait; `received` is
    called after each frame. `prepare` is called before the next frame is built, to queue more; `sent` gets
    every frame that is written.

    Nothing is taken while `busy()` is true. A closed pump does not touch its link: another pump may use it.
    """

    def __init__(
        self,
        link: Link,
        call: RpcCall,
        take: Callable[[tuple[WireMessage | Acknowledge, ...]], None],
        *,
        received: Callable[[], None],
        schemas: bool,
        prepare: Callable[[], None] | None = None,
        sent: Callable[[Frame[Message]], None] | None = None,
        await_end: bool = False,
        busy: Callable[[], bool] | None = None,
    ) -> None:
        self._link = link
        self._call = call
        self._take = take
        self._received = received
        self._prepare = prepare
        self._sent = sent
        self._schemas = schemas
        self._await_end = await_end
        self._busy = busy
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Call when there may be something to write."""
        if self._prepare is not None or self._link.ready:
            self._call.wake()

    def close(self, status: str, reason: str) -> None:
        """End `run` with a `StreamClosedError`."""
        self._fail(StreamClosedError(status, reason))

    def _fail(self, error: Exception) -> None:
        if not self._closed.done():
            self._closed.set_exception(error)

    async def run(self) -> None:
        """Read and write until the call ends; raises the error that ended it, if it is known.

        A pump that is closed sends a goodbye, and waits a little for the peer to end the call.
        """
        self._call.attach(self)
        try:
            await self._closed
        except PeerClosedError:
            raise
        except StreamClosedError as error:
            say_goodbye(self._call, error.status, str(error))
            if self._await_end:
                self._call.detach()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GOODBYE_S):
                        await self._call.drain()
            raise
        finally:
            self._call.detach()
            self._closed.cancel()
            if self._timer is not None:
                self._timer.cancel()

    # --- what the call calls --------------------------------------------------------------------------------

    def take(self, messages: list[bytes]) -> bool:
        if self._closed.done():
            return True
        if self._busy is not None and self._busy():
            self._loop.call_later(_BUSY_S, self._call.resume)
            return False
        try:
            for message in messages:
                self._receive(message)
        except Exception as error:
            self._fail(error)
        return True

    def fill(self) -> None:
        try:
            self._write()
        except Exception as error:
            self._fail(error)

    def ended(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def _receive(self, message: bytes) -> None:
        packet = decode_packet(message)
        if isinstance(packet, Goodbye):
            raise PeerClosedError(packet.status, packet.reason)
        if isinstance(packet, Greeting):
            raise StreamClosedError(
                "INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame"
            )
        link = self._link
        now_ns = time.monotonic_ns()
        messages = link.receive(packet, now_ns)
        if messages:
            self._take(messages)
        self._received()
        due_ns = link.next_timer()
        if self._timer is None and due_ns is not None:
            self._timer = self._loop.call_later((due_ns - now_ns) / 1e9, self._on_timer)
        self.wake()

    def _on_timer(self) -> None:
        self._timer = None
        if not self._closed.done():
            now_ns = time.monotonic_ns()
            self._link.handle_timer(now_ns)
            due_ns = self._link.next_timer()
            if due_ns is not None:
                self._timer = self._loop.call_later(max(0, due_ns - now_ns) / 1e9, self._on_timer)
            self.wake()

    def _write(self) -> None:
        """One frame: it is on its way while the next is made."""
        if self._closed.done() or not self._call.writable:
            return
        if self._prepare is not None:
            self._prepare()
        frame = self._link.next_frame()
        if frame is None:
            return
        if self._sent is not None:
            self._sent(frame)
        self._call.send(encode_frame(frame, schemas=self._schemas))
        self.wake()


def say_goodbye(call: RpcCall, status: str, reason: str) -> None:
    """Send the peer the reason why the connection ends."""
    call.send(encode_goodbye(Goodbye(status, reason)))

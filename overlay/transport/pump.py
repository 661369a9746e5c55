"""Moves the frames of one interface over one call; brokers and clients use it alike.

Frames are handled in the turn of the loop in which they arrive, those that arrived together in one call, and
what they cause is written at the end of that turn. What its end leaves of them waits, unread by flow control,
until the loop has served what else is ready, and as long as the end says. Nothing polls, and nothing is
decided here: an idle connection costs nothing. The pump ends with its call; the link outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Message
from covey.overlay.transport.call_error import CallError
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.errors import MalformedPacketError
from covey.overlay.transport.packets import Goodbye, Greeting, decode_packet, encode_frame, encode_goodbye
from covey.overlay.transport.rpc_call import RpcCall

_GOODBYE_S = 1.0
_DECODED_BYTES = 32 << 10
"""Of frames, from which on no further frame is decoded before those are received."""


class StreamClosedError(CallError):
    """This side ends the connection deliberately."""


class PeerClosedError(StreamClosedError):
    """The peer ended the connection deliberately, with a goodbye."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The endpoint of an interface, as a pump sees it. Times are nanoseconds of the monotonic clock.

    `delay_ns` is how long what has arrived by now has to wait, 0 if it may be received. `receive` gets frames
    and when they arrived, and returns how many it is done with: the others are to be received again. What it
    raises ends the connection. `next_frame` wakes the pump if there is another.
    """

    delay_ns: Callable[[int], int]
    receive: Callable[[list[Frame[WireMessage]], int], int]
    next_frame: Callable[[], Frame[Message] | None]


class Pump:
    """The life of one connection. A closed pump does not touch its end: another pump may use it.

    `wake` is to be called when there may be something to write.
    """

    def __init__(self, end: LinkEnd, call: RpcCall, *, schemas: bool, await_end: bool = False) -> None:
        self._end = end
        self._call = call
        self.wake = call.wake
        self._schemas = schemas
        self._await_end = await_end
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._left: list[Frame[WireMessage]] = []
        """The first of the messages that its end has left, decoded."""

    def close(self, status: str, reason: str) -> None:
        """End `run` with a `StreamClosedError`."""
        self._fail(StreamClosedError(status, reason))

    def _fail(self, error: Exception) -> None:
        if not self._closed.done():
            self._error = error
            self.ended()

    async def run(self) -> None:
        """Read and write until the call ends; raises the error that ended it, if it is known.

        A pump that is closed sends a goodbye, and waits a little for the peer to end the call.
        """
        if not self._closed.done():
            self._call.attach(self)
        error: Exception | None = None
        try:
            await self._closed
            # Nothing keeps the error, whose traceback leads to the pump: a reference cycle would keep both,
            # and the frames that arrived last, in memory until a full garbage collection.
            error, self._error = self._error, None
            if isinstance(error, StreamClosedError) and not isinstance(error, PeerClosedError):
                await self._leave(error)
            if error is not None:
                raise error
        finally:
            error = None
            self._call.detach()
            self._closed.cancel()

    async def _leave(self, error: StreamClosedError) -> None:
        say_goodbye(self._call, error.status, str(error))
        if self._await_end:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._call.drain()

    # --- what the call calls --------------------------------------------------------------------------------

    def take(self, messages: list[bytes], now_ns: int) -> list[bytes]:
        delay_ns = self._end.delay_ns(now_ns)
        if delay_ns:
            self._loop.call_later(delay_ns / 1e9, self._call.resume_later)
            return messages
        try:
            while True:
                frames = self._left or _decode(messages)
                done = self._end.receive(frames, now_ns)
                messages, self._left = messages[done:], frames[done:]
                if not messages:
                    return messages
                if self._left:
                    break
                now_ns = time.monotonic_ns()
        except Exception as error:
            self._fail(error)
            return []
        self._call.resume_later()
        return messages

    def fill(self) -> bytes | None:
        """One frame: it is on its way while the next is made."""
        try:
            frame = self._end.next_frame()
            return None if frame is None else encode_frame(frame, schemas=self._schemas)
        except Exception as error:
            self._fail(error)
            return None

    def ended(self) -> None:
        self._call.detach()
        if not self._closed.done():
            self._closed.set_result(None)


def _decode(messages: list[bytes]) -> list[Frame[WireMessage]]:
    """The frames of the first messages. Raises for a message that ends the connection once it is the first:
    what comes before it counts.
    """
    frames: list[Frame[WireMessage]] = []
    size = 0
    for message in messages:
        try:
            packet = decode_packet(message)
            if not isinstance(packet, Frame):
                raise _end_of(packet)
        except (CallError, MalformedPacketError):
            if not frames:
                raise
            break
        frames.append(packet)
        size += len(message)
        if size >= _DECODED_BYTES:
            break
    return frames


def _end_of(packet: Greeting | Goodbye) -> StreamClosedError:
    """Why a packet that is no frame ends the connection."""
    if isinstance(packet, Goodbye):
        return PeerClosedError(packet.status, packet.reason)
    return StreamClosedError("INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame")


def say_goodbye(call: RpcCall, status: str, reason: str) -> None:
    """Send the peer the reason why the connection ends."""
    call.send(encode_goodbye(Goodbye(status, reason)))

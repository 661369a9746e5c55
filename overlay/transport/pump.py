"""Moves the frames of one interface over one call; brokers and clients use it alike.

Frames are handled in the turn of the loop in which they arrive, those that arrived together in one call, and
what they cause is written at the end of that turn. What its end leaves of them waits, unread by flow control,
until the loop has served what else is ready, and as long as the end says. Nothing polls, and nothing is
decided here: an idle connection costs nothing. The pump ends with its call; the link outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice
from typing import Protocol

from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Message
from covey.overlay.transport.call_error import CallError
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.errors import MalformedPacketError
from covey.overlay.transport.packets import Goodbye, Greeting, decode_packet, encode_frame, encode_goodbye
from covey.overlay.transport.rpc_call import RpcCall

_GOODBYE_S = 1.0
_DECODED = 256
"""From how many frames and messages on no further frame is decoded before those are received."""


class StreamClosedError(CallError):
    """This side ends the connection deliberately."""


class PeerClosedError(StreamClosedError):
    """The peer ended the connection deliberately, with a goodbye."""


class LinkEnd(Protocol):
    """The endpoint of an interface, as a pump sees it. What `receive` raises ends the connection."""

    @property
    def ready(self) -> bool:
        """Whether `next_frame` may return one."""
        ...

    def delay_s(self) -> float:
        """How long what has arrived has to wait, 0 if it may be received now."""
        ...

    def receive(self, frames: list[Frame[WireMessage]]) -> int:
        """Returns how many frames it is done with; the others are to be received again."""
        ...

    def next_frame(self) -> Frame[Message] | None: ...


class Pump:
    """The life of one connection. A closed pump does not touch its end: another pump may use it."""

    def __init__(self, end: LinkEnd, call: RpcCall, *, schemas: bool, await_end: bool = False) -> None:
        self._end = end
        self._call = call
        self._schemas = schemas
        self._await_end = await_end
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._left: list[Frame[WireMessage]] = []
        """The first of the messages that its end has left, decoded."""

    def wake(self) -> None:
        """Call when there may be something to write."""
        self._call.wake()

    def close(self, status: str, reason: str) -> None:
        """End `run` with a `StreamClosedError`."""
        self._fail(StreamClosedError(status, reason))

    def _fail(self, error: Exception) -> None:
        if not self._closed.done():
            self._error = error
            self._closed.set_result(None)

    async def run(self) -> None:
        """Read and write until the call ends; raises the error that ended it, if it is known.

        A pump that is closed sends a goodbye, and waits a little for the peer to end the call.
        """
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
            self._call.detach()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._call.drain()

    # --- what the call calls --------------------------------------------------------------------------------

    def take(self, messages: list[bytes]) -> int:
        if self._closed.done():
            return len(messages)
        delay_s = self._end.delay_s()
        if delay_s:
            self._loop.call_later(delay_s, self._call.resume_later)
            return 0
        taken = 0
        try:
            while taken < len(messages):
                taken += self._receive(messages, taken)
                if self._left:
                    break
        except Exception as error:
            self._fail(error)
            return len(messages)
        if taken < len(messages):
            self._call.resume_later()
        return taken

    def fill(self) -> None:
        """One frame: it is on its way while the next is made."""
        if self._closed.done() or not self._call.writable:
            return
        try:
            frame = self._end.next_frame()
            if frame is not None:
                self._call.send(encode_frame(frame, schemas=self._schemas))
                if self._end.ready:
                    self.wake()
        except Exception as error:
            self._fail(error)

    def ended(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def _receive(self, messages: list[bytes], start: int) -> int:
        """Receive some of the messages from `start` on; returns how many are done with."""
        frames, self._left = self._left, []
        count = sum(1 + len(frame.messages) for frame in frames)
        error: Exception | None = None
        try:
            for message in islice(messages, start + len(frames), None):
                if count >= _DECODED:
                    break
                packet = decode_packet(message)
                if isinstance(packet, Goodbye):
                    raise PeerClosedError(packet.status, packet.reason)
                if isinstance(packet, Greeting):
                    raise StreamClosedError(
                        "INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame"
                    )
                frames.append(packet)
                count += 1 + len(packet.messages)
        except (CallError, MalformedPacketError) as wrong:
            error = wrong  # what came before it counts
        done = self._end.receive(frames) if frames else 0
        if done < len(frames):
            self._left = frames[done:]
        elif error is not None:
            try:
                raise error
            finally:
                error = None  # its traceback has this frame
        return done


def say_goodbye(call: RpcCall, status: str, reason: str) -> None:
    """Send the peer the reason why the connection ends."""
    call.send(encode_goodbye(Goodbye(status, reason)))

"""Moves the frames of one link over one connection; brokers and clients use it alike.

One loop reads, one writes, and a timer sends acknowledgements that no frame has carried. Nothing polls: an
idle connection costs nothing. The pump ends with its connection; the link outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import grpc
import grpc.aio

from covey.matcher.errors import CoveyError
from covey.overlay.core.link.link import Frame, Link
from covey.overlay.core.messages import Message
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.packets import Goodbye, Greeting, decode_packet, encode_frame, encode_goodbye

STREAM_ERRORS = (asyncio.InvalidStateError, grpc.aio.BaseError, grpc.RpcError, OSError)
"""What reading from a stream that has ended, or writing to it, may raise."""

ACKNOWLEDGE_AFTER_S = 0.01
ACCEPT_AFTER_S = 0.001
"""After how long a broker acknowledges events of a client. Not at once: meanwhile the client's events
gather. Acknowledged at once, 1,000 single events a second through a chain of three brokers, each with a
thousand other subscriptions, took 12 ms; delayed they take 4 ms, as brokers handle half as many frames. 2 ms
is no better."""

_LEARN_WHY_S = 1.0
_GOODBYE_S = 1.0
_BUSY_S = 0.005


class Connection(Protocol):
    """What both ends of a bidirectional gRPC stream have in common."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


class StreamClosedError(CoveyError):
    """This side ends the connection deliberately; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class PeerClosedError(StreamClosedError):
    """The peer ended the connection deliberately, with a goodbye."""


class Pump:
    """The life of one connection of a link.

    `take` gets the messages of every frame that arrives, in wire form, and must not wait; `received` is
    called after each frame. `prepare` is called before the next frame is built, to queue more; `sent` gets
    every frame that is written.

    Nothing is read while `busy()` is true. A closed pump does not touch its link: another pump may use it.
    """

    def __init__(
        self,
        link: Link,
        connection: Connection,
        take: Callable[[tuple[WireMessage, ...]], None],
        *,
        received: Callable[[], None],
        schemas: bool,
        prepare: Callable[[], None] | None = None,
        sent: Callable[[Frame[Message]], None] | None = None,
        acknowledge_after_s: float = ACKNOWLEDGE_AFTER_S,
        await_end: bool = False,
        busy: Callable[[], bool] | None = None,
    ) -> None:
        self._link = link
        self._connection = connection
        self._take = take
        self._received = received
        self._prepare = prepare
        self._sent = sent
        self._closing = False
        self._schemas = schemas
        self._acknowledge_after_s = acknowledge_after_s
        self._await_end = await_end
        self._busy = busy
        self._work = asyncio.Event()
        self._work.set()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Call when there may be something to write."""
        if not self._work.is_set() and (self._prepare is not None or self._link.ready):
            self._work.set()

    def close(self, status: str, reason: str) -> None:
        """End `run` with a `StreamClosedError`."""
        self._closing = True
        if not self._closed.done():
            self._closed.set_exception(StreamClosedError(status, reason))

    async def run(self) -> None:
        """Read and write until the stream ends; raises the error that ended it, if it is known.

        A pump that is closed sends a goodbye, and waits a little for the peer to end the stream.
        """
        reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self._write())
        try:
            await asyncio.wait({reader, writer, self._closed}, return_when=asyncio.FIRST_COMPLETED)
            if not self._closed.done() and not reader.done():
                # Only reading raises the reason of a failed write.
                await asyncio.wait({reader, self._closed}, timeout=_LEARN_WHY_S)
            if self._closed.done():
                await self._say_goodbye(reader, writer)
            for task in (self._closed, reader, writer):
                if task.done():
                    task.result()
        finally:
            self._closing = True
            if self._timer is not None:
                self._timer.cancel()
            self._closed.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _say_goodbye(self, reader: asyncio.Task[None], writer: asyncio.Task[None]) -> None:
        error = self._closed.exception()
        assert isinstance(error, StreamClosedError)
        # Let the pending write finish: cancelling it would fail the goodbye, as would cancelling a read
        # (gRPC's client then cancels the call).
        self._work.set()
        await asyncio.wait({writer}, timeout=_GOODBYE_S)
        await say_goodbye(self._connection, error.status, str(error))
        if self._await_end:
            await asyncio.wait({reader}, timeout=_GOODBYE_S)

    async def _read(self) -> None:
        while True:
            while self._busy is not None and self._busy():
                await asyncio.sleep(_BUSY_S)
            data = await self._connection.read()
            if data is grpc.aio.EOF:
                return
            if self._closing:
                continue
            packet = decode_packet(data)
            if isinstance(packet, Goodbye):
                raise PeerClosedError(packet.status, packet.reason)
            if isinstance(packet, Greeting):
                raise StreamClosedError(
                    "INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame"
                )
            self._receive(packet)

    def _receive(self, frame: Frame[WireMessage]) -> None:
        link = self._link
        messages = link.receive(frame)
        if messages:
            self._take(messages)
        self._received()
        if self._timer is None and link.acknowledgement_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._acknowledge_after_s, self._acknowledge)
        self.wake()

    def _acknowledge(self) -> None:
        self._timer = None
        if self._closing:
            return
        self._link.acknowledge()
        self.wake()

    async def _write(self) -> None:
        link = self._link
        while not self._closing:
            if self._prepare is not None:
                self._prepare()
            frame = link.next_frame()
            if frame is None:
                self._work.clear()
                await self._work.wait()
            else:
                if self._sent is not None:
                    self._sent(frame)
                data = encode_frame(frame, schemas=self._schemas)
                try:
                    await self._connection.write(data)
                except grpc.RpcError:
                    raise  # it has the reason
                except STREAM_ERRORS:
                    raise StreamClosedError("UNAVAILABLE", "the connection broke") from None


async def say_goodbye(connection: Connection, status: str, reason: str) -> None:
    """Send the peer the reason why the connection ends, if the stream still takes it."""
    with contextlib.suppress(TimeoutError, *STREAM_ERRORS):
        async with asyncio.timeout(_GOODBYE_S):
            await connection.write(encode_goodbye(Goodbye(status, reason)))

"""Moves the frames of one link over one connection; brokers and clients use it alike.

Two loops, one that reads and one that writes, and a timer for acknowledgements that found no frame to ride
on. Nothing polls: an idle connection costs nothing. The pump ends when the connection does; the link
outlives it. DESIGN section 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import grpc.aio

from covey.matcher.errors import CoveyError
from covey.overlay.core.link import Frame, Link
from covey.overlay.core.messages import Message
from covey.overlay.node.codec import Greeting, WireMessage, decode_packet, encode_frame

ACKNOWLEDGE_AFTER_S = 0.01
_LEARN_WHY_S = 1.0


class Connection(Protocol):
    """What both ends of a bidirectional gRPC stream have in common."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


class ClosedError(CoveyError):
    """The pump was told to end; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Pump:
    """The life of one connection of a link.

    `take` gets the messages of every frame that arrives, in wire form, and must not wait. `prepare` is
    called before the link is asked for a frame: what was held back may then be queued; `sent` gets every
    frame that is written.

    Once closed, a pump touches its link no more: another one may have taken it over.
    """

    def __init__(
        self,
        link: Link,
        connection: Connection,
        take: Callable[[tuple[WireMessage, ...]], None],
        *,
        heard: Callable[[], None],
        prepare: Callable[[], None] | None = None,
        sent: Callable[[Frame[Message]], None] | None = None,
        schemas: bool = False,
        acknowledge_at_once: bool = False,
    ) -> None:
        self._link = link
        self._connection = connection
        self._take = take
        self._heard = heard
        self._prepare = prepare
        self._sent = sent
        self._over = False
        self._schemas = schemas
        self._acknowledge_at_once = acknowledge_at_once
        self._work = asyncio.Event()
        self._work.set()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """There may be something to write."""
        if self._prepare is not None or self._link.ready:
            self._work.set()

    def close(self, status: str, reason: str) -> None:
        """End `run` with a `ClosedError`."""
        self._over = True
        if not self._closed.done():
            self._closed.set_exception(ClosedError(status, reason))

    async def run(self) -> None:
        """Read and write until the peer ends the stream; raises what ended it otherwise."""
        reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self._write())
        try:
            await asyncio.wait({reader, writer, self._closed}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed.done():
                self._closed.result()
            if not reader.done():
                # Why a write failed, only the reader learns.
                await asyncio.wait({reader, self._closed}, timeout=_LEARN_WHY_S)
            if reader.done():
                reader.result()
            else:
                writer.result()
        finally:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            self._closed.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            data = await self._connection.read()
            if self._over or data is grpc.aio.EOF:
                return
            packet = decode_packet(data)
            if isinstance(packet, Greeting):
                raise ClosedError("INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame")
            self._receive(packet)

    def _receive(self, frame: Frame[WireMessage]) -> None:
        link = self._link
        messages = link.receive(frame)
        if messages:
            self._take(messages)
            if self._acknowledge_at_once:
                link.acknowledge()
        self._heard()
        if self._timer is None and link.acknowledgement_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ACKNOWLEDGE_AFTER_S, self._acknowledge)
        self.wake()

    def _acknowledge(self) -> None:
        self._timer = None
        if self._over:
            return
        self._link.acknowledge()
        self.wake()

    async def _write(self) -> None:
        link = self._link
        while not self._over:
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
                except (asyncio.InvalidStateError, grpc.aio.BaseError, grpc.aio.UsageError):
                    raise ClosedError("UNAVAILABLE", "the connection broke") from None

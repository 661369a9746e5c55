"""The bare baseline of `lone`: what any broker in Python costs before it does anything.

A process that hands every chunk of bytes of one connection to all others, and clients with frames of a length
and a body, all on uvloop: one read, one write and no look at the content. `python -m` this module serves.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable
from typing import cast

from covey.overlay.transport.event_loop import run

_LENGTH = struct.Struct("<I")


class Relay(asyncio.Protocol):
    """One connection of the relay."""

    def __init__(self, others: set[Relay]) -> None:
        self._others = others
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._others.add(self)

    def data_received(self, data: bytes) -> None:
        for other in self._others:
            if other is not self:
                other.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._others.discard(self)


class Frames(asyncio.Protocol):
    """A client of it: `take` gets the body of each frame."""

    def __init__(self) -> None:
        self.take: Callable[[bytes], None] | None = None
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if end > len(data):
                break
            if self.take is not None:
                self.take(data[at + _LENGTH.size : end])
            at = end
        self._rest = data[at:]

    def send(self, body: bytes) -> None:
        self.transport.write(_LENGTH.pack(len(body)) + body)


async def _serve(port: int) -> None:
    others: set[Relay] = set()
    server = await asyncio.get_running_loop().create_server(lambda: Relay(others), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    run(_serve(int(sys.argv[1])))

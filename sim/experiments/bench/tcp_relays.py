"""A baseline of `covey bench chain`: bare relays whose messages travel by TCP.

A message is its length in four bytes, big-endian, and its bytes. The relays run on the event loop that
brokers run on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, cast

from covey.overlay.transport.event_loop import run
from covey.sim.experiments.bench.chain_load import Publisher, Role, serve_commands
from covey.sim.experiments.bench.relays import RelaySink, RelaySource, forwarded

_PREFIX = 4


class Messages(asyncio.Protocol):
    """One end of a connection: `take` gets the messages that arrive; `paused` is called when the peer stops
    reading what is written (True), and when it goes on (False).
    """

    def __init__(
        self, take: Callable[[bytes], None] | None = None, paused: Callable[[bool], None] | None = None
    ) -> None:
        self._take = take
        self._paused = paused
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._take is not None
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _PREFIX:
            end = start + _PREFIX + int.from_bytes(buffer[start : start + _PREFIX], "big")
            if end > len(buffer):
                break
            self._take(bytes(buffer[start + _PREFIX : end]))
            start = end
        del buffer[:start]

    def pause_writing(self) -> None:
        if self._paused is not None:
            self._paused(True)

    def resume_writing(self) -> None:
        if self._paused is not None:
            self._paused(False)

    def write(self, message: bytes) -> None:
        self.transport.write(len(message).to_bytes(_PREFIX, "big") + message)


async def connect(address: str, paused: Callable[[bool], None]) -> Messages:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(lambda: Messages(paused=paused), host, int(port))
    return protocol


async def listen(made: Callable[[], Messages]) -> tuple[asyncio.Server, str]:
    """A server on a free loopback port, and its address."""
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Source(RelaySource):
    async def start(self) -> dict[str, Any]:
        self._room = asyncio.Event()
        self._room.set()
        self._next = await connect(self.address, self._set_paused)
        return {}

    def _set_paused(self, paused: bool) -> None:
        if paused:
            self._room.clear()
        else:
            self._room.set()

    async def write(self, message: bytes) -> None:
        self._next.write(message)
        if not self._room.is_set():
            await self._room.wait()

    async def stop(self) -> None:
        self._next.transport.close()


class Relay:
    """Forwards to the relay or the sink at `next_address`; what it cannot forward it does not read."""

    def __init__(self, next_address: str) -> None:
        self._next_address = next_address
        self._sources: list[Messages] = []

    async def start(self) -> dict[str, Any]:
        self._next = await connect(self._next_address, self._set_paused)
        self._server, address = await listen(self._accept)
        return {"address": address}

    def _accept(self) -> Messages:
        source = Messages(lambda message: self._next.write(forwarded(message)))
        self._sources.append(source)
        return source

    def _set_paused(self, paused: bool) -> None:
        for source in self._sources:
            if source.transport.is_closing():
                continue
            if paused:
                source.transport.pause_reading()
            else:
                source.transport.resume_reading()

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        self._server.close()
        self._next.transport.close()


class TcpSink(RelaySink):
    async def start(self) -> dict[str, Any]:
        self._server, address = await listen(lambda: Messages(self.take))
        return {"address": address}

    def source(self, address: str) -> Publisher:
        return Source(address)

    async def stop(self) -> None:
        self._server.close()


ROLES: dict[str, Callable[..., Role]] = {"source": Source, "relay": Relay, "sink": TcpSink}

if __name__ == "__main__":
    run(serve_commands(ROLES[sys.argv[1]](**json.loads(sys.argv[2]))))

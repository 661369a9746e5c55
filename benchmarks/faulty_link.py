"""A TCP link that can be cut, and fall silent, as a cable that is pulled out.

Invariant: a connection that has been silent passes nothing on any more, as packets that were lost; those that
are opened once the link is whole again do.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

_CHUNK_BYTES = 65_536


class FaultyLink:
    """Passes connections to `address` on to `target` (both "host:port")."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._silenced: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._refusing = False
        self.address = ""

    async def start(self) -> Self:
        self._whole.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        await _ended(self._connections)

    async def cut(self) -> None:
        """Close the connections, and refuse others until `heal`."""
        self._refusing = True
        await _ended(self._connections)

    def silence(self) -> None:
        """Pass nothing on any more and close nothing: connections are half-open. Those that are opened
        meanwhile wait for `heal`."""
        self._whole.clear()
        self._silenced = set(self._connections)

    async def heal(self) -> None:
        """Be whole again for connections that are opened since, or from now on."""
        self._refusing = False
        await _ended(self._silenced)
        self._silenced = set()
        self._whole.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with suppress(OSError, asyncio.CancelledError):  # asyncio would log that `cut` has cancelled it
            try:
                if self._refusing:
                    return
                await self._whole.wait()
                host, _, port = self._target.rpartition(":")
                back_reader, back_writer = await asyncio.open_connection(host, int(port))
                try:
                    passing = {
                        asyncio.create_task(self._pass(reader, back_writer)),
                        asyncio.create_task(self._pass(back_reader, writer)),
                    }
                    try:
                        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for each in passing:
                            each.cancel()
                finally:
                    back_writer.transport.abort()
            finally:
                self._connections.discard(task)
                writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            data = b" "
            while data:
                data = await reader.read(_CHUNK_BYTES)
                await self._whole.wait()  # the end of a connection is lost like any byte
                writer.write(data)
                await writer.drain()


async def _ended(connections: set[asyncio.Task[None]]) -> None:
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)

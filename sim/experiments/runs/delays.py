"""An overlay of broker processes whose links take time, as between distant machines.

Jayaram et al., section 5.3, add 10 ms to every link. A TCP proxy in front of the listening broker delays each
link, and one in front of each broker delays its clients. Invariant: a proxy passes bytes on in order, none
before its time, and holds at most `MAX_CHUNKS` reads per direction: then it stops reading, and TCP blocks the
sender.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from covey.sim.experiments.local_overlay import LocalOverlay

MAX_CHUNKS = 256
_CHUNK_BYTES = 65_536


class Proxy(ABC):
    """Passes TCP connections on to `target` ("host:port")."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        await ended(self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with suppress(OSError, asyncio.CancelledError):  # asyncio would log that `ended` has cancelled it
            try:
                await self._relay(reader, writer)
            finally:
                self._connections.discard(task)
                writer.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    @abstractmethod
    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until it ends."""


async def ended(connections: set[asyncio.Task[None]]) -> None:
    """End connections of a proxy."""
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


class DelayProxy(Proxy):
    """Passes connections on `delay_s` later each way."""

    def __init__(self, target: str, delay_s: float) -> None:
        super().__init__(target)
        self._delay_s = delay_s

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await self._dial()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back_writer))
                group.create_task(self._pass(back_reader, writer))
        finally:
            back_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_CHUNKS)

        async def write() -> None:
            while True:
                due, data = await chunks.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            with suppress(OSError, RuntimeError):
                writer.write_eof()

        writing = asyncio.ensure_future(write())
        try:
            with suppress(OSError):
                data = b" "
                while data and not writing.done():
                    data = await reader.read(_CHUNK_BYTES)
                    await chunks.put((loop.time() + self._delay_s, data))
                await writing
        finally:
            writing.cancel()


class DelayedOverlay(LocalOverlay):
    """A `LocalOverlay` with one-way delays of links, by (listener, dialer), and of clients' connections.

    Clients connect to `client_addresses`.
    """

    def __init__(
        self,
        links: Sequence[tuple[str, str]],
        *,
        delays_ms: Mapping[tuple[str, str], float],
        client_delay_ms: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(links, **options)
        self._delays_ms = delays_ms
        self._client_delay_ms = client_delay_ms
        self._proxies: list[DelayProxy] = []
        self.client_addresses = dict(self.addresses)

    async def __aenter__(self) -> Self:
        try:
            for (listener, dialer), delay_ms in self._delays_ms.items():
                self.link_addresses[listener, dialer] = await self._proxy(listener, delay_ms)
            for broker in self.brokers:
                self.client_addresses[broker] = await self._proxy(broker, self._client_delay_ms)
            return await super().__aenter__()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await super().stop()
        for proxy in self._proxies:
            await proxy.stop()
        self._proxies.clear()

    async def _proxy(self, broker: str, delay_ms: float) -> str:
        if not delay_ms:
            return self.addresses[broker]
        proxy = await DelayProxy(self.addresses[broker], delay_ms / 1e3).start()
        self._proxies.append(proxy)
        return proxy.address

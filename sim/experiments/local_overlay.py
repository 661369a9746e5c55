"""Overlays of broker processes on this machine, on free ports, for the duration of an `async with` block;
a TCP proxy may delay each link (Jayaram et al., section 5.3, add 10 ms) and a broker's clients.

Brokers have their own process groups, so Ctrl-C in a terminal reaches only this process, whose clients leave
before the brokers end. They stay in its session, since Linux gives each session its own share of the
processors.

Invariant: a proxy passes bytes on in order, none before its time, and holds at most `MAX_CHUNKS` reads per
direction: then it stops reading, and TCP blocks the sender.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay.client import RefusedError, inspect_broker
from covey.overlay.client.unary import call_broker
from covey.overlay.core.introspection.inspection import MAX_LISTED
from covey.overlay.transport.credentials import credentials
from covey.overlay.transport.packets import Method
from covey.overlay.transport.tls import Tls

THREE_LEVELS = (("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b3", "b5"))
"""b1 at the top, b2 and b3 below it, b4 below b2 and b5 below b3."""


def broker_command(overlay_file: Path, broker: str) -> list[str]:
    """The command of a broker process that ends with this one."""
    command = [sys.executable, "-m", "covey.cli.main", "broker"]
    return [*command, "--config", str(overlay_file), "--name", broker, "--parent", str(os.getpid())]


async def is_linked(address: str, process_id: int, neighbours: Iterable[str], tls: Tls | None = None) -> bool:
    """Whether the broker at an address is this process, serves, and is connected to all neighbours. `tls` are
    the files of a broker of the overlay. If inspection is refused, its health check decides."""
    try:
        _, state = await inspect_broker(address, listed=0, tls=tls)
    except RefusedError:
        return await is_ready(address, tls)
    except CoveyError:
        return False
    if state["process"] != process_id:
        return False  # Another overlay's broker has the address.
    interfaces = state["interfaces"]
    return all(interfaces.get(f"broker/{each}", {}).get("connected", False) for each in neighbours)


async def is_ready(address: str, tls: Tls | None = None) -> bool:
    """Whether the broker at an address reports that it serves and is linked with all its neighbours."""
    from grpc_health.v1 import health_pb2

    response = health_pb2.HealthCheckResponse
    check = Method("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest, response)
    request = check.request(service="covey.ready")
    try:
        reply = await call_broker(address, check, request, credentials(tls, None))
    except CoveyError:
        return False
    return bool(reply.status == response.SERVING)


def chain(length: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"b{i}", f"b{i + 1}") for i in range(1, length))


class LocalOverlay:
    """The brokers of `links`, or b1 alone, each a process; `addresses` is by broker.

    They have loaded their kernels when the block begins; with `compiled=False` only if those are cached. The
    types in `durable` are stored until the block ends; `sections` are further ones of the overlay file. At
    the end of the block brokers drain for at most `drain_s`.
    """

    def __init__(
        self,
        links: Sequence[tuple[str, str]],
        *,
        routing: str = "parametric",
        event_types: Sequence[EventType] = (),
        compiled: bool = True,
        durable: Sequence[str] = (),
        drain_s: float = 10.0,
        **sections: Any,
    ) -> None:
        self._drain_s = drain_s
        self._loading = ("loading", "compiling") if compiled else ("loading",)
        self._links = tuple(links)
        self.brokers = tuple(sorted({broker for link in links for broker in link})) or ("b1",)
        self._cleanup = ExitStack()
        addresses = free_addresses(len(self.brokers), self._cleanup)
        self.addresses = dict(zip(self.brokers, addresses, strict=True))
        self._configuration: dict[str, Any] = {
            "overlay": "local",
            "routing": routing,
            "event_types": {
                t.name: {a: str(k) for a, k in t.attributes.items()} | ({"key": t.key} if t.key else {})
                for t in event_types
            },
            "links": [list(link) for link in links],
            **sections,
        }
        if durable:
            self._configuration |= {"durable": {name: {} for name in durable}, "storage": "storage"}
        self.link_addresses: dict[tuple[str, str], str] = {}
        """By (listener, dialer), where a link is dialled, if not at the address of its listener."""
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._folder = Path()

    async def __aenter__(self) -> Self:
        self._folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="covey-")))
        try:
            for broker in self.brokers:
                await self._spawn(broker)
            for broker in self.brokers:
                await self._until_linked(broker)
            for broker in self.brokers:
                await self._until_loaded(broker)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def kill(self, broker: str) -> None:
        process = self._processes[broker]
        process.kill()
        await process.wait()

    async def exit_status(self, broker: str) -> int:
        return await self._processes[broker].wait()

    async def start(self, broker: str) -> None:
        """Restart a killed broker at its old address; returns when its links are open."""
        await self._spawn(broker)
        await self._until_linked(broker)

    async def stop(self) -> None:
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.terminate()
        try:
            await asyncio.wait_for(asyncio.gather(*(process.wait() for process in running)), self._drain_s)
        except TimeoutError:
            for process in running:
                if process.returncode is None:
                    process.kill()
            await asyncio.gather(*(process.wait() for process in running))
        self._processes.clear()
        self._cleanup.close()

    async def inspect(self) -> dict[str, dict[str, Any]]:
        """The state of each broker's routing core. `CoveyError` if one does not answer."""
        replies = await asyncio.gather(
            *(inspect_broker(address, listed=MAX_LISTED) for address in self.addresses.values())
        )
        return {broker: state["core"] for broker, (_, state) in zip(self.addresses, replies, strict=True)}

    def process_ids(self) -> dict[str, int]:
        return {broker: process.pid for broker, process in self._processes.items()}

    def storage(self, broker: str) -> Path:
        """The directory in which a broker stores the events of durable types."""
        return self._folder / "storage" / broker

    def file(self, broker: str) -> Path:
        """The overlay file of one broker, which it reads again at SIGHUP."""
        return self._folder / f"{broker}.yaml"

    def configuration(self, broker: str) -> dict[str, Any]:
        """The overlay file of one broker, as plain values."""
        dialled = self.link_addresses
        addresses = {name: dialled.get((name, broker), own) for name, own in self.addresses.items()}
        brokers = {name: {"address": address} for name, address in addresses.items()}
        return {**self._configuration, "brokers": brokers}

    async def _spawn(self, broker: str) -> None:
        file = self.file(broker)
        file.write_text(yaml.safe_dump(self.configuration(broker), sort_keys=False))
        with (self._folder / f"{broker}.log").open("ab") as log:
            self._processes[broker] = await asyncio.create_subprocess_exec(
                *broker_command(file, broker), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def _until_linked(self, broker: str, patience_s: float = 120.0) -> None:
        process = self._processes[broker]
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience_s
        while not await is_linked(self.addresses[broker], process.pid, self._neighbours(broker)):
            near = (broker, *self._neighbours(broker))
            ended = next((name for name in near if self._processes[name].returncode is not None), None)
            if ended is not None or clock() > deadline:
                late = ended or broker
                raise CoveyError(f"broker {late} did not start:\n{self.log(late)}")
            await asyncio.sleep(0.02)

    async def _until_loaded(self, broker: str) -> None:
        while True:
            _, state = await inspect_broker(self.addresses[broker], listed=0)
            if state["kernels"] not in self._loading:
                return
            await asyncio.sleep(0.05)

    def _neighbours(self, broker: str) -> list[str]:
        return [b if a == broker else a for a, b in self._links if broker in (a, b)]

    def log(self, broker: str, lines: int = 20) -> str:
        return "\n".join((self._folder / f"{broker}.log").read_text(errors="replace").splitlines()[-lines:])


def free_addresses(count: int, hold: ExitStack | None = None) -> list[str]:
    """Loopback addresses without a listener, below the ports of outgoing connections. With `hold`, on Linux,
    no other call in any process returns them until it is closed; listening there stays possible."""
    addresses: list[str] = []
    with ExitStack() as stack:
        for port in random.Random().sample(range(20_000, 32_000), 12_000):  # whatever seeds `random`
            if len(addresses) == count:
                break
            held = stack.enter_context(socket.socket())
            try:
                held.bind(("127.0.0.1", port))
            except OSError:
                continue
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a listener that has it may bind
            addresses.append(f"127.0.0.1:{port}")
        else:
            raise CoveyError(f"{count} free ports between 20000 and 31999: found {len(addresses)}")
        if hold is not None and sys.platform == "linux":
            hold.push(stack.pop_all())
    return addresses


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
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


class DelayProxy(Proxy):
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
    """A `LocalOverlay` with one-way delays of links, by (listener, dialer), and of clients, which connect to
    `client_addresses`."""

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

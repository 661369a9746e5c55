"""Brokers of one overlay in this process, on loopback, and a proxy that can cut or freeze connections."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from draws import UVLOOP

from covey.cli.administration.first_overlay import METRICS_ABOVE
from covey.matcher import EventType, compile_kernels
from covey.overlay import Client
from covey.overlay.core.endpoint import recovery
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.transport import event_loop
from covey.sim.experiments.local_overlay import free_addresses
from covey.sim.invariants import check
from covey.testing.local_brokers import LocalBrokers, until

__all__ = [
    "QUOTE", "Brokers", "Proxy", "at_rest", "eventually", "free_port_of_init", "free_ports", "on_a_loop",
    "run_on_loop", "two_clients", "until",
]  # fmt: skip

run_on_loop = event_loop.run if UVLOOP else asyncio.run
QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test, for five minutes at the most, on the event loop of this run."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def within_bounds() -> None:
            compile_kernels()
            running = asyncio.create_task(test(*arguments, **named))
            done, _ = await asyncio.wait({running}, timeout=300)
            if not done:
                for task in asyncio.all_tasks():
                    print(task.get_name(), where_it_waits(task))
                running.cancel()
            await running

        run_on_loop(within_bounds())

    return run


def where_it_waits(task: asyncio.Task[Any]) -> str:
    """The chain of coroutines that a task is in."""
    found = []
    waiting: Any = task.get_coro()
    while waiting is not None and hasattr(waiting, "cr_await"):
        frame = waiting.cr_frame
        found.append(f"{waiting.__qualname__}:{frame.f_lineno if frame else '-'}")
        waiting = waiting.cr_await
    return " > ".join(found) + f" > {waiting!r}"


def eventually(holds: Callable[[], bool], what: str = "", seconds: float = 60.0) -> None:
    """As `until`, where no event loop runs."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


async def at_rest(value: Callable[[], Any], for_s: float = 0.3) -> Any:
    """Wait until a value has not changed for so long, and return it; fail if it never stops changing."""
    clock = asyncio.get_running_loop().time
    deadline, since, last = clock() + 60.0, clock(), value()
    while clock() < since + for_s:
        assert clock() < deadline, f"{last!r} still changes"
        await asyncio.sleep(0.01)
        if (now := value()) != last:
            since, last = clock(), now
    return last


def free_ports(count: int) -> list[int]:
    """Ports on loopback that no outgoing connection takes between this call and their use."""
    return [int(address.rpartition(":")[2]) for address in free_addresses(count)]


def free_port_of_init() -> int:
    """A free port whose metrics' port by `covey init` is free as well."""
    for port in free_ports(50):
        with suppress(OSError), socket.create_server(("127.0.0.1", port + METRICS_ABOVE)):
            return port
    raise AssertionError("no two free ports")


class Proxy:
    """Passes TCP on to a port, until it is blocked."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refusing = False
        self.port = 0
        self.passed = 0
        self.cut_after: int | None = None
        """Cut all connections after so many further bytes, once."""

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                if self.cut_after is not None:
                    self.cut_after -= len(data)
                    if self.cut_after <= 0:
                        writer.write(data[: len(data) // 2])
                        self.cut_after = None
                        self.cut()
                        return
                self.passed += len(data)
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def cut(self) -> None:
        """Break every connection, in the middle of its data."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()

    def freeze(self) -> None:
        """Pass nothing on, without closing anything."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    async def stop(self) -> None:
        self._server.close()
        self.cut()


@contextmanager
def soon_recovered() -> Iterator[None]:
    """Halve the time that restarted brokers wait for clients, to a little more than clients' pauses: both are
    on this event loop, so that a busy machine delays both."""
    with patch.object(recovery, "CLIENTS_NS", 1_200_000_000):
        yield


class Brokers(LocalBrokers):
    """`LocalBrokers` at ports. `proxied` links, by (listener, dialer), pass a `Proxy`; `differing` are fields
    of the overlay in which single brokers differ."""

    def __init__(
        self,
        links: Sequence[tuple[str, str]] = (),
        *,
        names: Sequence[str] = ("b1",),
        proxied: Sequence[tuple[str, str]] = (),
        differing: Mapping[str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        names = sorted({name for link in links for name in link}) or list(names)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        addresses = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        super().__init__(links, names=names, addresses=addresses, **options)
        self._proxied = proxied
        self.differing = dict(differing or {})
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []

    async def __aenter__(self) -> Self:
        self._cleanup.enter_context(soon_recovered())
        for listener, dialer in self._proxied:
            self.proxies[listener, dialer] = await Proxy(self.ports[listener]).start()
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        for proxy in self.proxies.values():
            await proxy.stop()
        for close in self._closing:
            await close()

    async def proxy(self, name: str) -> Proxy:
        """A proxy in front of a broker, for clients."""
        proxy = await Proxy(self.ports[name]).start()
        self._closing.append(proxy.stop)
        return proxy

    def overlay(self, name: str) -> Overlay:
        """Links that this broker dials through a proxy have the proxy's address."""
        brokers = {}
        for other in self.names:
            proxy = self.proxies.get((other, name))
            address = proxy.address if proxy is not None else self.address(other)
            brokers[other] = BrokerAddress(other, address, self.address(other))
        return replace(super().overlay(name), **{"brokers": brokers, **self.differing.get(name, {})})

    @asynccontextmanager
    async def unlinked(self, *names: str) -> AsyncIterator[Self]:
        """These brokers or all, without waiting for their links."""
        try:
            for name in names or self.names:
                await self.start(name)
            yield self
        finally:
            for name in list(self.nodes):
                await self.crash(name)

    async def quiet(self) -> None:
        """Checks every invariant too."""
        await super().quiet()
        for node in self.nodes.values():
            check(node.core)


@asynccontextmanager
async def two_clients(
    event_type: EventType,
    links: Sequence[tuple[str, str]] = (),
    feed_at: str = "b1",
    reader_at: str = "b1",
    **options: Any,
) -> AsyncIterator[tuple[Brokers, Client, Client]]:
    """Brokers, a client "feed" at one of them, which has advertised a type, and a client "reader"."""
    async with (
        Brokers(links, **options) as overlay,
        Client(overlay.address(feed_at), "feed") as feed,
        Client(overlay.address(reader_at), "reader") as reader,
    ):
        await feed.advertise(event_type)
        yield overlay, feed, reader

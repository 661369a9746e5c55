"""The brokers of an overlay as tasks of the running event loop: the node and server of `covey broker`, in
real time. By default they listen at Unix sockets in a temporary directory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from covey.matcher import EventType
from covey.overlay.core.endpoint.limits import Limits, SessionLimits
from covey.overlay.core.endpoint.observing import Tracing
from covey.overlay.node.dialer import Dialers
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.server import Server

_PATIENCE_S = 60.0


class LocalBroker:
    def __init__(self, overlay: Overlay, name: str, tracing: Tracing | None = None) -> None:
        self.node = Node(overlay, name, tracing=tracing)
        self._server = Server(self.node, overlay.brokers[name])
        self._dialers = Dialers(self.node, self.node.fail)

    async def start(self) -> None:
        """Listen, and dial neighbours. `AddressError` if the address cannot be bound."""
        await self._server.start()
        self._dialers.update()

    async def stop(self) -> None:
        """End at once; unsent data is lost."""
        await self._server.stop(0.0, self._dialers.tasks)


class LocalBrokers:
    """The brokers that `links` (pairs of names) or else `names` name, for an `async with` block, which begins
    when all links are open. `addresses` and `tracing` are by broker: where it listens, and its spans;
    `options` are further fields of `Overlay`. `nodes` has the running brokers."""

    def __init__(
        self,
        links: Sequence[tuple[str, str]] = (),
        *,
        names: Sequence[str] = ("b1",),
        addresses: Mapping[str, str] | None = None,
        event_types: Sequence[EventType] = (),
        tracing: Mapping[str, Tracing] | None = None,
        **options: Any,
    ) -> None:
        self.names = sorted({name for link in links for name in link}) or list(names)
        self.nodes: dict[str, Node] = {}
        self.addresses = dict(addresses or {})
        self._tracing = tracing or {}
        self._links = tuple(links)
        self._fields: dict[str, Any] = {
            "routing": "parametric",
            "limits": Limits(),
            "sessions": SessionLimits(),
            "event_types": tuple(event_types),
            **options,
        }
        self._brokers: dict[str, LocalBroker] = {}
        self._cleanup = ExitStack()

    async def __aenter__(self) -> Self:
        if not self.addresses:
            folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="covey-")))
            self.addresses = {name: f"unix:{folder / name}" for name in self.names}
        try:
            for name in self.names:
                await self.start(name)
            await self.linked()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for name in list(self.nodes):
            await self.crash(name)
        self._cleanup.close()

    def address(self, name: str) -> str:
        """Where clients reach a broker. `ValueError` for an unknown name."""
        address = self.addresses.get(name)
        if address is None:
            raise ValueError(f"broker {name!r}: expected one of {', '.join(self.names)}")
        return address

    def overlay(self, name: str) -> Overlay:
        """The overlay in the configuration of this broker."""
        brokers = {each: BrokerAddress(each, *2 * (self.address(each),)) for each in self.names}
        return Overlay("test", brokers=brokers, links=self._links, **self._fields)

    async def start(self, name: str) -> None:
        """Start a broker that does not run, without state."""
        broker = self._brokers[name] = LocalBroker(self.overlay(name), name, self._tracing.get(name))
        self.nodes[name] = broker.node
        await broker.start()

    async def crash(self, name: str) -> None:
        """End a broker without notice."""
        del self.nodes[name]
        await self._brokers.pop(name).stop()

    async def linked(self) -> None:
        """Wait until every link between running brokers is open. `TimeoutError` after a minute."""
        await until(
            lambda: all(
                self.nodes[a].queues[f"broker/{b}"].connected
                and self.nodes[b].queues[f"broker/{a}"].connected
                for a, b in self._links
                if a in self.nodes and b in self.nodes
            ),
            "links",
        )

    async def quiet(self) -> None:
        """Wait until every broker and connected client has what was sent to it. `TimeoutError` after a
        minute."""
        await until(
            lambda: all(o.link.idle for n in self.nodes.values() for o in n.queues.values() if o.connected),
            "quiet",
        )


async def until(
    holds: Callable[[], bool | Awaitable[bool]], what: str = "", seconds: float = _PATIENCE_S
) -> None:
    """Wait until a condition holds. `TimeoutError` after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (await held if isawaitable(held := holds()) else held):
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.01)

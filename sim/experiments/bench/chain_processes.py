"""The processes of a chain: publisher, three brokers or relays in a row, subscriber."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from covey.matcher.errors import CoveyError
from covey.overlay.client import inspect_broker
from covey.sim.experiments.local_overlay import LocalOverlay, chain

LENGTH = 3
"""Brokers, or relays, in a row."""
RELAYS = {"grpc": "grpc_relays", "tcp": "tcp_relays"}
"""The modules of the bare relays, by what carries their messages."""

_LISTED = 10
"""More than a broker of the chain has clients."""


class Worker:
    """A process with a role of `module` that executes commands: one line of JSON each way.

    `ready` is its first line.
    """

    def __init__(self, role: str, *, module: str = "chain_worker", **settings: Any) -> None:
        self.ready: dict[str, Any] = {}
        self._role = role
        self._module = f"covey.sim.experiments.bench.{module}"
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            self._role,
            json.dumps(self._settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.ready = await self.response()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def send(self, command: str, **arguments: Any) -> None:
        """Send a command without waiting for its result."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
        await self._process.stdin.drain()

    async def response(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """The result of a command. Raises `CoveyError` if the process has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        except TimeoutError:
            raise CoveyError(f"the {self._role} did not respond within {timeout_s:g} s") from None
        if not line:
            raise CoveyError(f"the {self._role} exited early")
        result: dict[str, Any] = json.loads(line)
        return result

    async def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        await self.send(command, **arguments)
        return await self.response()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain that runs: the workers at its ends, the address and the processes of what is between them."""

    publisher: Worker
    subscriber: Worker
    first_address: str
    process_ids: tuple[int, ...]

    async def messages(self) -> int | None:
        """The messages that all brokers have sent so far; None of relays, which send one per message."""
        return None


@dataclass(frozen=True, slots=True)
class BrokerChain(Chain):
    """Three brokers, and the crowd."""

    crowd: Worker
    addresses: tuple[str, ...]

    async def messages(self) -> int | None:
        states = [await inspect_broker(address, listed=_LISTED) for address in self.addresses]
        interfaces = [interface for _, state in states for interface in state["interfaces"].values()]
        return sum(int(interface["frames_written"]) for interface in interfaces)


@asynccontextmanager
async def brokers(subscriptions: int) -> AsyncIterator[BrokerChain]:
    """Covey's chain, with a crowd of so many subscriptions at each broker."""
    async with AsyncExitStack() as stack:
        overlay = await stack.enter_async_context(LocalOverlay(chain(LENGTH)))
        addresses = tuple(overlay.addresses[broker] for broker in overlay.brokers)
        publisher = await stack.enter_async_context(Worker("publisher", address=addresses[0]))
        subscriber = await stack.enter_async_context(Worker("subscriber", address=addresses[-1]))
        crowd = await stack.enter_async_context(
            Worker("crowd", addresses=addresses, subscriptions=subscriptions)
        )
        processes = tuple(overlay.process_ids().values())
        yield BrokerChain(publisher, subscriber, addresses[0], processes, crowd, addresses)


@asynccontextmanager
async def relays(carrier: str) -> AsyncIterator[Chain]:
    """A chain of bare relays."""
    module = RELAYS[carrier]
    async with AsyncExitStack() as stack:
        subscriber = await stack.enter_async_context(Worker("sink", module=module))
        address = subscriber.ready["address"]
        processes = []
        for _ in range(LENGTH):
            relay = await stack.enter_async_context(Worker("relay", module=module, next_address=address))
            address = relay.ready["address"]
            processes.append(relay.process_id)
        publisher = await stack.enter_async_context(Worker("source", module=module, address=address))
        yield Chain(publisher, subscriber, address, tuple(processes))

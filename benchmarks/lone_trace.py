"""Every call that one publish and one awaited update cause: client, two brokers, client, in one process."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from benchmarks.systems import ORDER, TEXT
from covey.overlay import Client
from covey.overlay.node.config import load_overlay
from covey.overlay.node.dialer import keep_connected
from covey.overlay.node.node import Node
from covey.overlay.node.server import Server
from covey.sim.experiments.local_overlay import free_addresses

_ROOT = Path(sys.modules["covey.matcher.errors"].__file__ or "").parent.parent
_SETTLED_S = 0.1
_WARM = 30


@dataclass(frozen=True, slots=True)
class Trace:
    """Calls of functions in `overlay/` and `matcher/`, how many different functions and files, calls that
    cross from one folder to another, and the calls by folder.
    """

    calls: int
    functions: int
    files: int
    crossings: int
    folders: dict[str, int]


class _Calls:
    """Counts calls while the block runs."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.crossings = 0

    def __enter__(self) -> _Calls:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, kind: str, _argument: Any) -> None:
        if kind != "call":
            return
        here = _file(frame)
        if here is None:
            return
        self.calls[here, frame.f_code.co_qualname] += 1
        caller = frame.f_back and _file(frame.f_back)
        self.crossings += caller is not None and _folder(caller) != _folder(here)

    def trace(self, ways: int) -> Trace:
        """The calls of one of so many ways."""
        folders: Counter[str] = Counter()
        for (file, _), count in self.calls.items():
            folders[_folder(file)] += count
        return Trace(
            round(self.calls.total() / ways),
            len(self.calls),
            len({file for file, _ in self.calls}),
            round(self.crossings / ways),
            {folder: round(count / ways) for folder, count in folders.most_common()},
        )


def _file(frame: FrameType) -> str | None:
    """The file of a call, by its path in the repository, if it is Covey's."""
    name = frame.f_code.co_filename
    for room in ("overlay", "matcher"):
        if name.startswith(f"{_ROOT}/{room}/"):
            return name[len(str(_ROOT)) + 1 :]
    return None


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


async def trace_ways(ways: int = 5) -> dict[str, Trace]:
    """The ways of a lone event and of a lone awaited update, each the mean of a few."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-")))
        first, second = await _brokers(stack, folder)
        publisher = await stack.enter_async_context(Client(first))
        subscriber = await stack.enter_async_context(Client(second))
        await publisher.advertise(ORDER)
        subscription = await subscriber.subscribe(ORDER, "number >= $low", low=0)
        arrived = 0

        async def read() -> None:
            nonlocal arrived
            async for event in subscription:
                arrived += event["number"] >= 0

        stack.callback(asyncio.create_task(read()).cancel)

        async def publish(number: int) -> None:
            await publisher.publish("Order", firm="IBM", number=number, sent_ns=number, text=TEXT)

        async def update(number: int) -> None:
            await subscription.update(low=-number)

        return {
            "publish": await _traced(publish, ways),
            "update": await _traced(update, ways),
        }


async def _traced(way: Callable[[int], Awaitable[None]], ways: int) -> Trace:
    for number in range(_WARM):
        await way(number)
        await asyncio.sleep(0.01)
    calls = _Calls()
    for number in range(ways):
        await asyncio.sleep(_SETTLED_S)
        with calls:
            await way(_WARM + number)
            await asyncio.sleep(_SETTLED_S)
    return calls.trace(ways)


async def _brokers(stack: AsyncExitStack, folder: Path) -> list[str]:
    addresses = free_addresses(2)
    file = folder / "overlay.yaml"
    brokers = {f"b{at + 1}": {"address": address} for at, address in enumerate(addresses)}
    file.write_text(yaml.safe_dump({"overlay": "lone", "brokers": brokers, "links": [["b1", "b2"]]}))
    overlay = load_overlay(file)
    for name in overlay.brokers:
        node = Node(overlay, name)
        server = Server(node, overlay.brokers[name])
        await server.start()
        dialers = [
            asyncio.create_task(keep_connected(node, neighbour))
            for neighbour, dials in overlay.neighbours(name).items()
            if dials
        ]
        stack.push_async_callback(server.stop, 0.0, dialers)
    return list(addresses)

"""Brokers of a `LocalOverlay` as tasks of the test's event loop: a process takes a second or two to start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from covey.overlay.node.config import load_overlay
from covey.overlay.node.dialer import keep_connected
from covey.overlay.node.node import Node
from covey.overlay.node.server import Server
from covey.sim.experiments.local_overlay import LocalOverlay


class BrokerTask:
    """A broker, with the part of a process's interface that `LocalOverlay` uses."""

    def __init__(self, server: Server, dialers: list[asyncio.Task[None]]) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None
        self._server, self._dialers = server, dialers

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        pass

    async def wait(self) -> None:
        await self._server.stop(0.0, self._dialers)
        self.returncode = 0


async def _spawn(local: LocalOverlay, broker: str) -> None:
    file = local._folder / f"{broker}.yaml"
    file.write_text(yaml.safe_dump(local.configuration(broker)))
    (local._folder / f"{broker}.log").touch()
    overlay = load_overlay(file)
    node = Node(overlay, broker)
    server = Server(node, overlay.brokers[broker])
    await server.start()
    dialers = [
        asyncio.create_task(keep_connected(node, neighbour))
        for neighbour, dials in overlay.neighbours(broker).items()
        if dials
    ]
    local._processes[broker] = BrokerTask(server, dialers)  # type: ignore[assignment]


KINDS = ("tasks", pytest.param("processes", marks=pytest.mark.thorough))


@contextmanager
def brokers_as(kind: str) -> Iterator[None]:
    """Makes the brokers of each `LocalOverlay` "tasks" or "processes"."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "tasks":
            patch.setattr(LocalOverlay, "_spawn", _spawn)
        yield


@pytest.fixture(params=KINDS)
def local_brokers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Brokers of each `LocalOverlay` are tasks; in `make test-all` processes."""
    with brokers_as(request.param):
        yield


@pytest.fixture
def brokers_in_process() -> Iterator[None]:
    """Brokers of each `LocalOverlay` are tasks, which know the operators that a test has registered."""
    with brokers_as("tasks"):
        yield

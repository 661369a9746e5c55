"""Brokers of a `LocalOverlay` as tasks of the test's event loop: a process takes a second or two to start."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import soon_recovered

from covey.overlay.node.config import load_overlay
from covey.sim.experiments.local_overlay import broker_command
from covey.testing.local_brokers import LocalBroker


class BrokerTask:
    """A broker with the part of a process's interface that `LocalOverlay` uses."""

    def __init__(self, broker: LocalBroker) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None
        self._broker = broker

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        pass

    async def wait(self) -> None:
        await self._broker.stop()
        self.returncode = 0


_start_process = asyncio.create_subprocess_exec


async def _start(*command: str, **options: Any) -> asyncio.subprocess.Process | BrokerTask:
    """As `asyncio.create_subprocess_exec`, for brokers."""
    given = dict(pairwise(command))
    file, name = Path(given.get("--config", "")), given.get("--name", "")
    if list(command) != broker_command(file, name):
        return await _start_process(*command, **options)
    broker = LocalBroker(load_overlay(file), name)
    await broker.start()
    return BrokerTask(broker)


KINDS = ("tasks", pytest.param("processes", marks=pytest.mark.thorough))


@contextmanager
def brokers_as(kind: str) -> Iterator[None]:
    """Make the brokers of each `LocalOverlay` "tasks" or "processes"."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "tasks":
            patch.setattr(asyncio, "create_subprocess_exec", _start)
        with soon_recovered() if kind == "tasks" else nullcontext():
            yield


@pytest.fixture(params=KINDS)
def local_brokers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Brokers of each `LocalOverlay` are tasks; in `make test-all` processes."""
    with brokers_as(request.param):
        yield


@pytest.fixture
def brokers_in_process() -> Iterator[None]:
    """Brokers of each `LocalOverlay` are tasks, with the operators that a test has registered."""
    with brokers_as("tasks"):
        yield

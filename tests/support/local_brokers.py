"""Brokers of a `LocalOverlay` as tasks of the test's event loop: a process takes a second or two to start."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import yaml
from running import soon_recovered

from covey.overlay.node.config import load_overlay
from covey.sim.experiments.local_overlay import LocalOverlay
from covey.testing.local_brokers import LocalBroker


class BrokerTask:
    """A broker, with the part of a process's interface that `LocalOverlay` uses."""

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


async def _spawn(local: LocalOverlay, broker: str) -> None:
    file = local._folder / f"{broker}.yaml"
    file.write_text(yaml.safe_dump(local.configuration(broker)))
    (local._folder / f"{broker}.log").touch()
    task = LocalBroker(load_overlay(file), broker)
    await task.start()
    local._processes[broker] = BrokerTask(task)


KINDS = ("tasks", pytest.param("processes", marks=pytest.mark.thorough))


@contextmanager
def brokers_as(kind: str) -> Iterator[None]:
    """Makes the brokers of each `LocalOverlay` "tasks" or "processes"."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "tasks":
            patch.setattr(LocalOverlay, "_spawn", _spawn)
        with soon_recovered() if kind == "tasks" else nullcontext():
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

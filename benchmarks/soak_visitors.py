"""The visitors of `soak`: a process whose clients come, move, stall and go, until they are to close.

It may be stopped and killed at any time. Once its clients have closed it says how many sessions it opened, and
how many events were delivered to them repeatedly or out of order.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.processes import serve

STEADY = EventType("Steady", {"number": "int64", "share": "float64"})
"""Of one publisher, who numbers its events; `share` is uniform in 0 to 1."""
VISIT = EventType("Visit", {"visitor": "string", "number": "int64"})
_GOING_S = 40.0
_POLICIES = tuple(policy.value for policy in SlowConsumer if policy is not SlowConsumer.CONFLATE)
"""Their event types have no key."""


class Visitors:
    """Several clients, one after the other at each place; a role of a `Worker`."""

    def __init__(self, addresses: list[str], clients: int, seed: int) -> None:
        self._addresses = addresses
        self._places = clients
        self._random = random.Random(seed)
        self._going = asyncio.Event()
        self._sessions = 0
        self._repeated = 0

    async def start(self) -> dict[str, Any]:
        self._tasks = [asyncio.create_task(self._place()) for _ in range(self._places)]
        return {}

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The clients close."""
        self._going.set()
        _, stuck = await asyncio.wait(self._tasks, timeout=_GOING_S)
        for place in stuck:
            place.print_stack(file=sys.stderr)
        if stuck:
            raise CoveyError(f"{len(stuck)} visitors: expected them to go within {_GOING_S:g} s")
        await asyncio.gather(*self._tasks)
        return {"sessions": self._sessions, "repeated": self._repeated}

    async def stop(self) -> None:
        """What has not closed ends with the process."""

    async def _place(self) -> None:
        while not self._going.is_set():
            roles = (self._move, self._stall, self._publish)
            with suppress(CoveyError):  # A broker may end the session, by the client's own policy.
                policy = self._random.choice(_POLICIES)
                async with Client(self._random.choice(self._addresses), slow_consumer=policy) as client:
                    self._sessions += 1
                    await self._random.choice(roles)(client, policy)
            await self._pause(self._random.uniform(0.0, 0.5))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._going.wait(), seconds)

    def _range(self, width: float) -> dict[str, float]:
        low = self._random.uniform(0.0, 1.0 - width)
        return {"low": low, "high": low + width}

    async def _move(self, client: Client, policy: str) -> None:
        """Read a small share of the events, and move it."""
        moving = await client.subscribe(STEADY, "share between $low and $high", values=self._range(0.01))
        reading = asyncio.create_task(self._read(moving.batches()))
        for _ in range(self._random.randrange(1, 40)):
            await self._pause(self._random.uniform(0.0, 0.1))
            if self._going.is_set():
                break
            await moving.update(values=self._range(0.01), timeout=60.0)
        reading.cancel()

    async def _read(self, batches: AsyncIterator[EventBatch], *, judged: bool = True) -> None:
        newest = -1
        async for batch in batches:
            for number in batch.record_batch.column("number").to_pylist() if judged else ():
                self._repeated += number <= newest
                newest = max(newest, number)

    async def _stall(self, client: Client, policy: str) -> None:
        """Subscribe to many events, and read none of them for some seconds.

        Under "block" they are fewer than what the broker queues, or the steady rate could not be kept.
        """
        width = 0.01 if policy == SlowConsumer.BLOCK.value else 0.1
        await client.subscribe(STEADY, "share between $low and $high", values=self._range(width))
        await self._pause(self._random.uniform(0.5, 4.0))

    async def _publish(self, client: Client, policy: str) -> None:
        """Publish events of another type, and read what all visitors publish of it."""
        await client.advertise(VISIT)
        visits = await client.subscribe(VISIT)
        reading = asyncio.create_task(self._read(visits.batches(), judged=False))
        for number in range(self._random.randrange(200)):
            await client.publish("Visit", visitor=client.name, number=number)
            await self._pause(0.005)
            if self._going.is_set():
                break
        reading.cancel()


if __name__ == "__main__":
    serve({"visitors": Visitors}, run)

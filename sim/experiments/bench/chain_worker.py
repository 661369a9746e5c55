"""The clients of `covey bench chain`, each a process: the publisher, the subscriber, the crowd.

A worker starts with a role and its settings, prints a line of JSON when it is ready, and then answers each
line of JSON on standard input with one on standard output, until the input ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.overlay.client.deliveries import Deliveries
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.background import BackgroundTasks

TICK = EventType("Tick", {"symbol": "string", "price": "float64", "volume": "int64", "time": "timestamp"})
SYMBOLS = [f"S{number:02d}" for number in range(100)]
SEED = 20_101
IN_FLIGHT = 16
"""Batches that the publisher sends before it waits for the first."""


def ticks(count: int, seed: int = SEED) -> pa.RecordBatch:
    """Events with uniform symbols and prices, and the current time."""
    rng = np.random.default_rng(seed)
    return pa.record_batch(
        [
            pa.array([SYMBOLS[number] for number in rng.integers(0, len(SYMBOLS), count)]),
            pa.array(np.round(rng.uniform(100.0, 200.0, count), 2)),
            pa.array(rng.integers(1, 10_000, count)),
            pa.array(np.full(count, time.time_ns() // 1000), type=pa.timestamp("us", tz="UTC")),
        ],
        schema=TICK.arrow_schema,
    )


class Role(Protocol):
    """The work of one process: `start`, then `execute` per command, then `stop`. Results are plain values."""

    async def start(self) -> dict[str, Any]: ...

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]: ...

    async def stop(self) -> None: ...


class Publisher(ABC):
    """Publishes batches at full speed, or single events at a rate; `send` is up to the subclass."""

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await (self._publish(**arguments) if command == "publish" else self._trickle(**arguments))

    @abstractmethod
    async def send(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    async def send_event(self, event: dict[str, Any]) -> None: ...

    async def _publish(self, events: int, batch: int) -> dict[str, Any]:
        prepared = ticks(events)
        batches = [prepared.slice(start, batch) for start in range(0, events, batch)]
        in_flight: deque[asyncio.Task[None]] = deque()
        first_ns = time.time_ns()
        for each in batches:
            in_flight.append(asyncio.create_task(self.send(each)))
            if len(in_flight) >= IN_FLIGHT:
                await in_flight.popleft()
        await asyncio.gather(*in_flight)
        return {"first_ns": first_ns}

    async def _trickle(self, events: int, rate: int) -> dict[str, Any]:
        prepared = ticks(events).to_pylist()
        loop = asyncio.get_running_loop()
        began = loop.time()
        background = BackgroundTasks()
        for number, event in enumerate(prepared):
            wait = began + number / rate - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            event["time"] = datetime.now(UTC)
            background.start(self.send_event(event))
        await background.join()
        return {"seconds": loop.time() - began}


class ClientPublisher(Publisher):
    """Publishes through a Covey client."""

    def __init__(self, address: str) -> None:
        self._client = Client(address, name="publisher")

    async def start(self) -> dict[str, Any]:
        await self._client.__aenter__()
        await self._client.advertise(TICK)
        return {}

    async def stop(self) -> None:
        await self._client.close()

    async def send(self, batch: pa.RecordBatch) -> None:
        await self._client.publish_batch("Tick", batch)

    async def send_event(self, event: dict[str, Any]) -> None:
        await self._client.publish("Tick", **event)


class Arrivals:
    """Collects latencies until the expected number of events has arrived."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._received = 0
        self._last_ns = 0
        self._delays_ms: list[np.ndarray] = []

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch; whether it completes the expected number."""
        self._last_ns = time.time_ns()
        times_us = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        self._delays_ms.append(self._last_ns / 1e6 - times_us / 1e3)
        self._received += batch.num_rows
        return self._received >= self._expected

    def as_response(self) -> dict[str, Any]:
        p50, p99 = np.percentile(np.concatenate(self._delays_ms), (50, 99))
        return {"last_ns": self._last_ns, "p50_ms": p50, "p99_ms": p99}


class Subscriber:
    """Receives a number of events and reports their arrival times and latencies."""

    def __init__(self, address: str) -> None:
        self._client = Client(address, name="subscriber")
        self._subscription: Subscription | None = None

    async def start(self) -> dict[str, Any]:
        await self._client.__aenter__()
        self._subscription = await self._client.subscribe(TICK, "price >= $floor", floor=0.0)
        return {}

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self._subscription is not None
        arrivals = Arrivals(arguments["events"])
        gc.disable()
        async for batch in self._subscription.batches():
            if arrivals.add(batch.record_batch):
                break
        gc.enable()
        return arrivals.as_response()

    async def stop(self) -> None:
        await self._client.close()


class Crowd:
    """A client at each broker with many parametric subscriptions; counts their matches."""

    def __init__(self, addresses: list[str], subscriptions: int) -> None:
        self._clients = [Client(address, name=f"crowd-{i}") for i, address in enumerate(addresses)]
        self._count = subscriptions
        self._tasks: list[asyncio.Task[None]] = []
        self._matches = 0

    async def start(self) -> dict[str, Any]:
        rng = np.random.default_rng(SEED)
        for client in self._clients:
            await client.__aenter__()
            limits = rng.uniform(180.0, 280.0, self._count).tolist()
            self._tasks.append(asyncio.create_task(self._count_matches(client.deliveries())))
            await asyncio.gather(
                *(
                    client.subscribe(
                        TICK,
                        "symbol == $symbol and price < $limit",
                        symbol=SYMBOLS[i % len(SYMBOLS)],
                        limit=limit,
                    )
                    for i, limit in enumerate(limits)
                )
            )
        return {}

    async def _count_matches(self, deliveries: Deliveries) -> None:
        async for delivery in deliveries:
            self._matches += len(delivery.ids)

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        for task in self._tasks:
            if task.done():
                task.result()  # a task ends only by an exception
        return {"matches": self._matches}

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client in self._clients:
            await client.close()


async def serve_commands(role: Role) -> None:
    """Execute commands until standard input ends."""
    print(json.dumps(await role.start()), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        print(json.dumps(await role.execute(request["command"], request["arguments"])), flush=True)
    await role.stop()


ROLES: dict[str, Callable[..., Role]] = {
    "publisher": ClientPublisher,
    "subscriber": Subscriber,
    "crowd": Crowd,
}

if __name__ == "__main__":
    run(serve_commands(ROLES[sys.argv[1]](**json.loads(sys.argv[2]))))

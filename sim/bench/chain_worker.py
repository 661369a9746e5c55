"""The clients of `covey bench chain`, each a process: the publisher, the far subscriber, the crowd.

A worker is started with its role and its settings, says so when it is ready, and then answers each line of
JSON on its standard input with one on its standard output, until its input ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType
from covey.overlay import Client, Subscription
from covey.overlay.client.deliveries import Deliveries

TICK = EventType("Tick", {"symbol": "string", "price": "float64", "volume": "int64", "time": "timestamp"})
SYMBOLS = [f"S{number:02d}" for number in range(100)]
SEED = 20_101
IN_FLIGHT = 16
"""Batches that the publisher has handed in before it waits for the first to be taken."""


def ticks(count: int, seed: int = SEED) -> pa.RecordBatch:
    """Events with symbols and prices drawn evenly; their time is now."""
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
    """One of the clients: made ready by `start`, then told what to do; answers with plain values."""

    async def start(self) -> None: ...

    async def obey(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]: ...


class Publisher:
    """Publishes batches as fast as the overlay takes them, or single events at a rate."""

    def __init__(self, address: str) -> None:
        self._client = Client(address, name="publisher")

    async def start(self) -> None:
        await self._client.__aenter__()
        await self._client.advertise(TICK)

    async def obey(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await (self._publish(**arguments) if command == "publish" else self._trickle(**arguments))

    async def _publish(self, events: int, batch: int) -> dict[str, Any]:
        prepared = ticks(events)
        batches = [prepared.slice(start, batch) for start in range(0, events, batch)]
        under_way: deque[asyncio.Task[None]] = deque()
        first_ns = time.time_ns()
        for each in batches:
            under_way.append(asyncio.create_task(self._client.publish_batch("Tick", each)))
            if len(under_way) >= IN_FLIGHT:
                await under_way.popleft()
        await asyncio.gather(*under_way)
        return {"first_ns": first_ns}

    async def _trickle(self, events: int, rate: int) -> dict[str, Any]:
        prepared = ticks(events).to_pylist()
        loop = asyncio.get_running_loop()
        began = loop.time()
        under_way: set[asyncio.Task[None]] = set()
        for number, event in enumerate(prepared):
            wait = began + number / rate - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            event["time"] = datetime.now(UTC)
            task = asyncio.ensure_future(self._client.publish("Tick", **event))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        return {"seconds": loop.time() - began}


class Subscriber:
    """Receives a number of events and says when they came and how long each took."""

    def __init__(self, address: str) -> None:
        self._client = Client(address, name="subscriber")
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        await self._client.__aenter__()
        self._subscription = await self._client.subscribe(TICK, "price >= $floor", floor=0.0)

    async def obey(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await self._receive(**arguments)

    async def _receive(self, events: int) -> dict[str, Any]:
        assert self._subscription is not None
        received = 0
        first_ns = 0
        delays: list[np.ndarray] = []
        gc.disable()
        async for batch in self._subscription.batches():
            now_ns = time.time_ns()
            first_ns = first_ns or now_ns
            received += len(batch)
            delays.append(now_ns / 1e6 - _times_us(batch) / 1e3)
            if received >= events:
                break
        gc.enable()
        delays_ms = np.concatenate(delays)
        p50, p99 = np.percentile(delays_ms, (50, 99))
        return {"first_ns": first_ns, "last_ns": now_ns, "events": received, "p50_ms": p50, "p99_ms": p99}


def _times_us(batch: EventBatch) -> np.ndarray:
    times = batch.record_batch.column("time").cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False), dtype=np.float64)


class Crowd:
    """A client at each broker with many parametric subscriptions; takes what they match and counts it."""

    def __init__(self, addresses: list[str], subscriptions: int) -> None:
        self._clients = [Client(address, name=f"crowd-{i}") for i, address in enumerate(addresses)]
        self._count = subscriptions
        self._tasks: list[asyncio.Task[None]] = []
        self._matches = 0

    async def start(self) -> None:
        rng = np.random.default_rng(SEED)
        for client in self._clients:
            await client.__aenter__()
            limits = rng.uniform(180.0, 280.0, self._count).tolist()
            self._tasks.append(asyncio.create_task(self._take(client.deliveries())))
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

    async def _take(self, deliveries: Deliveries) -> None:
        async for matches in deliveries:
            self._matches += len(matches.ids)

    async def obey(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"matches": self._matches}


async def main(role: str, settings: dict[str, Any]) -> None:
    roles: dict[str, Callable[..., Role]] = {"publisher": Publisher, "subscriber": Subscriber, "crowd": Crowd}
    worker: Role = roles[role](**settings)
    await worker.start()
    print(json.dumps({"ready": role}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        print(json.dumps(await worker.obey(asked["command"], asked["arguments"])), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))

"""The clients of the chains of `covey bench chain`, each a process. Of the subscriber's intervals none covers
another, so each update is a message on every link towards the publisher of `Spot`, and is acknowledged when
it has taken effect at the publisher's broker."""

from __future__ import annotations

import asyncio
import gc
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache, wraps
from typing import Any, Self

import numpy as np
import pyarrow as pa

from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.overlay.client.inbox import Deliveries
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.processes import Role, serve

TICK = EventType("Tick", {"symbol": "string", "price": "float64", "volume": "int64", "time": "timestamp"})
SYMBOLS = [f"S{number:02d}" for number in range(100)]
SEED = 20_101
SPOT = EventType("Spot", {"level": "float64"})
SUBSCRIPTIONS = 512
_TURN_S = 0.001
"""How often the publisher wakes at a high rate, to publish due events."""


@lru_cache(maxsize=2)
def ticks(count: int) -> pa.RecordBatch:
    rng = np.random.default_rng(SEED)
    return pa.record_batch(
        [
            pa.array([SYMBOLS[number] for number in rng.integers(0, len(SYMBOLS), count)]),
            pa.array(np.round(rng.uniform(100.0, 200.0, count), 2)),
            pa.array(rng.integers(1, 10_000, count)),
            pa.array(np.full(count, time.time_ns() // 1000), type=pa.timestamp("us", tz="UTC")),
        ],
        schema=TICK.arrow_schema,
    )


def undisturbed(command: Callable[..., Awaitable[dict[str, Any]]]) -> Callable[..., Any]:
    """Decorates a command of a worker: no garbage collection while it runs."""

    @wraps(command)
    async def run(*given: Any, **arguments: Any) -> dict[str, Any]:
        gc.disable()
        response = await command(*given, **arguments)
        gc.enable()
        return response

    return run


class Publisher(Role):
    """Publishes batches at full speed, single events one after the other, or single events at a rate; returns
    the time of the first publish."""

    @abstractmethod
    async def send(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    async def send_event(self, event: dict[str, Any]) -> None: ...

    @undisturbed
    async def batches(self, events: int, batch: int) -> dict[str, Any]:
        prepared = ticks(events)
        batches = [prepared.slice(start, batch) for start in range(0, events, batch)]
        first_ns = time.time_ns()
        for each in batches:
            await self.send(each)
        return {"first_ns": first_ns}

    @undisturbed
    async def sequence(self, events: int) -> dict[str, Any]:
        prepared = ticks(events).to_pylist()
        first_ns = time.time_ns()
        for event in prepared:
            await self.send_event(event)
        return {"first_ns": first_ns}

    @undisturbed
    async def trickle(self, events: int, rate: int) -> dict[str, Any]:
        prepared = ticks(events).to_pylist()
        clock = asyncio.get_running_loop().time
        sent = 0
        first_ns = time.time_ns()
        began = clock()
        while sent < events:
            due = min(events, int((clock() - began) * rate) + 1)
            for event in prepared[sent:due]:
                event["time"] = datetime.now(UTC)
                await self.send_event(event)
            sent = due
            await asyncio.sleep(max(_TURN_S, began + sent / rate - clock()))
        return {"first_ns": first_ns}


class Arrivals:
    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._received = 0
        self._last_ns = 0
        self._delays_ms: list[np.ndarray] = []

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch; return whether the expected number has arrived."""
        self._last_ns = time.time_ns()
        times_us = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        self._delays_ms.append(self._last_ns / 1e6 - times_us / 1e3)
        self._received += batch.num_rows
        return self._received >= self._expected

    def as_response(self) -> dict[str, Any]:
        p50, p99 = np.percentile(np.concatenate(self._delays_ms), (50, 99))
        return {"last_ns": self._last_ns, "p50_ms": p50, "p99_ms": p99}


class Sink(Role):
    @abstractmethod
    async def arrived(self) -> pa.RecordBatch:
        """The next events."""

    @abstractmethod
    def source(self, address: str) -> Publisher:
        """A publisher in this process."""

    @undisturbed
    async def receive(self, events: int) -> dict[str, Any]:
        arrivals = Arrivals(events)
        while not arrivals.add(await self.arrived()):
            pass
        return arrivals.as_response()

    @undisturbed
    async def one_by_one(self, events: int, address: str) -> dict[str, Any]:
        """Publish an event at the near end, wait for its arrival here, and go on with the next."""
        source = self.source(address)
        await source.start()
        times_ms = []
        for event in ticks(events).to_pylist():
            start_ns = time.perf_counter_ns()
            await source.send_event(event)
            await self.arrived()
            times_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
        await source.stop()
        return {"p50_ms": float(np.median(times_ms))}


class AwaitedUpdates:
    def __init__(self, subscriptions: list[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._moves = 0

    @classmethod
    async def of(cls, client: Client) -> Self:
        text = "level between $low and $high"
        subscribing = (
            client.subscribe(SPOT, text, low=2.0 * place, high=2.0 * place + 1)
            for place in range(SUBSCRIPTIONS)
        )
        return cls(list(await asyncio.gather(*subscribing)))

    async def measure(self, updates: int, concurrent: int) -> dict[str, Any]:
        """Updates per second with `concurrent` awaited at a time, and the median time of one in ms."""
        share = max(1, updates // concurrent)
        start_ns = time.perf_counter_ns()
        times_ms = await asyncio.gather(*(self._move(place, share) for place in range(concurrent)))
        took_s = (time.perf_counter_ns() - start_ns) / 1e9
        self._moves += share
        return {"per_s": share * concurrent / took_s, "p50_ms": float(np.median(times_ms))}

    async def _move(self, place: int, count: int) -> list[float]:
        times_ms = []
        for step in range(self._moves, self._moves + count):
            low = 2.0 * place + (step % 2 + 1) / 4
            start_ns = time.perf_counter_ns()
            await self._subscriptions[place].update(low=low, high=low + 1.0)
            times_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
        return times_ms


class ClientPublisher(Publisher):
    def __init__(self, address: str) -> None:
        self._client = Client(address)

    async def start(self) -> None:
        await self._client.open()
        await self._client.advertise(TICK)
        await self._client.advertise(SPOT)

    async def stop(self) -> None:
        await self._client.close()

    async def send(self, batch: pa.RecordBatch) -> None:
        await self._client.publish_batch("Tick", batch)

    async def send_event(self, event: dict[str, Any]) -> None:
        await self._client.publish("Tick", **event)


class Subscriber(Sink):
    def __init__(self, address: str) -> None:
        self._client = Client(address)
        self._updates: AwaitedUpdates | None = None

    async def start(self) -> None:
        await self._client.open()
        subscription: Subscription = await self._client.subscribe(TICK, "price >= $floor", floor=0.0)
        self._batches = subscription.batches()

    async def updates(self, updates: int, concurrent: int) -> dict[str, Any]:
        if self._updates is None:
            self._updates = await AwaitedUpdates.of(self._client)
        return await self._updates.measure(updates, concurrent)

    async def arrived(self) -> pa.RecordBatch:
        return (await anext(self._batches)).record_batch

    def source(self, address: str) -> Publisher:
        return ClientPublisher(address)

    async def stop(self) -> None:
        await self._client.close()


class Crowd:
    """A client at each broker with many parametric subscriptions; counts their matches."""

    def __init__(self, addresses: list[str], subscriptions: int) -> None:
        self._clients = [Client(address, name=f"crowd-{i}") for i, address in enumerate(addresses)]
        self._count = subscriptions
        self._tasks: list[asyncio.Task[None]] = []
        self._matches = 0

    async def start(self) -> None:
        rng = np.random.default_rng(SEED)
        for client in self._clients:
            await client.open()
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

    async def _count_matches(self, deliveries: Deliveries) -> None:
        async for delivery in deliveries:
            self._matches += len(delivery.ids)

    async def count(self) -> dict[str, Any]:
        for task in self._tasks:
            if task.done():
                task.result()  # a task ends only by an exception
        return {"matches": self._matches}

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client in self._clients:
            await client.close()


class IdleClients:
    def __init__(self, address: str, clients: int) -> None:
        self._clients = [Client(address) for _ in range(clients)]

    async def start(self) -> None:
        await asyncio.gather(*(client.open() for client in self._clients))

    async def stop(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))


ROLES: dict[str, Callable[..., Role]] = {
    "publisher": ClientPublisher,
    "subscriber": Subscriber,
    "crowd": Crowd,
    "idle": IdleClients,
}

if __name__ == "__main__":
    serve(ROLES, run)

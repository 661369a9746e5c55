"""The clients of Covey's chain in `covey bench chain`, each a process: the publisher, the subscriber, the
crowd, and idle clients.

The subscriber's updates are awaited: none of its intervals covers another, so each is a message on every link
towards the publisher of `Spot`, and counts once it has taken effect at the publisher's broker and is
acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pyarrow as pa

from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.overlay.client.inbox import Deliveries
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.bench.chain_load import SEED, SYMBOLS, TICK, Publisher, Role, Sink, serve_commands

SPOT = EventType("Spot", {"level": "float64"})
SUBSCRIPTIONS = 512


class AwaitedUpdates:
    """The subscriptions, each with an interval that moves back and forth within its range."""

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
        """Updates per second with so many awaited at a time, and the median time of one in ms."""
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
    """Publishes through a Covey client."""

    def __init__(self, address: str) -> None:
        self._client = Client(address)

    async def start(self) -> dict[str, Any]:
        await self._client.open()
        await self._client.advertise(TICK)
        await self._client.advertise(SPOT)
        return {}

    async def stop(self) -> None:
        await self._client.close()

    async def send(self, batch: pa.RecordBatch) -> None:
        await self._client.publish_batch("Tick", batch)

    async def send_event(self, event: dict[str, Any]) -> None:
        await self._client.publish("Tick", **event)


class Subscriber(Sink):
    """Receives through a Covey client, which also moves subscriptions."""

    def __init__(self, address: str) -> None:
        self._client = Client(address)
        self._updates: AwaitedUpdates | None = None

    async def start(self) -> dict[str, Any]:
        await self._client.open()
        subscription: Subscription = await self._client.subscribe(TICK, "price >= $floor", floor=0.0)
        self._batches = subscription.batches()
        return {}

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if command != "updates":
            return await super().execute(command, arguments)
        if self._updates is None:
            self._updates = await AwaitedUpdates.of(self._client)
        return await self._updates.measure(**arguments)

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

    async def start(self) -> dict[str, Any]:
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


class IdleClients:
    """Many clients of one broker that are connected and do nothing."""

    def __init__(self, address: str, clients: int) -> None:
        self._clients = [Client(address) for _ in range(clients)]

    async def start(self) -> dict[str, Any]:
        await asyncio.gather(*(client.open() for client in self._clients))
        return {}

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"connected": sum(client.connected for client in self._clients)}

    async def stop(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))


ROLES: dict[str, Callable[..., Role]] = {
    "publisher": ClientPublisher,
    "subscriber": Subscriber,
    "crowd": Crowd,
    "idle": IdleClients,
}

if __name__ == "__main__":
    run(serve_commands(ROLES[sys.argv[1]](**json.loads(sys.argv[2]))))

"""Awaited updates of one client: how many per second take effect in the whole overlay, how long one takes.

None of the client's intervals covers another, so every update is a message on every link towards the
publisher of `Spot`. It counts once it has taken effect at the publisher's broker and is acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self

import numpy as np

from covey.matcher import EventType
from covey.overlay import Client, Subscription

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

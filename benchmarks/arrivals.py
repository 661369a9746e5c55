"""What arrives at a subscription of a benchmark: the `number` of each event, and its age by `sent_ns`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np

from covey.matcher.errors import CoveyError
from covey.overlay import Subscription

PATIENCE_S = 60.0


class Arrivals:
    """Reads a subscription. `numbers` and `latencies` (ns) have an array for each batch."""

    def __init__(self, subscription: Subscription) -> None:
        self.numbers: list[np.ndarray[Any, Any]] = []
        self.latencies: list[np.ndarray[Any, Any]] = []
        self.count = 0
        self.newest = -1
        self._task = asyncio.create_task(self._read(subscription))

    async def _read(self, subscription: Subscription) -> None:
        async for batch in subscription.batches():
            now_ns = time.perf_counter_ns()
            columns = batch.record_batch
            numbers = columns.column("number").to_numpy()
            self.numbers.append(numbers)
            self.latencies.append(now_ns - columns.column("sent_ns").to_numpy())
            self.count += len(numbers)
            self.newest = max(self.newest, int(numbers.max()))

    def clear(self) -> None:
        """Forget what has arrived."""
        self.numbers, self.latencies, self.count, self.newest = [], [], 0, -1

    async def until(self, reached: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for arrivals. `CoveyError` after so long."""
        deadline = time.perf_counter() + patience_s
        while not reached():
            if self._task.done():
                self._task.result()
            if time.perf_counter() > deadline:
                raise CoveyError(f"{what}: expected within {patience_s:g} s; {self.count:,} have arrived")
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """End reading."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@asynccontextmanager
async def arrivals(subscription: Subscription) -> AsyncIterator[Arrivals]:
    """What arrives within the block, at whose end the subscription ends."""
    reader = Arrivals(subscription)
    try:
        yield reader
    finally:
        await reader.stop()
    await subscription.unsubscribe()

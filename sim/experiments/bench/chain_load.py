"""What the chains of `covey bench chain` have in common: the events, the publisher's side, the arrivals.

The clients of a chain, and its relays, are processes. A worker starts with a role and its settings, prints a
line of JSON when it is ready, and then answers each line of JSON on standard input with one on standard
output, until the input ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from covey.matcher import EventType

TICK = EventType("Tick", {"symbol": "string", "price": "float64", "volume": "int64", "time": "timestamp"})
SYMBOLS = [f"S{number:02d}" for number in range(100)]
SEED = 20_101
_TURN_S = 0.001
"""How often the publisher wakes at a high rate, to publish what is due."""


@lru_cache(maxsize=2)
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
    """Publishes batches at full speed, single events one after the other, or single events at a rate.

    How an event is sent is up to the subclass.
    """

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        commands: dict[str, Callable[..., Awaitable[int]]] = {
            "batches": self._batches,
            "sequence": self._sequence,
            "trickle": self._trickle,
        }
        gc.disable()
        first_ns = await commands[command](**arguments)
        gc.enable()
        return {"first_ns": first_ns}

    @abstractmethod
    async def start(self) -> dict[str, Any]: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def send(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    async def send_event(self, event: dict[str, Any]) -> None: ...

    async def _batches(self, events: int, batch: int) -> int:
        prepared = ticks(events)
        batches = [prepared.slice(start, batch) for start in range(0, events, batch)]
        first_ns = time.time_ns()
        for each in batches:
            await self.send(each)
        return first_ns

    async def _sequence(self, events: int) -> int:
        prepared = ticks(events).to_pylist()
        first_ns = time.time_ns()
        for event in prepared:
            await self.send_event(event)
        return first_ns

    async def _trickle(self, events: int, rate: int) -> int:
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
        return first_ns


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


class Sink(ABC):
    """The far end of a chain: receives events, and reports their arrival times and latencies."""

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        gc.disable()
        response = await (
            self._receive(**arguments) if command == "receive" else self._one_by_one(**arguments)
        )
        gc.enable()
        return response

    @abstractmethod
    async def start(self) -> dict[str, Any]: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def arrived(self) -> pa.RecordBatch:
        """The next events."""

    @abstractmethod
    def source(self, address: str) -> Publisher:
        """A publisher in this process."""

    async def _receive(self, events: int) -> dict[str, Any]:
        arrivals = Arrivals(events)
        while not arrivals.add(await self.arrived()):
            pass
        return arrivals.as_response()

    async def _one_by_one(self, events: int, address: str) -> dict[str, Any]:
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


async def serve_commands(role: Role) -> None:
    """Execute commands until standard input ends."""
    print(json.dumps(await role.start()), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        print(json.dumps(await role.execute(request["command"], request["arguments"])), flush=True)
    await role.stop()

"""`durable`: what storing events costs.

    publisher -> b1 -> b2 -> b3 -> subscriber

Brokers are processes; publisher and subscriber share one, and so a clock. The same events are published
as a type that each broker stores before it acknowledges, and as one in memory; beside them, appends of 4
KiB to a file of the same file system, each with an `fdatasync`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from benchmarks.harness import Arrivals, Counts, arrivals, command, p50_p99_ms, pair, steady
from covey.cli.support.output import print_table
from covey.matcher import EventType
from covey.overlay import Client
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.progress import Progress, silent

_ATTRIBUTES = {"number": "int64", "sent_ns": "int64", "text": "string"}
TYPES = {"in memory": EventType("Passing", _ATTRIBUTES), "durable": EventType("Stored", _ATTRIBUTES)}
_TEXT = "x" * 100
_BLOCK = b"x" * 4096
_CONFIRMED = 200


@dataclass(frozen=True, slots=True)
class DurablePlan:
    """Measure what storing events costs.

    Events pass through three brokers, as a durable type and as one in memory. Beside them are appends to a
    file of the temporary folder, where the brokers store; TMPDIR names another.

    Example: TMPDIR=/var/lib python -m benchmarks durable
    """

    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each measurement.")] = 5.0
    rates: Annotated[tuple[int, ...], Counts("Single events per second")] = (100, 1000)
    batch: Annotated[int, typer.Option(min=1, help="Events in each batch at full speed.")] = 1024


@dataclass(slots=True)
class DurableResult:
    """One type; times in ms, as (p50, p99). `latency_ms`, by rate, is from `publish` to the arrival;
    `confirmed_ms` is of successive `publish(confirm=True)`."""

    kind: str
    events_per_s: float = 0.0
    latency_ms: dict[int, tuple[float, float]] = field(default_factory=dict)
    confirmed_ms: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class DurableResults:
    """`sync_ms` is of the appends to a file."""

    sync_ms: tuple[float, float]
    types: list[DurableResult]


def _sync_ms() -> tuple[float, float]:
    times = []
    with tempfile.TemporaryFile(prefix="covey-") as file:
        for _ in range(_CONFIRMED):
            began = time.perf_counter_ns()
            os.write(file.fileno(), _BLOCK)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter_ns() - began)
    return p50_p99_ms(times)


async def measure_durable(plan: DurablePlan, progress: Progress = silent) -> DurableResults:
    progress("starting three brokers in a row", 0.0)
    async with (
        LocalOverlay(chain(3), event_types=[*TYPES.values()], durable=[TYPES["durable"].name]) as overlay,
        Client(overlay.addresses["b1"]) as publisher,
        Client(overlay.addresses["b3"], "reader", durable=True) as subscriber,
    ):
        sync_ms = await asyncio.to_thread(_sync_ms)
        results = []
        for at, (kind, event_type) in enumerate(TYPES.items()):
            progress(f"{kind}: throughput and latency", 0.1 + 0.4 * at)
            await publisher.advertise(event_type)
            async with arrivals(await subscriber.subscribe(event_type)) as reader:
                results.append(await _measured(kind, event_type, publisher, reader, plan))
        await subscriber.close(end=True)
    return DurableResults(sync_ms, results)


async def _measured(
    kind: str, event_type: EventType, publisher: Client, reader: Arrivals, plan: DurablePlan
) -> DurableResult:
    result = DurableResult(kind)
    numbers = pa.array(np.arange(plan.batch))
    columns = [numbers, pa.array(np.zeros(plan.batch, np.int64)), pa.array([_TEXT] * plan.batch)]
    batch = pa.record_batch(columns, schema=event_type.arrow_schema)
    began, sent = time.perf_counter(), 0
    while time.perf_counter() - began < plan.seconds:
        await publisher.publish_batch(event_type.name, batch)
        sent += plan.batch
    await reader.until_count(sent, f"{sent:,} events in batches")
    result.events_per_s = sent / (time.perf_counter() - began)
    for rate in plan.rates:
        reader.clear()
        sent = round(rate * plan.seconds)
        async for number in steady(rate, sent):
            sent_ns = time.perf_counter_ns()
            await publisher.publish(event_type.name, number=number, sent_ns=sent_ns, text=_TEXT)
        await reader.until_count(sent, f"{sent:,} single events")
        result.latency_ms[rate] = p50_p99_ms(np.concatenate(reader.latencies))
    times = []
    for number in range(_CONFIRMED):
        sent_ns = time.perf_counter_ns()
        await publisher.publish(event_type.name, number=number, sent_ns=sent_ns, text=_TEXT, confirm=True)
        times.append(time.perf_counter_ns() - sent_ns)
    result.confirmed_ms = p50_p99_ms(times)
    return result


def show(plan: DurablePlan, results: DurableResults) -> None:
    rows: list[list[object]] = [["events per second", *(round(each.events_per_s) for each in results.types)]]
    for rate in plan.rates:
        times = [pair(each.latency_ms[rate]) for each in results.types]
        rows.append([f"latency at {rate:,} per second, p50 / p99 ms", *times])
    rows.append(["confirmed publish, p50 / p99 ms", *(pair(each.confirmed_ms) for each in results.types)])
    print_table("Three brokers in a row", ["", *(each.kind for each in results.types)], rows)
    print(f"4 KiB appended and synced to a file: p50 / p99 {pair(results.sync_ms)} ms")


durable = command(DurablePlan, measure_durable, show, prepare=lambda: None, loop=asyncio.run)

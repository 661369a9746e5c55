"""`durable`: what storing events costs.

    publisher -> b1 -> b2 -> b3 -> subscriber

Brokers are processes; publisher and subscriber share one, so that their clocks are one. The same events are
published as a type that is stored at each broker before it is acknowledged, and as one that is not. Beside
them stand appends of 4 KiB to a file of the same file system, each with an `fdatasync`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from benchmarks.arrivals import Arrivals, arrivals
from covey.cli.support.options import Json, counts
from covey.cli.support.output import print_json, print_table
from covey.cli.support.progress import progress
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
    """Seconds of each measurement, single events per second, and the events of a batch at full speed."""

    seconds: float = 5.0
    rates: tuple[int, ...] = (100, 1000)
    batch: int = 1024


@dataclass(slots=True)
class DurableResult:
    """What one type gave; times in ms, as (p50, p99). `latency_ms` is from `publish` to the arrival, by the
    rate; `confirmed_ms` is of `publish(confirm=True)`, one after the other."""

    kind: str
    events_per_s: float = 0.0
    latency_ms: dict[int, tuple[float, float]] = field(default_factory=dict)
    confirmed_ms: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class DurableResults:
    """All of one run. `sync_ms` is of the appends to a file."""

    sync_ms: tuple[float, float]
    types: list[DurableResult]


def _ms(times_ns: Sequence[int] | np.ndarray[Any, Any]) -> tuple[float, float]:
    p50, p99 = np.percentile(np.asarray(times_ns), (50, 99), method="higher") / 1e6
    return float(p50), float(p99)


def _sync_ms() -> tuple[float, float]:
    times = []
    with tempfile.TemporaryFile(prefix="covey-") as file:
        for _ in range(_CONFIRMED):
            began = time.perf_counter_ns()
            os.write(file.fileno(), _BLOCK)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter_ns() - began)
    return _ms(times)


async def measure_durable(plan: DurablePlan, progress: Progress = silent) -> DurableResults:
    """The costs of durable types over three broker processes in a row."""
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
    await reader.until(lambda: reader.count >= sent, f"{sent:,} events in batches")
    result.events_per_s = sent / (time.perf_counter() - began)
    for rate in plan.rates:
        reader.clear()
        sent = await _at_rate(event_type, publisher, rate, plan.seconds)
        await reader.until(lambda count=sent: reader.count >= count, f"{sent:,} single events")  # type: ignore[misc]
        result.latency_ms[rate] = _ms(np.concatenate(reader.latencies))
    times = []
    for number in range(_CONFIRMED):
        sent_ns = time.perf_counter_ns()
        await publisher.publish(event_type.name, number=number, sent_ns=sent_ns, text=_TEXT, confirm=True)
        times.append(time.perf_counter_ns() - sent_ns)
    result.confirmed_ms = _ms(times)
    return result


async def _at_rate(event_type: EventType, publisher: Client, rate: int, seconds: float) -> int:
    began, count = time.perf_counter(), round(rate * seconds)
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        sent_ns = time.perf_counter_ns()
        await publisher.publish(event_type.name, number=number, sent_ns=sent_ns, text=_TEXT)
    return count


def durable(
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each measurement.")] = 5.0,
    rates: Annotated[
        str, typer.Option(help="Single events per second; several separated by commas.")
    ] = "100,1000",
    batch: Annotated[int, typer.Option(min=1, help="Events in each batch at full speed.")] = 1024,
    json_output: Json = False,
) -> None:
    """Measure what storing events costs.

    Events pass through three brokers, as a durable type and as one in memory. Beside them are appends to a
    file of the temporary folder, where the brokers store; TMPDIR names another.

    Example: TMPDIR=/var/lib python -m benchmarks durable
    """
    plan = DurablePlan(seconds, counts("rates", rates), batch)
    with progress() as on_progress:
        results = asyncio.run(measure_durable(plan, on_progress))
    if json_output:
        print_json(asdict(results))
        return

    def pair(times: tuple[float, float]) -> str:
        return f"{times[0]:.2f} / {times[1]:.2f}"

    rows: list[list[object]] = [["events per second", *(round(each.events_per_s) for each in results.types)]]
    for rate in plan.rates:
        times = [pair(each.latency_ms[rate]) for each in results.types]
        rows.append([f"latency at {rate:,} per second, p50 / p99 ms", *times])
    rows.append(["confirmed publish, p50 / p99 ms", *(pair(each.confirmed_ms) for each in results.types)])
    print_table("Three brokers in a row", ["", *(each.kind for each in results.types)], rows)
    typer.echo(f"4 KiB appended and synced to a file: p50 / p99 {pair(results.sync_ms)} ms")

"""`covey bench durable`: durable types beside those in memory."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, counts


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

    Example: TMPDIR=/var/lib covey bench durable
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.durable import DurablePlan, measure_durable

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

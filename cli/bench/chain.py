"""`covey bench chain`: throughput and latency through three brokers in a row."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from covey.cli.support.options import Json


def chain(
    runs: Annotated[int, typer.Option(min=1, help="Runs; the median counts.")] = 5,
    events: Annotated[int, typer.Option(min=1, help="Events per run.")] = 1_000_000,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="Events per published batch.")] = 1024,
    subscriptions: Annotated[
        int, typer.Option(min=0, help="Additional subscriptions at each broker.")
    ] = 1000,
    rate: Annotated[int, typer.Option(min=1, help="Events per second of the latency measurement.")] = 1000,
    low_rate: Annotated[int, typer.Option(min=1, help="Events per second of a second one.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each latency measurement.")] = 10.0,
    bare: Annotated[bool, typer.Option(help="Measure bare gRPC relays as a baseline.")] = True,
    json_output: Json = False,
) -> None:
    """Measure a chain: publisher, three brokers in a row, subscriber, each in its own process.

    The subscriber's filter matches every event. Another client has parametric subscriptions at each broker;
    about 1 % of them match an event. Prints events per second from end to end (the median of the runs) and
    the one-way latency of single events at two steady rates. The baseline is a chain of three relays that
    only parse, filter and forward each message: the cost of gRPC and of the machine.

    Example: covey bench chain --runs 3 --json
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.sim.experiments.bench.chain import ChainPlan, measure_chain

    compile_once()
    plan = ChainPlan(runs, events, batch, subscriptions, rate, low_rate, seconds, bare)
    with progress() as on_progress:
        result = asyncio.run(measure_chain(plan, on_progress))
    if json_output:
        print_json(result.as_json())
        return
    columns = [
        "chain",
        "events/s",
        *(f"{percentile} ms at {each:,}/s" for each in (rate, low_rate) for percentile in ("p50", "p99")),
    ]
    rows = [
        (
            name,
            figures.events_per_s,
            *(ms for each in (figures.latency, figures.low_latency) for ms in (each.p50_ms, each.p99_ms)),
        )
        for name, figures in (("three brokers", result.covey), ("three bare relays", result.bare))
        if figures is not None
    ]
    print_table("Throughput and latency from end to end", columns, rows)
    print(f"{result.matches_per_event:.1f} of the additional subscriptions at each broker match an event")

"""`covey bench soak`: brokers under load for a long time, while clients come and go."""

from __future__ import annotations

from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed


def soak(
    seconds: Annotated[float, typer.Option(min=1.0, help="Duration.")] = 600.0,
    rate: Annotated[
        int, typer.Option(min=0, help="Events per second; 0: half of what the overlay sustains.")
    ] = 0,
    visitors: Annotated[int, typer.Option(min=0, help="Processes of visitors at a time.")] = 3,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Keep three brokers under load while clients come, stall, go, are stopped and are killed.

    Prints what two subscribers missed or got repeatedly, the memory of the brokers, whether it is flat, and
    whether descriptors, sessions or tasks are left behind. Exits with 1 if the run does not pass.

    In an hour or more memory is flat if it rises by less than 1 % an hour, in less time if it rises by less
    than 5 %; the slope is printed with the interval in which it is with 95 %.

    Example: covey bench soak --seconds 3600
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.overlay.transport.event_loop import run
    from covey.sim.experiments.bench.soak import SoakPlan, measure_soak

    compile_once()
    with progress() as on_progress:
        plan = SoakPlan(seconds=seconds, rate=rate or None, visitors=visitors, seed=seed)
        result = run(measure_soak(plan, on_progress))
    if json_output:
        print_json(result.as_json())
    else:
        rows = [
            [each.broker, each.seconds, each.memory_mb, each.descriptors, each.sessions, each.tasks]
            for each in result.samples
        ]
        columns = ["broker", "seconds", "memory MB", "descriptors", "sessions", "tasks"]
        print_table("Brokers under load", columns, rows)
        print(
            f"{result.published:,} events in {result.seconds:,.0f} s, "
            f"{result.published / max(result.seconds, 1.0):,.0f}/s where {result.rate:,}/s were due; "
            f"of two subscribers {result.missed:,} missed, {result.repeated:,} repeated"
        )
        print(
            f"{result.processes} processes of visitors, {result.killed} killed, {result.stopped} stopped for "
            f"a while; {result.sessions:,} sessions of those that were not killed"
        )
        slopes = ", ".join(
            f"{broker} {slope.percent_per_hour:+.2f} ({slope.low:+.2f} to {slope.high:+.2f})"
            for broker, slope in result.memory.items()
        )
        if slopes:
            print(f"memory, % per hour: {slopes}: {'flat' if result.flat else 'not flat'}")
        else:
            print("memory: too few samples to say whether it is flat")
        print("left behind: " + ("; ".join(result.left) or "nothing"))
    if not result.passed:
        raise typer.Exit(1)

"""`covey bench faults`: durable events while brokers are killed and stopped, links cut, and disks full."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, choices


def faults(
    rate: Annotated[int, typer.Option(min=1, help="Durable events per second.")] = 5_000,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long a broker is stopped, and a link is cut or silent.")
    ] = 10.0,
    kinds: Annotated[
        str,
        typer.Option("--faults", help="Of kill, pause, cut, silence, full; several separated by commas."),
    ] = "kill,pause,cut,silence,full",
    json_output: Json = False,
) -> None:
    """Show what faults do to durable events, and how long until events flow again.

    Events pass through three brokers, each a process. Each broker in turn is killed (kill -9), stopped
    (SIGSTOP) and has a full disk; each link is cut, and falls silent with its connections half-open. Times
    are seconds: until all ends of the broken connections have noticed; from the end of the fault until the
    first event arrives that was published after it, and until all that waited has arrived. Status 1 says that
    events were lost, repeated or out of order.

    Example: covey bench faults --faults pause,silence
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.faults import FAULTS, FaultPlan, measure_faults

    plan = FaultPlan(rate, seconds, choices("faults", kinds, FAULTS))
    with progress() as on_progress:
        results = asyncio.run(measure_faults(plan, on_progress))
    if json_output:
        print_json([asdict(each) for each in results])
    else:
        columns = ["fault", "place", "noticed s", "first event s", "caught up s", "events"]
        rows: list[list[object]] = []
        for each in results:
            noticed_s = "-" if each.noticed_s is None else each.noticed_s
            times = [noticed_s, each.first_event_s, each.caught_up_s]
            counts = [each.published, each.lost, each.repeated, each.reordered]
            rows.append([each.fault, each.place, *times, *counts])
        print_table(
            f"{rate:,} durable events per second through three brokers",
            [*columns, "lost", "repeated", "out of order"],
            rows,
        )
    if any(each.lost or each.repeated or each.reordered for each in results):
        raise typer.Exit(1)

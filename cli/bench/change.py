"""`covey bench change`: events around the change of a subscription."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, counts, words


def change(
    modes: Annotated[
        str, typer.Option(help="parametric, subscribe-first, unsubscribe-first; several separated by commas.")
    ] = "parametric,subscribe-first,unsubscribe-first",
    filters: Annotated[
        str, typer.Option(help="both, disjoint; several separated by commas.")
    ] = "both,disjoint",
    events: Annotated[str, typer.Option(help="Events per second; several separated by commas.")] = "200,2000",
    changes: Annotated[
        str, typer.Option(help="Changes per second; several separated by commas.")
    ] = "10,100,1000",
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each case.")] = 3.0,
    json_output: Json = False,
) -> None:
    """Change a subscription while events flow; count missed, duplicate and stale events.

    Events pass through three brokers. With the filter "both" every event matches before and after each
    change; with "disjoint" it matches only before or only after. subscribe-first and unsubscribe-first are
    the orders of a re-subscription under static routing. An event is expected if, from when it is published
    until it is delivered, it matches the last change in effect and every later one.

    Example: covey bench change --modes parametric --changes 100,1000 --json
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.change import ChangePlan, measure_changes

    plan = ChangePlan(
        words(modes), words(filters), counts("events", events), counts("changes", changes), seconds
    )
    with progress() as on_progress:
        on_progress("starting three brokers in a row", 0.0)
        results = asyncio.run(measure_changes(plan, on_progress))
    if json_output:
        print_json([asdict(result) for result in results])
        return
    columns = {
        "mode": "mode",
        "filters": "filter",
        "events/s": "events_per_s",
        "changes/s": "changes_per_s",
        **{name: name for name in ("published", "expected", "missed", "duplicate", "stale", "spurious")},
        "first new event p50 ms": "first_new_p50_ms",
        "p99 ms": "first_new_p99_ms",
    }
    rows = [[getattr(result, name) for name in columns.values()] for result in results]
    print_table("Changing a subscription while events flow", list(columns), rows)

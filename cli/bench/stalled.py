"""`covey bench stalled`: a subscriber that does not read, and the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, choices


def stalled(
    rate: Annotated[int, typer.Option(min=1, help="Events per second.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each round, at each broker.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="At the first and then the second broker.")] = 5,
    policies: Annotated[
        str,
        typer.Option(
            help="What a full queue does: block, drop_oldest, drop_newest; several separated by commas."
        ),
    ] = "block,drop_oldest,drop_newest",
    json_output: Json = False,
) -> None:
    """Measure the latency of nine subscribers while the tenth does not read.

    Beside it, in turns, the same at another broker where all ten read. The queue of the one that does not is
    full, and what it holds publishers for is over (with block 10 s).

    Example: covey bench stalled --policies block --rounds 11
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.overlay.transport.event_loop import run
    from covey.sim.experiments.bench.stalled import POLICIES, StalledPlan, measure_stalled

    plan = StalledPlan(rate, seconds, rounds, choices("policies", policies, POLICIES))
    compile_once()
    with progress() as on_progress:
        results = run(measure_stalled(plan, on_progress))
    if json_output:
        print_json([asdict(each) for each in results])
        return
    columns = {
        "slow_consumer": "policy",
        "p50": "p50",
        "p99": "p99",
        "p50, one stalls": "p50_stalled",
        "p99, one stalls": "p99_stalled",
        "ratio of p99": "ratio",
        "published": "published",
        "dropped": "dropped",
    }
    rows = [[getattr(result, name) for name in columns.values()] for result in results]
    print_table(f"{rate:,} events per second to ten subscribers, ms", list(columns), rows)

"""`covey bench spark`: many filters over a DataFrame, by Covey's engine and by joins of Spark."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, Master, Seed, counts

_COLUMNS = {
    "filters": "filters",
    "form": "form",
    "system": "system",
    "pairs": "pairs",
    "first run s": "first_s",
    "second run s": "again_s",
    "CPU s": "cpu_s",
    "events/s": "events_per_s",
}


def spark(
    filters: Annotated[str, typer.Option(help="Numbers of filters, separated by commas.")] = (
        "1000,100000,1000000"
    ),
    events: Annotated[int, typer.Option(min=1, help="Quotes, repeated from 12,154.")] = 200_000,
    join_filters: Annotated[
        int, typer.Option(min=0, help="Measure joins of Spark up to this number of filters.")
    ] = 1_000,
    master: Master = None,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure covey.spark.match over quotes beside Spark's cross join and hash join.

    Both find the same pairs of a quote and a filter. The first run includes shipping and loading the filters.

    Example: covey bench spark --filters 1000 --events 100000 --master 'local[1]'
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.sim.extras import need

    need("covey bench spark", "pyspark", "bokeh_sampledata.stocks")
    from covey.spark.bench import SparkPlan, measure_spark

    plan = SparkPlan(events, counts("filters", filters), join_filters, master, seed)
    compile_once()
    with progress() as on_progress:
        results = measure_spark(plan, on_progress)
    if json_output:
        print_json([asdict(result) | {"events_per_s": result.events_per_s} for result in results])
    else:
        rows = [[getattr(result, name) for name in _COLUMNS.values()] for result in results]
        print_table(f"{events:,} quotes" + (f" at {master}" if master else ""), list(_COLUMNS), rows)

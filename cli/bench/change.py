"""`covey bench change` for people: a progress bar on stderr, one table."""

from __future__ import annotations

import asyncio
import json

from rich.console import Console
from rich.table import Table

from covey.cli.support.options import counts, words
from covey.cli.support.progress import progress
from covey.sim.experiments.bench.change import Plan, Result, measure


def run(modes: str, filters: str, events: str, changes: str, seconds: float, as_json: bool) -> None:
    """Measure, and print the results."""
    plan = Plan(words(modes), words(filters), counts("events", events), counts("changes", changes), seconds)
    with progress() as say:
        say("starting three brokers in a row", 0.0)
        results = asyncio.run(measure(plan, say))
    if as_json:
        print(json.dumps([result.as_json() for result in results], indent=2))
    else:
        Console().print(table(results))


def table(results: list[Result]) -> Table:
    """One line per case."""
    made = Table(title="changing a subscription while events flow")
    made.add_column("mode")
    made.add_column("filters")
    for name in ("events/s", "changes/s", "published", "owed", "missed", "duplicate", "stale", "spurious"):
        made.add_column(name, justify="right")
    made.add_column("change to first new event, p50 / p99 ms", justify="right")
    for result in results:
        times = "-"
        if result.first_new_p50_ms is not None:
            times = f"{result.first_new_p50_ms:.1f} / {result.first_new_p99_ms:.1f}"
        numbers = (
            result.published,
            result.owed,
            result.missed,
            result.duplicate,
            result.stale,
            result.spurious,
        )
        made.add_row(
            result.mode,
            result.filter,
            f"{result.events_per_s:,.0f}",
            f"{result.changes_per_s:,.0f}",
            *(f"{number:,}" for number in numbers),
            times,
        )
    return made

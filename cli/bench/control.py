"""`covey bench control` for people: a progress bar on stderr, one table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from covey.cli.support.options import words
from covey.cli.support.progress import progress

if TYPE_CHECKING:
    from covey.sim.experiments.bench.control import Result


def run(loads: str, modes: str, as_json: bool, **options: Any) -> None:
    """Measure, and print the results."""
    from covey.sim.experiments.bench.control import Plan, measure

    plan = Plan(words(loads), words(modes), **options)
    with progress() as say:
        results = measure(plan, say)
    if as_json:
        print(json.dumps([result.as_json() for result in results], indent=2))
    else:
        Console().print(table(results))


def table(results: list[Result]) -> Table:
    """One line per load and mode, with how many times fewer messages than under parametric routing."""
    made = Table(title="control messages of moving subscriptions")
    made.add_column("load")
    made.add_column("mode")
    names = ("changes", "link messages", "per change and link", "parametric / this", "client messages")
    for name in (*names, "events over links", "delivered", "spurious"):
        made.add_column(name, justify="right")
    parametric = {r.load: r.link_messages for r in results if r.mode == "parametric"}
    for result in results:
        fewer = parametric.get(result.load, 0) / result.link_messages if result.link_messages else 0.0
        made.add_row(
            result.load,
            result.mode,
            f"{result.changes:,}",
            f"{result.link_messages:,}",
            f"{result.per_change_and_link:.4f}",
            f"{fewer:.2f}" if fewer else "-",
            f"{result.client_messages:,}",
            f"{result.events_over_links:,}",
            f"{result.delivered:,}",
            f"{result.spurious:,}",
        )
    return made

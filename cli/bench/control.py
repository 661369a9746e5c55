"""`covey bench control`: the control messages of moving subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed, words


def control(
    loads: Annotated[
        str, typer.Option(help="trading, highway, oscillating, cruising; several separated by commas.")
    ] = "trading,highway,oscillating,cruising",
    modes: Annotated[
        str, typer.Option(help="static, parametric, damping, motion; several separated by commas.")
    ] = "static,parametric,damping,motion",
    brokers: Annotated[int, typer.Option(min=2, help="Brokers of the overlay.")] = 7,
    subscribers: Annotated[int, typer.Option(min=1, help="Subscribers; each changes once a second.")] = 40,
    seconds: Annotated[int, typer.Option(min=1, help="Virtual seconds.")] = 120,
    damping: Annotated[float, typer.Option(min=0.0, help="Typical steps of slack, for mode damping.")] = 8.0,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Count the control messages that moving subscriptions cost, in virtual time.

    Example: covey bench control --loads oscillating --modes parametric,damping
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.control import ControlPlan, measure_control

    plan = ControlPlan(words(loads), words(modes), brokers, subscribers, seconds, damping, seed)
    with progress() as on_progress:
        results = measure_control(plan, on_progress)
    if json_output:
        print_json([result.as_json() for result in results])
        return
    columns = {
        "load": "load",
        "mode": "mode",
        "changes": "changes",
        "link messages": "link_messages",
        "per change and link": "per_change_and_link",
        "client messages": "client_messages",
        "events over links": "events_over_links",
        "delivered": "delivered",
        "spurious": "spurious",
    }
    parametric = {result.load: result.link_messages for result in results if result.mode == "parametric"}
    rows = [
        [
            *(getattr(result, name) for name in columns.values()),
            parametric[result.load] / result.link_messages
            if result.link_messages and result.load in parametric
            else None,
        ]
        for result in results
    ]
    print_table("Control messages of moving subscriptions", [*columns, "parametric / this"], rows)

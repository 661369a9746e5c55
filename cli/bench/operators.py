"""`covey bench operators`: filters that call expensive operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed


def operators(
    subscriptions: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 1_000,
    calls: Annotated[int, typer.Option(min=5, help="Distinct calls that they share.")] = 200,
    events: Annotated[int, typer.Option(min=1, help="Events per batch.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Batches that each strategy matches.")] = 5,
    cost_us: Annotated[float, typer.Option(min=0, help="Cost of one call for one event, in µs.")] = 100.0,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Match filters whose calls cost real time, by every strategy of evaluation.

    Each subscription has 3 to 5 calls; 0.2 % of them match an event. "operators only": filters are calls
    alone. "gated": each filter also tests an attribute, which leaves one in 20 open for an event, and which
    the cluster engine tests first. All strategies match the same batches in turns; answers are compared.
    Then the calls alone are subscribed to in a chain of 5 simulated brokers, in one process: evaluations in
    all of them, with and without answers that subscriptions share and results that travel.

    Example: covey bench operators --cost-us 20 --json
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.sim.experiments.bench.operators import OperatorsPlan, measure_operators
    from covey.sim.experiments.bench.operators_overlay import BROKERS, measure_placements

    plan = OperatorsPlan(subscriptions, calls, events, rounds, cost_us, seed=seed)
    compile_once()
    with progress() as on_progress:
        results = measure_operators(plan, on_progress)
        placements = measure_placements(plan, on_progress)
    if json_output:
        print_json(
            {
                "matching": [asdict(result) for result in results],
                "overlay": [asdict(result) for result in placements],
            }
        )
        return
    naive = {result.filters: result for result in results if result.strategy == "naive"}
    rows = [
        [
            result.filters,
            result.strategy,
            round(result.evaluations, 1),
            f"{1 - result.evaluations / max(naive[result.filters].evaluations, 1e-9):.0%}",
            round(result.calls, 2),
            round(result.ms, 3),
            round(result.ms - result.evaluations * cost_us / 1e3, 3),
            round(result.matches, 2),
        ]
        for result in results
    ]
    print_table(
        f"{subscriptions:,} subscriptions, {calls:,} distinct calls of {cost_us:g} µs, per event",
        ["filters", "strategy", "evaluations", "less than naive", "calls", "ms", "of it other", "matches"],
        rows,
    )
    print_table(
        f"a chain of {BROKERS} brokers, per event",
        ["placement", "evaluations", "events per link", "deliveries", "events/s"],
        [
            [
                result.placement,
                round(result.evaluations, 1),
                round(result.messages / (BROKERS - 1), 2),
                round(result.deliveries, 2),
                round(result.events_per_s),
            ]
            for result in placements
        ],
    )

"""`drift`: adaptation to subscriptions and events that change."""

from __future__ import annotations

from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed, words
from covey.cli.support.output import print_json, print_table
from covey.cli.support.progress import load_kernels, progress
from covey.sim.experiments.bench.drift import DriftPlan, measure_drift
from covey.sim.progress import labelled


def drift(
    drifts: Annotated[
        str, typer.Option(help="attributes, skew; several separated by commas.")
    ] = "attributes,skew",
    subscriptions: Annotated[int, typer.Option(min=100, help="Subscriptions at any time.")] = 100_000,
    steps: Annotated[int, typer.Option(min=1, help="Steps in which all are replaced.")] = 8,
    events: Annotated[int, typer.Option(min=1_000, help="Events matched per measurement.")] = 20_000,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements; the median counts.")] = 5,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure how the cluster engine adapts to subscriptions and events that change.

    Compares its dynamic configuration with one that never changes and with the best one for the final state.

    Example: python -m benchmarks drift --drifts skew --subscriptions 100000
    """
    plans = [
        DriftPlan(
            name, subscriptions=subscriptions, steps=steps, events=events, repetitions=repetitions, seed=seed
        )
        for name in words(drifts)
    ]
    load_kernels()
    results = []
    for plan in plans:
        with progress() as on_progress:
            result = measure_drift(plan, labelled(on_progress, plan.drift))
        results.append(result)
        if not json_output:
            print_table(
                f"{plan.drift}, {subscriptions:,} subscriptions: events/s",
                ("configuration", "start", *(f"step {step}" for step in range(1, steps + 1)), "again"),
                [(name, *rates, *[None] * (steps + 2 - len(rates))) for name, rates in result.rates.items()],
            )
            print(
                f"best static configuration for the final state: {result.optimum:,.0f} events/s; "
                f"dynamic reaches {result.rates['dynamic'][-1] / result.optimum:.0%} of it"
            )
    if json_output:
        print_json([result.as_json() for result in results])

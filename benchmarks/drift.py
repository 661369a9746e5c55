"""`drift`: adaptation to changing subscriptions and events."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from benchmarks.harness import Words, command
from covey.cli.support.options import Seed
from covey.cli.support.output import load_kernels, print_table
from covey.sim.experiments.bench.drift import DRIFTS, DriftPlan, DriftResult, measure_drift
from covey.sim.progress import Progress, labelled


@dataclass(frozen=True, slots=True)
class Plan:
    """Measure how the cluster engine adapts to subscriptions and events that change.

    Compares its dynamic configuration with one that never changes and with the best one for the final state.

    Example: python -m benchmarks drift --drifts skew --subscriptions 100000
    """

    drifts: Annotated[tuple[str, ...], Words("What changes", DRIFTS)] = tuple(DRIFTS)
    subscriptions: Annotated[int, typer.Option(min=100, help="Subscriptions at any time.")] = 100_000
    steps: Annotated[int, typer.Option(min=1, help="Steps in which all are replaced.")] = 8
    events: Annotated[int, typer.Option(min=1_000, help="Events matched per measurement.")] = 20_000
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements; the median counts.")] = 5
    seed: Seed = 0


def measure(plan: Plan, progress: Progress) -> list[DriftResult]:
    sizes = {name: value for name, value in asdict(plan).items() if name != "drifts"}
    return [measure_drift(DriftPlan(name, **sizes), labelled(progress, name)) for name in plan.drifts]


def show(plan: Plan, results: list[DriftResult]) -> None:
    steps = [f"step {step}" for step in range(1, plan.steps + 1)]
    for result in results:
        print_table(
            f"{result.drift}, {plan.subscriptions:,} subscriptions: events/s",
            ("configuration", "start", *steps, "again"),
            [(name, *rates, *[None] * (plan.steps + 2 - len(rates))) for name, rates in result.rates.items()],
        )
        print(
            f"best static configuration for the final state: {result.optimum:,.0f} events/s; "
            f"dynamic reaches {result.rates['dynamic'][-1] / result.optimum:.0%} of it"
        )


drift = command(Plan, measure, show, prepare=load_kernels)

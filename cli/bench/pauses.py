"""`covey bench pauses`: the longest calls while subscriptions change."""

from __future__ import annotations

from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed, counts, words


def pauses(
    workload: Annotated[
        str,
        typer.Option(
            help="W0, W2, SYMBOLS, SYMBOLS-tail, VEHICLES, BOX; several separated by commas. all: these."
        ),
    ] = "SYMBOLS",
    subscriptions: Annotated[str, typer.Option(help="Numbers, separated by commas.")] = "100000",
    rounds: Annotated[int, typer.Option(min=1, help="Calls of each kind.")] = 5_000,
    changes: Annotated[
        int, typer.Option(min=1, help="Subscriptions that are updated, removed and added per round.")
    ] = 100,
    engine: Annotated[str, typer.Option(help="The engine.")] = "cluster",
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure how long single calls take while subscriptions change.

    Every round updates some subscriptions, removes some, matches one event, and adds those removed.

    Example: covey bench pauses --workload W2 --subscriptions 1000000
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import load_kernels, progress
    from covey.sim.experiments.bench.pauses import CALLS, PausePlan, measure_pauses
    from covey.sim.progress import labelled
    from covey.sim.workload import WORKLOADS
    from covey.sim.workload.options import find_workload

    names = WORKLOADS if workload == "all" else words(workload)
    workloads = [find_workload(name, WORKLOADS, []) for name in names]
    plan = PausePlan(rounds=rounds, changes=changes, engine=engine, seed=seed)
    load_kernels()
    results = []
    for each in workloads:
        for size in counts("subscriptions", subscriptions):
            with progress() as on_progress:
                result = measure_pauses(each, size, plan, labelled(on_progress, f"{each.name} {size:,}"))
            results.append(result)
            if not json_output:
                print_table(
                    f"{each.name}, {size:,} subscriptions, {changes} changed per call: ms",
                    ("call", "p50", "p99", "p99.9", "max"),
                    [(call, *result.line(call).values()) for call in CALLS],
                )
    if json_output:
        print_json([result.as_json() for result in results])

"""`covey bench routing`: the cost of control messages at one broker."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed, counts, words

_COLUMNS = {
    "filters": "filters",
    "poset": "poset",
    "merging": "merging",
    "SUB µs": "sub_us",
    "UPD µs": "upd_us",
    "UPD median µs": "upd_median_us",
    "USUB µs": "usub_us",
    "sent per UPD": "sent",
    "slots": "slots",
    "excess events": "excess",
}


def routing(
    workload: Annotated[
        str, typer.Option(help="W0, W2, SYMBOLS, SYMBOLS-tail, VEHICLES, BOX; several separated by commas.")
    ] = "SYMBOLS,VEHICLES",
    filters: Annotated[
        str, typer.Option(help="Subscriptions; several separated by commas.")
    ] = "1000,10000,100000",
    posets: Annotated[
        str, typer.Option(help="forest, naive, diagram; several separated by commas.")
    ] = "forest,naive",
    updates: Annotated[int, typer.Option(min=1, help="Updates per case.")] = 5_000,
    scan_limit: Annotated[
        int, typer.Option(min=0, help="Skip posets that compare all filters above this number of them.")
    ] = 1_000,
    merging: Annotated[str, typer.Option(help="off, perfect, budget; several separated by commas.")] = "off",
    merging_budget: Annotated[int, typer.Option(min=1, help="Slots, for merging within a budget.")] = 64,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure the cost of SUB, UPD and USUB at an edge broker with many subscriptions.

    Runs a broker core in process, with the subscriptions and updates of a workload and one neighbour that
    publishes. The poset "naive" compares each filter with every other.

    Example: covey bench routing --workload VEHICLES --filters 1000,100000 --json
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import load_kernels, progress
    from covey.sim.experiments.bench.routing import RoutingPlan, RoutingResult, measure_routing
    from covey.sim.workload import WORKLOADS
    from covey.sim.workload.options import find_workload

    plan = RoutingPlan(
        words(posets),
        counts("filters", filters),
        updates,
        mergings=words(merging),
        merging_budget=merging_budget,
        scan_limit=scan_limit,
        seed=seed,
    )
    workloads = [find_workload(name, WORKLOADS) for name in words(workload)]
    load_kernels()
    results: list[RoutingResult] = []
    for each in workloads:
        with progress() as on_progress:
            latest = measure_routing(each, plan, on_progress)
        results += latest
        if not json_output:
            rows = [[getattr(result, name) for name in _COLUMNS.values()] for result in latest]
            print_table(f"{each.name}: µs of one core per message", list(_COLUMNS), rows)
    if json_output:
        print_json({"routing": [asdict(result) for result in results]})

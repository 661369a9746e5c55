"""`covey bench match` for people: what is to be run, a progress bar on stderr, a table per workload."""

from __future__ import annotations

from statistics import median
from typing import Any

from covey.cli.support.options import counts, words
from covey.cli.support.progress import compile_once, named, progress
from covey.matcher import compile_kernels
from covey.sim.experiments.bench.match import Plan, Result, make_engine, measure
from covey.sim.workload import WORKLOADS, Fabret, Workload
from covey.sim.workload.options import find_workload


def run(
    names: str, settings: list[str], sizes: str, engines: str, quiet: bool, **options: Any
) -> list[Result]:
    """All results; prints a table for each workload and size as it is done, unless `quiet`."""
    known: dict[str, Workload] = {**WORKLOADS, "fabret": Fabret()}
    wanted = WORKLOADS if names == "all" else words(names)
    workloads = [find_workload(name, known, settings) for name in wanted]
    numbers = counts("subscriptions", sizes)
    plan = Plan(engines=words(engines, ";" if ";" in engines else ","), **options)
    compile_once()
    compile_kernels()  # loaded before anything is measured
    for engine in plan.engines:
        make_engine(engine, workloads[0], plan.threads)  # compiled, or refused, before anything is measured
    results: list[Result] = []
    for workload in workloads:
        for count in numbers:
            with progress() as say:
                found = measure(workload, count, plan, named(say, f"{workload.name} {count:,}"))
            results += found
            if not quiet:
                print(_table(workload, count, found), flush=True)
    return results


def _table(workload: Workload, count: int, results: list[Result]) -> str:
    headings = "events/s", "min", "max", "matches/event", "load s", "bytes each", "update us", "of many us"
    width = max(len("engine"), *(len(result.engine) for result in results))
    lines = [
        f"{workload.name}, {count:,} subscriptions: {workload.description}",
        f"  {'engine':{width}} {' '.join(f'{heading:>13}' for heading in headings)}",
    ]
    for result in results:
        if not result.complete:
            lines.append(f"  {result.engine:{width}} gave up loading after {result.loaded:,} subscriptions")
            continue
        rates = result.rates
        cells = [
            *[f"{rate:,.0f}" for rate in (median(rates), min(rates), max(rates))],
            f"{result.matches_per_event:,.2f}",
            f"{result.load_s:,.2f}",
            f"{result.bytes_per_subscription:,.0f}",
            f"{result.update_us:,.1f}",
            f"{result.update_many_us:,.2f}",
        ]
        lines.append(f"  {result.engine:{width}} {' '.join(f'{cell:>13}' for cell in cells)}")
    return "\n".join(lines)

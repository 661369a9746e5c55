"""`covey bench match` for people: what is to be run, a progress bar on stderr, a table per workload."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from covey.matcher import compile_kernels, kernels_cached
from covey.matcher.errors import CoveyError
from covey.sim.bench.match import Plan, Result, make_engine, measure
from covey.sim.workloads import WORKLOADS, Fabret, Workload
from covey.sim.workloads.options import find_workload


def run(
    names: list[str], settings: list[str], sizes: str, engines: str, quiet: bool, **options: Any
) -> list[Result]:
    """All results; prints a table for each workload and size as it is done, unless `quiet`."""
    known: dict[str, Workload] = {**WORKLOADS, "fabret": Fabret()}
    wanted = list(WORKLOADS) if names == ["all"] else [name.strip() for name in names]
    workloads = [find_workload(name, known, settings) for name in wanted]
    counts = [_count(text) for text in sizes.split(",")]
    plan = Plan(engines=tuple(engines.split(";" if ";" in engines else ",")), **options)
    messages = Console(stderr=True)
    if not kernels_cached():
        messages.print("compiling the matcher's kernels (once; about half a minute)")
    compile_kernels()
    for engine in plan.engines:
        make_engine(engine, workloads[0], plan.threads)  # compiled, or refused, before anything is measured
    results: list[Result] = []
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=messages, transient=True) as progress:
        for workload in workloads:
            for count in counts:
                task = progress.add_task(f"{workload.name} {count:,}", total=1.0)

                def tell(words: str, done: float, task: Any = task, name: str = workload.name) -> None:
                    progress.update(task, description=f"{name}: {words}", completed=done)

                found = measure(workload, count, plan, tell)
                progress.remove_task(task)
                results += found
                if not quiet:
                    progress.stop()
                    print(_table(workload, count, found), flush=True)
                    progress.start()
    return results


def _count(text: str) -> int:
    try:
        count = int(text.strip().replace("_", ""))
    except ValueError:
        count = 0
    if count < 1:
        raise CoveyError(f"subscriptions {text!r}: expected a number from 1 up")
    return count


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

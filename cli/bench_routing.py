"""`covey bench routing` for people: what is to be run, a progress bar on stderr, a table per workload."""

from __future__ import annotations

import asyncio
import json

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from covey.matcher import compile_kernels, kernels_cached
from covey.matcher.errors import CoveyError
from covey.sim.bench.routing import GrpcPlan, Plan, Result, measure, measure_grpc
from covey.sim.workloads import WORKLOADS
from covey.sim.workloads.options import find_workload

_HEADINGS = (
    "filters",
    "poset",
    "merging",
    "SUB",
    "UPD",
    "median",
    "USUB",
    "sent",
    "slots",
    "excess",
)


def run(names: str, plan: Plan, grpc: GrpcPlan | None, json_output: bool) -> None:
    """Measure, and print tables or JSON."""
    workloads = [find_workload(name.strip(), WORKLOADS, []) for name in names.split(",")]
    messages = Console(stderr=True)
    if not kernels_cached():
        messages.print("compiling the matcher's kernels (once; about half a minute)")
    compile_kernels()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    results: list[Result] = []
    with Progress(*columns, console=messages, transient=True) as progress:
        task = progress.add_task("", total=1.0)

        def say(words: str, share: float) -> None:
            progress.update(task, description=words, completed=share)

        for workload in workloads:
            found = measure(workload, plan, say)
            results += found
            if not json_output:
                progress.stop()
                Console().print(_table(workload.name, found, plan))
                progress.start()
        over_grpc = None if grpc is None else asyncio.run(measure_grpc(grpc, say))
    if json_output:
        document = {"routing": [result.as_json() for result in results]}
        if over_grpc is not None:
            document["grpc"] = over_grpc.as_json()  # type: ignore[assignment]
        print(json.dumps(document, indent=2))
    elif over_grpc is not None:
        runs = ", ".join(f"{rate:,.0f}" for rate in over_grpc.runs)
        print(
            f"over gRPC  {over_grpc.updates_per_s:,.0f} awaited updates/s through three brokers "
            f"(median of {runs}); one takes {over_grpc.upd_ms:g} ms among them"
        )


def counts_of(text: str) -> tuple[int, ...]:
    """Numbers of filters, parted by commas; `CoveyError` for what is none."""
    try:
        counts = tuple(int(part.strip().replace("_", "")) for part in text.split(","))
    except ValueError:
        counts = (0,)
    if min(counts) < 1:
        raise CoveyError(f"filters {text!r}: expected numbers from 1 up, parted by commas")
    return counts


def _table(name: str, results: list[Result], plan: Plan) -> Table:
    title = f"{name}: µs of a core per message; messages sent per UPD; slots, and events drawn in excess"
    table = Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0))
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in ("poset", "merging") else "right")
    for result in results:
        if result.upd_us is None:
            note = f"left out: beyond {plan.scan_limit:,}"
            table.add_row(f"{result.filters:,}", result.poset, result.merging, note)
            continue
        table.add_row(
            f"{result.filters:,}",
            result.poset,
            result.merging,
            f"{result.sub_us:,.1f}",
            f"{result.upd_us:,.1f}",
            f"{result.upd_median_us:,.1f}",
            f"{result.usub_us:,.1f}",
            f"{result.sent:g}",
            f"{result.slots:,}",
            f"{result.excess:.1%}",
        )
    return table

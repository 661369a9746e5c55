"""`covey bench routing` for people: what is to be run, a progress bar on stderr, a table per workload."""

from __future__ import annotations

import asyncio
import json

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from covey.cli.support.options import words
from covey.cli.support.progress import compile_once, progress
from covey.matcher import compile_kernels
from covey.sim.experiments.bench.routing import GrpcPlan, Plan, Result, measure, measure_grpc
from covey.sim.workload import WORKLOADS
from covey.sim.workload.options import find_workload

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
    workloads = [find_workload(name, WORKLOADS, []) for name in words(names)]
    compile_once()
    compile_kernels()  # loaded before anything is measured
    results: list[Result] = []
    for workload in workloads:
        with progress() as say:
            found = measure(workload, plan, say)
        results += found
        if not json_output:
            Console().print(_table(workload.name, found, plan))
    with progress() as say:
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

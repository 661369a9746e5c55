"""`pauses`: how long an engine's calls take while its subscriptions change. After a workload's subscriptions
are loaded, each round times four calls: `update_many` of some, `remove_many` of some, `match` of one event
with its ids, and `add_many` of those removed. Percentiles show the long calls of an engine that rearranges
itself at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.harness import Counts, Words, command
from covey.cli.support.options import Seed
from covey.cli.support.output import load_kernels, print_table
from covey.matcher import create_engine
from covey.sim.progress import Progress, labelled
from covey.sim.workload import WORKLOADS, Workload

CALLS = ("match", "update", "remove", "add")
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class PausePlan:
    """Measure how long single calls take while subscriptions change.

    Every round updates some subscriptions, removes some, matches one event, and adds those removed.

    Example: python -m benchmarks pauses --workload W2 --subscriptions 1000000
    """

    workload: Annotated[tuple[str, ...], Words("Workloads", WORKLOADS, {"all": tuple(WORKLOADS)})] = (
        "SYMBOLS",
    )
    subscriptions: Annotated[tuple[int, ...], Counts("Numbers")] = (100_000,)
    rounds: Annotated[int, typer.Option(min=1, help="Calls of each kind.")] = 5_000
    changes: Annotated[
        int, typer.Option(min=1, help="Subscriptions that are updated, removed and added per round.")
    ] = 100
    engine: Annotated[str, typer.Option(help="The engine.")] = "cluster"
    seed: Seed = 0
    events: int = 1_000
    clock_ns: Callable[[], int] = perf_counter_ns


@dataclass(slots=True)
class PauseResult:
    """Nanoseconds of each call, by its name."""

    workload: str
    subscriptions: int
    times_ns: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in CALLS})

    def percentile_ms(self, call: str, percentile: float) -> float:
        times = self.times_ns[call]
        return float(np.percentile(times, percentile, method="higher")) / 1e6 if times else 0.0

    def line(self, call: str) -> dict[str, float]:
        wanted = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
        return {name: round(self.percentile_ms(call, p), 3) for name, p in wanted.items()}

    def as_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "subscriptions": self.subscriptions,
            "ms": {call: self.line(call) for call in CALLS},
        }


def measure_pauses(
    workload: Workload, subscriptions: int, plan: PausePlan, progress: Progress
) -> PauseResult:
    progress("drawing subscriptions", 0.0)
    groups = workload.subscriptions(subscriptions, seed=plan.seed)
    events = workload.events(plan.events, seed=plan.seed)
    moves = [workload.moves(group, seed=plan.seed) for group in groups]
    engine = create_engine(plan.engine, workload.event_type)
    progress("loading", 0.1)
    for group in groups:
        engine.add_many(group.ids, group.filter, dict(group.values))
    engine.match(events.slice(0, 1))
    result = PauseResult(workload.name, subscriptions)
    rng = np.random.default_rng([plan.seed, subscriptions])
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    choices = rng.choice(len(groups), (plan.rounds, 2), p=sizes / sizes.sum())
    starts = rng.random((plan.rounds, 2))

    def timed(call: str, action: Callable[..., object], *arguments: object) -> None:
        start = plan.clock_ns()
        action(*arguments)
        result.times_ns[call].append(plan.clock_ns() - start)

    gc.collect()
    gc.disable()
    try:
        for number in range(plan.rounds):
            if number % max(1, plan.rounds // _SHOWN) == 0:
                progress("changing and matching", 0.2 + 0.8 * number / plan.rounds)
            (updated, replaced), (at, other) = choices[number], starts[number]
            first = int(at * max(1, len(groups[updated]) - plan.changes))
            chosen = slice(first, first + plan.changes)
            ids = groups[updated].ids[chosen]
            values = {name: column[chosen] for name, column in moves[updated].items()}
            first = int(other * max(1, len(groups[replaced]) - plan.changes))
            group = groups[replaced].slice(first, first + plan.changes)
            event = events.slice(number % len(events), 1)
            timed("update", engine.update_many, ids, values)
            timed("remove", engine.remove_many, group.ids)
            timed("match", lambda event: engine.match(event).ids(), event)
            timed("add", engine.add_many, group.ids, group.filter, dict(group.values))
    finally:
        gc.enable()
    return result


def measure(plan: PausePlan, progress: Progress) -> list[PauseResult]:
    return [
        measure_pauses(WORKLOADS[name], size, plan, labelled(progress, f"{name} {size:,}"))
        for name in plan.workload
        for size in plan.subscriptions
    ]


def show(plan: PausePlan, results: list[PauseResult]) -> None:
    for each in results:
        print_table(
            f"{each.workload}, {each.subscriptions:,} subscriptions, {plan.changes} changed per call: ms",
            ("call", "p50", "p99", "p99.9", "max"),
            [(call, *each.line(call).values()) for call in CALLS],
        )


pauses = command(PausePlan, measure, show, prepare=load_kernels)

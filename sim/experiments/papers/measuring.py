"""Measurements shared by the matching papers, and exponents of growth.

Times are CPU time of one thread, to exclude other load. Measurements are those of `covey bench match`
(`sim/experiments/bench/match.py`), which compares the engines' answers before and after, so that no figure
comes from engines that disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from time import process_time

from covey.sim.experiments.bench.match import MatchPlan, MatchResult, compare_engines, make_engine
from covey.sim.experiments.papers.report import Cell, PaperPlan
from covey.sim.progress import Progress, parts
from covey.sim.workload import Workload


def measure(
    workload: Workload,
    count: int,
    engines: Mapping[str, str],
    plan: PaperPlan,
    progress: Progress,
    warm_up: int = 0,
) -> dict[str, MatchResult]:
    """Load, match and compare these engines over `count` subscriptions; results by the engines' labels.

    `warm_up` is the number of passes over the events before the measurement, for adaptive engines. Engines
    that did not load within the limit are omitted. Raises `DisagreementError`.
    """
    limits = MatchPlan(
        engines=tuple(engines.values()),
        events=plan.pick(200, 5_000, 10_000),
        batch=plan.pick(100, 500, 1_000),
        repetitions=plan.pick(1, 3, 5),
        repetition_s=plan.pick(0.005, 0.15, 0.5),
        sample=plan.pick(50, 50, 100),
        load_limit_s=plan.pick(10.0, 30.0, 600.0),
        seed=plan.seed,
        updates=False,
        products=("ids",),
        warm_up=warm_up,
        clock=process_time,
    )
    for engine in engines.values():
        make_engine(engine, workload, 1)  # compiled before anything is measured
    results = compare_engines(workload, count, limits, progress)
    return {label: result for label, result in zip(engines, results, strict=True) if result.complete}


def measure_each(
    cases: Sequence[tuple[int, int, Workload]],
    engines: Mapping[str, str],
    plan: PaperPlan,
    progress: Progress,
    warm_up: int = 0,
) -> dict[int, dict[str, MatchResult]]:
    """`measure` for each case: a value that varies, a number of subscriptions and a workload."""
    return {
        varied: measure(workload, count, engines, plan, inner, warm_up)
        for inner, (varied, count, workload) in parts(progress, cases)
    }


def cells(
    results: Mapping[str, MatchResult],
    labels: Iterable[str],
    unit: str,
    value: Callable[[MatchResult], float],
) -> dict[str, Cell]:
    """The part of a finding's row with one quantity per engine; None for one that was not measured."""
    return {f"{name} {unit}": value(results[name]) if name in results else None for name in labels}


def rate(result: MatchResult) -> float:
    """Events per second, the median of the repetitions."""
    return result.rate()


def ms_per_event(result: MatchResult) -> float:
    """Milliseconds per event."""
    return 1e3 / rate(result)


def growth(points: Iterable[tuple[float, float]]) -> float:
    """The exponent b of y = a x^b by least squares of logarithms; needs two distinct x."""
    logs = [(log(x), log(y)) for x, y in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    square = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / square

"""What the matching papers' reproductions share: engines that are there, sweeps over sizes, growth.

Times are CPU time, one thread, so that what else the machine does distorts them less. Measurements are those
of `covey bench match` (`sim/experiments/bench/match.py`), which compares the engines' answers with each other
before and after: a figure is not drawn from engines that disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from statistics import median
from time import process_time

from covey.matcher.errors import CoveyError
from covey.sim.experiments.bench.match import MatchPlan, MatchResult, compare_engines, make_engine
from covey.sim.experiments.papers.report import PaperPlan
from covey.sim.experiments.progress import Progress
from covey.sim.workload import Workload


def find_engines(wanted: Mapping[str, Sequence[str]], workload: Workload) -> dict[str, str]:
    """The engines that exist, by label: of each label's spellings the first that can be made."""
    found: dict[str, str] = {}
    for label, spellings in wanted.items():
        for spelling in spellings:
            try:
                make_engine(spelling, workload, 1)
            except CoveyError:
                continue
            found[label] = spelling
            break
    return found


def measure(
    workload: Workload,
    count: int,
    engines: Mapping[str, str],
    plan: PaperPlan,
    progress: Progress,
    warm_up: int = 0,
) -> dict[str, MatchResult]:
    """Load, match and compare these engines over `count` subscriptions; results by the engines' labels.

    `warm_up` is how often engines that adapt see the events before they are measured. An engine that did not
    load within its limit is not among them. Raises `DisagreementError`.
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
        warm_up=warm_up,
        clock=process_time,
    )
    for spelling in engines.values():
        make_engine(spelling, workload, 1)  # compiled before anything is measured
    results = compare_engines(workload, count, limits, progress)
    return {label: result for label, result in zip(engines, results, strict=True) if result.complete}


def rate(result: MatchResult) -> float:
    """Events per second, the median of the repetitions."""
    return median(result.rates)


def ms_per_event(result: MatchResult) -> float:
    """What an event takes to be matched, in milliseconds."""
    return 1e3 / rate(result)


def growth(points: Iterable[tuple[float, float]]) -> float:
    """The exponent b of y = a x^b through points by least squares of logarithms; needs two different x."""
    logs = [(log(x), log(y)) for x, y in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    square = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / square

"""Measurements shared by the matching papers, and exponents of growth. Every figure is measured over
workloads of several seeds, and an interval is over these: two engines, or two sizes, are compared seed by
seed. Times are CPU time of one thread, to exclude other load. Measurements are those of `covey bench match`,
which compares the engines' answers before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, log
from time import process_time

from covey.matcher import Engine
from covey.sim.experiments.bench.drift import SETTLING
from covey.sim.experiments.bench.match import MatchPlan, MatchResult, compare_engines, make_engine
from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.report import Cell, PaperPlan
from covey.sim.progress import Progress, parts
from covey.sim.workload import Subscriptions, Workload


def measure(
    workload: Workload,
    count: int,
    engines: Mapping[str, str],
    plan: PaperPlan,
    progress: Progress,
    settled: bool = False,
) -> dict[str, MatchResult]:
    """Load, match and compare these engines over `count` subscriptions of each seed; results by the engines'
    labels, with a rate per seed, and the memory of the first.

    If `settled`, `cluster` has matched enough events before to find its tables. Engines that did not load
    within the limit are omitted. Raises `DisagreementError`.
    """
    events = plan.pick(200, 5_000, 10_000)
    limits = MatchPlan(
        engines=tuple(engines.values()),
        events=events,
        batch=plan.pick(100, 500, 1_000),
        repetitions=1,
        repetition_s=plan.pick(0.005, 0.15, 0.5),
        sample=plan.pick(50, 50, 100),
        load_limit_s=plan.pick(10.0, 30.0, 600.0),
        updates=False,
        products=("ids",),
        warm_up=settling(count, events) if settled else 0,
        clock=process_time,
    )
    for engine in engines.values():
        make_engine(engine, workload, 1)  # compiled before anything is measured
    runs = [
        compare_engines(workload, count, replace(limits, seed=seed), inner)
        for inner, seed in parts(progress, plan.seeds)
    ]
    return {
        label: _joined(of)
        for label, *of in zip(engines, *runs, strict=True)
        if all(run.complete for run in of)
    }


def settling(count: int, events: int) -> int:
    """Passes over `events` after which `cluster` has found its tables for `count` subscriptions."""
    return ceil(SETTLING * count / events)


def _joined(runs: Sequence[MatchResult]) -> MatchResult:
    first = runs[0]
    rates = {product: [rate for run in runs for rate in run.rates[product]] for product in first.rates}
    return replace(first, rates=rates)


def load_times(
    workload: Workload, count: int, engines: Mapping[str, str], plan: PaperPlan, progress: Progress
) -> dict[str, list[float]]:
    """Seconds of CPU time of loading the subscriptions of each seed, in turns; by the engines' labels."""
    times: dict[str, list[float]] = {label: [] for label in engines}
    for inner, seed in parts(progress, plan.seeds):
        inner(f"loading, seed {seed}", 0.0)
        for label, (_, seconds) in _loaded(workload, count, engines, seed):
            times[label].append(seconds)
    return times


def memory_of(
    workload: Workload, count: int, engines: Mapping[str, str], plan: PaperPlan
) -> dict[str, dict[str, int]]:
    """Bytes of the parts of each engine, by its label; counted, not measured."""
    loaded = _loaded(workload, count, engines, plan.seed)
    return {label: engine.memory_bytes() for label, (engine, _) in loaded}


def _loaded(
    workload: Workload, count: int, engines: Mapping[str, str], seed: int
) -> Iterator[tuple[str, tuple[Engine, float]]]:
    """Each engine with the subscriptions, and the seconds of CPU time of loading them."""
    drawn = workload.subscriptions(count, seed=seed)
    groups = [Subscriptions.of(each) for each in workload.arrivals(drawn)]
    event = workload.events(1, seed=seed)
    for label, name in engines.items():
        engine = make_engine(name, workload, 1)
        start = process_time()
        for each in groups:
            engine.add_all(each.ids, each.filters, each.values, numbers=each.numbers)
            engine.match(event).ids()
        yield label, (engine, process_time() - start)


def measure_each(
    cases: Sequence[tuple[int, int, Workload]],
    engines: Mapping[str, str],
    plan: PaperPlan,
    progress: Progress,
    settled: bool = False,
) -> dict[int, dict[str, MatchResult]]:
    """`measure` for each case: a value that varies, a number of subscriptions and a workload."""
    return {
        varied: measure(workload, count, engines, plan, inner, settled)
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
    """Events per second, the median of the seeds."""
    return result.rate()


def ms_per_event(result: MatchResult) -> float:
    return 1e3 / rate(result)


def times_faster(results: Mapping[str, MatchResult], fast: str, slow: str) -> Estimate | None:
    """The ratio of two engines' rates, over the seeds; None if one was not measured."""
    if fast not in results or slow not in results:
        return None
    return rate_ratio(results[fast], results[slow])


def rate_ratio(fast: MatchResult, slow: MatchResult) -> Estimate | None:
    return gain(fast.rates["ids"], slow.rates["ids"])


def times_smaller(results: Mapping[str, MatchResult], small: str, large: str) -> Estimate | None:
    """The ratio of two engines' memory, which is counted; None if one was not measured."""
    if small not in results or large not in results:
        return None
    return Estimate.exact(results[large].bytes_per_subscription / results[small].bytes_per_subscription)


def sublinear(runs: Mapping[int, MatchResult]) -> dict[str, Estimate | None]:
    """By how much the time that one more subscription adds falls from one pair of sizes to the next.

    One for time linear in the subscriptions, whatever the constant cost of an event, which lowers an exponent
    of growth for every engine. None where time did not grow.
    """
    points = sorted(runs.items())
    effects: dict[str, Estimate | None] = {}
    for (a, first), (b, second), (c, third) in zip(points, points[1:], points[2:], strict=False):
        times = zip(
            *([1 / rate for rate in each.rates["ids"]] for each in (first, second, third)), strict=True
        )
        slopes = [((y - x) / (b - a), (z - y) / (c - b)) for x, y, z in times]
        grew = all(before > 0 and after > 0 for before, after in slopes)
        effects[f"{a:,} to {c:,}"] = gain([x for x, _ in slopes], [y for _, y in slopes]) if grew else None
    return effects


def growth(points: Iterable[tuple[float, float]]) -> float:
    """The exponent b of y = a x^b by least squares of logarithms; needs two distinct x."""
    logs = [(log(x), log(y)) for x, y in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    square = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / square

"""Fabret et al. 2001, section 6: the cluster algorithm in its configurations, against counting.

Time per event, memory and loading time over the number of subscriptions (Fig. 3); what non-equality
operators, the size of domains and the number of predicates do (Fig. 3, section 6.3). The configurations are
those of one engine, `cluster`: propagation groups by single predicates, with and without looking ahead;
static and dynamic choose tables of several attributes by the cost model. How they follow subscriptions that
change is section 6.4 (Fig. 4), measured as `python -m benchmarks drift` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import process_time

from covey.sim.experiments.bench.drift import DriftPlan, DriftResult, measure_drift
from covey.sim.experiments.bench.match import MatchResult
from covey.sim.experiments.papers.measuring import cells, growth, measure_each, ms_per_event
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, PaperReport, Verdict
from covey.sim.progress import Progress, part, parts
from covey.sim.reports import Curves
from covey.sim.workload import WORKLOADS, Domain, Fabret, Workload

CITATION = (
    "Fabret, Jacobsen, Llirbat, Pereira, Ross, Shasha: Filtering Algorithms and Implementation "
    "for Very Fast Publish/Subscribe Systems (2001)"
)
PROPAGATION, AHEAD, STATIC, DYNAMIC = "propagation", "propagation wp", "static", "dynamic"
ENGINES = {
    "counting": "counting",
    PROPAGATION: "cluster:configuration=propagation",
    AHEAD: "cluster:configuration=propagation_lookahead",
    STATIC: "cluster:configuration=static",
    DYNAMIC: "cluster:configuration=dynamic",
}
"""The paper's algorithms as engines; "wp" is with prefetching, here with look-ahead."""

_RECOVERED = 0.8
"""Share of the throughput of a static configuration for the new state that counts as recovered."""
_WARM_UP = 6
"""Passes over the events, in which dynamic finds its tables."""

Runs = Mapping[int, Mapping[str, MatchResult]]
"""Results by varied value, then by algorithm."""


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    """Fig. 3 and section 6.3."""
    sizes = plan.pick((200, 800), (5_000, 20_000, 80_000), (30_000, 100_000, 300_000, 1_000_000))
    cases = [(size, size, _paper("W0", plan)) for size in sizes]
    over_sizes = measure_each(cases, ENGINES, plan, part(progress, 0.0, 0.3), _WARM_UP)
    findings = [
        _time(over_sizes),
        _operators(plan, over_sizes, part(progress, 0.3, 0.5)),
        _memory(over_sizes),
        _loading(over_sizes),
        _domains(plan, part(progress, 0.5, 0.6)),
        _predicates(plan, part(progress, 0.6, 0.7)),
        *_adaptivity(plan, part(progress, 0.7, 1.0)),
    ]
    notes = [
        "The available text of the paper has lost its digits, so its claims have no figures. Parameters "
        "are those of the workloads W0 and W2 (32 attributes, 5 predicates, values 1 to 35; below the "
        "full size, predicates are on 12 of the 32, which gives fewer kinds of subscriptions).",
        "The paper's times include communication between processes; these are of matching only.",
        "Fig. 4: the paper's hours are steps here, each of which replaces a part of the subscriptions; "
        "throughput is measured after two passes in which an engine may adapt.",
    ]
    return PaperReport("fabret", CITATION, plan.size, findings, notes, (plan.seed,))


def _paper(name: str, plan: PaperPlan) -> Workload:
    workload = WORKLOADS[name]
    assert isinstance(workload, Fabret)
    return workload.with_(focus=plan.pick(12, 12, None))


def _finding(
    figure: str,
    title: str,
    claim: str,
    runs: Runs,
    varied: str,
    measured: tuple[str, Callable[[MatchResult], float]],
    needed: Sequence[str],
    judge: Callable[[Mapping[str, list[tuple[float, float]]]], tuple[Verdict, str]],
) -> PaperFinding:
    """A finding with one quantity over the varied value, a curve per algorithm.

    `judge` returns the verdict and the conclusion for the curves. It is not called if one of the
    `needed` algorithms is missing in a case.
    """
    unit, value = measured
    labels = list(dict.fromkeys(label for results in runs.values() for label in results))
    rows: list[dict[str, Cell]] = [
        {varied: x} | cells(results, labels, unit, value)
        for x, results in runs.items()
        if labels
    ]
    series = {
        label: [(float(x), value(results[label])) for x, results in runs.items() if label in results]
        for label in labels
    }
    plot = Curves(varied, unit, series, log_x=varied == "subscriptions", log_y=varied == "subscriptions")
    missing = [label for label in needed if any(label not in results for results in runs.values())]
    if missing:
        conclusion = f"Not loaded within the limit: {', '.join(missing)}."
        return PaperFinding(figure, title, claim, conclusion, Verdict.UNDECIDED, rows, plot)
    verdict, conclusion = judge(series)
    return PaperFinding(figure, title, claim, conclusion, verdict, rows, plot)


def _time(runs: Runs) -> PaperFinding:
    def judge(curves: Mapping[str, list[tuple[float, float]]]) -> tuple[Verdict, str]:
        last = {name: points[-1][1] for name, points in curves.items()}
        powers = ", ".join(f"{name} {growth(points):.2f}" for name, points in curves.items())
        most = f"{int(curves[DYNAMIC][-1][0]):,}"
        return (
            Verdict.of(
                last[DYNAMIC] < last[PROPAGATION] < last["counting"] and last[DYNAMIC] < last[AHEAD],
                last[DYNAMIC] < last["counting"],
            ),
            f"At {most} subscriptions an event takes dynamic {1e3 * last[DYNAMIC]:.2f} us, static "
            f"{1e3 * last[STATIC]:.2f} us, propagation {1e3 * last[AHEAD]:.2f} us with look-ahead and "
            f"{1e3 * last[PROPAGATION]:.2f} us without, counting {1e3 * last['counting']:.2f} us. "
            f"Time grows with these powers of the subscriptions: {powers}.",
        )

    return _finding(
        "Fig. 3(a)",
        "time per event over subscriptions (W0)",
        "Dynamic is the fastest and counting the slowest, with propagation between; prefetching "
        "helps propagation when there are many subscriptions; dynamic's time hardly depends on "
        "their number, and static's is not significantly better.",
        runs,
        "subscriptions",
        ("ms", ms_per_event),
        tuple(ENGINES),
        judge,
    )


def _operators(plan: PaperPlan, equalities: Runs, progress: Progress) -> PaperFinding:
    """W2 compared with W0."""
    engines = {name: ENGINES[name] for name in (AHEAD, DYNAMIC)}
    sizes = [size for size in equalities if size <= plan.pick(800, 80_000, 300_000)]
    cases = [(size, size, _paper("W2", plan)) for size in sizes]
    mixed = measure_each(cases, engines, plan, progress, _WARM_UP)
    runs = {
        size: {
            **{f"{name} ==": equalities[size][name] for name in engines if name in equalities[size]},
            **{f"{name} mixed": mixed[size][name] for name in mixed[size]},
        }
        for size in sizes
    }

    def judge(curves: Mapping[str, list[tuple[float, float]]]) -> tuple[Verdict, str]:
        slower = {n: curves[f"{n} mixed"][-1][1] / curves[f"{n} =="][-1][1] for n in (AHEAD, DYNAMIC)}
        first = {n: curves[f"{n} mixed"][0][1] / curves[f"{n} =="][0][1] for n in (AHEAD, DYNAMIC)}
        apart = {
            kind: curves[f"{AHEAD} {kind}"][-1][1] / curves[f"{DYNAMIC} {kind}"][-1][1]
            for kind in ("==", "mixed")
        }
        return (
            Verdict.of(min(slower.values()) > 1, max(slower.values()) > 1),
            f"Non-equality operators make propagation {first[AHEAD]:.1f} times slower at "
            f"{sizes[0]:,} subscriptions and {slower[AHEAD]:.1f} times at {sizes[-1]:,}, dynamic "
            f"{first[DYNAMIC]:.1f} and {slower[DYNAMIC]:.1f} times; dynamic stays "
            f"{apart['==']:.1f} (==) and {apart['mixed']:.1f} (mixed) times as fast as "
            "propagation. No predicate index is involved: predicates other than the access predicate are "
            "tested in place.",
        )

    return _finding(
        "Fig. 3(b)",
        "time per event for equalities alone (W0) and mixed operators (W2)",
        "Both algorithms are sensitive to non-equality predicates, by a constant factor; the "
        "difference between them stays.",
        runs,
        "subscriptions",
        ("ms", ms_per_event),
        tuple(f"{name} {kind}" for name in engines for kind in ("==", "mixed")),
        judge,
    )


def _memory(runs: Runs) -> PaperFinding:
    def judge(curves: Mapping[str, list[tuple[float, float]]]) -> tuple[Verdict, str]:
        last = {name: points[-1][1] for name, points in curves.items()}
        most = curves[DYNAMIC][-1][0]
        words = ", ".join(f"{name} {1e6 * size / most:.0f}" for name, size in last.items())
        return (
            Verdict.of(
                last[PROPAGATION] <= min(last["counting"], last[DYNAMIC]), last[PROPAGATION] <= last[DYNAMIC]
            ),
            f"Bytes per subscription at {int(most):,}: {words}. Clusters contain their tests "
            "and no predicate table, which counting needs in both directions.",
        )

    return _finding(
        "Fig. 3(c)",
        "memory over subscriptions (W0)",
        "Propagation needs the least, counting little more, and dynamic the most, for its "
        "multi-attribute tables.",
        runs,
        "subscriptions",
        ("MB", lambda result: sum(result.memory.values()) / 1e6),
        ("counting", PROPAGATION, DYNAMIC),
        judge,
    )


def _loading(runs: Runs) -> PaperFinding:
    def judge(curves: Mapping[str, list[tuple[float, float]]]) -> tuple[Verdict, str]:
        last = {name: points[-1][1] for name, points in curves.items()}
        words = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in last.items())
        return (
            Verdict.of(
                last["counting"] <= min(last.values()) and last[STATIC] >= max(last.values()),
                last["counting"] < last[STATIC],
            ),
            f"Loading {int(curves[STATIC][-1][0]):,} subscriptions takes {words}. They load in "
            "columns, one group per filter; the paper's load one by one.",
        )

    return _finding(
        "Fig. 3(d)",
        "loading time over subscriptions (W0)",
        "Counting loads fastest; static slowest, since it computes its clustering from scratch; "
        "dynamic, which clusters as it goes, takes much less than static.",
        runs,
        "subscriptions",
        ("s", lambda result: result.load_s),
        ("counting", STATIC, DYNAMIC),
        judge,
    )


_TWO = {name: ENGINES[name] for name in (PROPAGATION, DYNAMIC)}


def _domains(plan: PaperPlan, progress: Progress) -> PaperFinding:
    count = plan.pick(300, 20_000, 300_000)
    values = plan.pick((10, 35), (5, 10, 20, 35, 70), (5, 10, 20, 35, 70, 100))
    workloads = [(v, count, Fabret(attributes=12, domain=Domain(1, v))) for v in values]

    def judge(curves: Mapping[str, list[tuple[float, float]]]) -> tuple[Verdict, str]:
        ratio = {name: points[0][1] / points[-1][1] for name, points in curves.items()}
        return (
            Verdict.of(
                min(ratio.values()) > 1 and ratio[DYNAMIC] < ratio[PROPAGATION], min(ratio.values()) > 1
            ),
            f"From {values[0]} to {values[-1]} values the time of an event falls by "
            f"{ratio[PROPAGATION]:.1f} times for propagation and {ratio[DYNAMIC]:.1f} times for dynamic.",
        )

    return _finding(
        "Sect. 6.3, domains",
        f"time per event over the values of a domain ({count:,} subscriptions)",
        "The larger the domains, the better both, and dynamic is less sensitive than propagation "
        "because it hashes several attributes.",
        measure_each(workloads, _TWO, plan, progress, _WARM_UP),
        "values",
        ("ms", ms_per_event),
        tuple(_TWO),
        judge,
    )


def _predicates(plan: PaperPlan, progress: Progress) -> PaperFinding:
    count = plan.pick(300, 20_000, 300_000)
    numbers = plan.pick((2, 4), (2, 3, 5, 7), (2, 3, 4, 5, 6, 7, 8))
    workloads = [(n, count, Fabret(attributes=12, predicates=n)) for n in numbers]

    def judge(curves: Mapping[str, list[tuple[float, float]]]) -> tuple[Verdict, str]:
        first, last = ({name: points[at][1] for name, points in curves.items()} for at in (0, -1))
        return (
            Verdict.of(last[DYNAMIC] < first[DYNAMIC]),
            f"From {numbers[0]} to {numbers[-1]} predicates the time of an event goes from "
            f"{1e3 * first[DYNAMIC]:.2f} to {1e3 * last[DYNAMIC]:.2f} us for dynamic and from "
            f"{1e3 * first[PROPAGATION]:.2f} to {1e3 * last[PROPAGATION]:.2f} us for propagation.",
        )

    return _finding(
        "Sect. 6.3, predicates",
        f"time per event over the predicates per subscription ({count:,} subscriptions)",
        "The more predicates, the better dynamic does: it meets them early and builds its tables on them.",
        measure_each(workloads, _TWO, plan, progress, _WARM_UP),
        "predicates",
        ("ms", ms_per_event),
        tuple(_TWO),
        judge,
    )


def _adaptivity(plan: PaperPlan, progress: Progress) -> list[PaperFinding]:
    """Section 6.4: configurations while subscriptions are replaced by others."""
    cases = (
        (
            "attributes",
            "Fig. 4(a)",
            "throughput while subscriptions move to other attributes",
            "Without change throughput falls to a fraction; dynamic falls less and recovers.",
        ),
        (
            "skew",
            "Fig. 4(b)",
            "throughput while subscriptions and events become skewed",
            "Without change throughput falls; dynamic does better at the end, and hardly worse on "
            "the way, though skew alone costs both, as more subscriptions match.",
        ),
    )
    findings = []
    for inner, (name, figure, title, claim) in parts(progress, cases):
        limits = DriftPlan(
            name,
            subscriptions=plan.pick(400, 30_000, 300_000),
            steps=plan.pick(2, 4, 12),
            events=plan.pick(100, 10_000, 20_000),
            batch=plan.pick(50, 1_000, 1_000),
            repetitions=plan.pick(1, 2, 5),
            seed=plan.seed,
            clock=process_time,
        )
        result = measure_drift(limits, inner)
        findings.append(_drifted(figure, title, claim, limits.steps, result))
    return findings


def _drifted(figure: str, title: str, claim: str, steps: int, result: DriftResult) -> PaperFinding:
    replaced = [step / steps for step in range(steps + 1)]
    series = {name: list(zip(replaced, rates, strict=False)) for name, rates in result.rates.items()}
    rows: list[dict[str, Cell]] = [
        {"replaced": x, **{f"{name} ev/s": round(points[at][1]) for name, points in series.items()}}
        for at, x in enumerate(replaced)
    ]
    end = {name: rates[-1] for name, rates in result.rates.items()}
    start = {name: rates[0] for name, rates in result.rates.items()}
    return PaperFinding(
        figure,
        f"{title} ({result.subscriptions:,} subscriptions)",
        claim,
        f"In the end dynamic matches {end[DYNAMIC]:,.0f} events/s, "
        f"{end[DYNAMIC] / start[DYNAMIC]:.1%} of what it did at the start, and no change "
        f"{end['no change']:,.0f}, {end['no change'] / start['no change']:.1%} of its start; a "
        f"static configuration chosen for the new state {result.optimum:,.0f}, of which dynamic "
        f"reaches {end[DYNAMIC] / result.optimum:.0%}.",
        Verdict.of(
            end[DYNAMIC] > max(end["no change"], _RECOVERED * result.optimum), end[DYNAMIC] > end["no change"]
        ),
        rows,
        Curves("part of the subscriptions replaced", "events/s", series),
    )

"""Fabret et al. 2001, section 6: the cluster algorithm in its configurations, against counting.

Counting and propagation are reference engines, with the paper's predicate index and bit vector; propagation
groups by single predicates, with and without prefetching. Static and dynamic are configurations of `cluster`,
which choose tables of several attributes by the cost model. Section 6.4 (Fig. 4) is measured as `python -m
benchmarks drift` does; phases and single changes are in `fabret_phases.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from time import process_time

from covey.sim.experiments.bench.drift import DriftPlan, DriftResult, measure_drift
from covey.sim.experiments.bench.match import MatchResult
from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.fabret_phases import changes, phases
from covey.sim.experiments.papers.measuring import (
    cells,
    growth,
    load_times,
    measure_each,
    ms_per_event,
    rate_ratio,
    times_faster,
    times_smaller,
)
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, PaperReport
from covey.sim.experiments.papers.verdicts import (
    Claim,
    Verdict,
    beside,
    claimed,
    compared,
    decide,
    extremes,
)
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
    PROPAGATION: "propagation:lookahead=false",
    AHEAD: "propagation:lookahead=true",
    STATIC: "cluster:configuration=static",
    DYNAMIC: "cluster:configuration=dynamic",
}
"""The paper's algorithms as engines; "wp" is with prefetching, the only difference."""

Effects = Mapping[str, Estimate | None]
"""By the point of a curve."""
Runs = Mapping[int, Mapping[str, MatchResult]]
"""Results by varied value, then by algorithm."""


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    sizes = plan.pick((200, 800), (5_000, 20_000, 80_000), (30_000, 100_000, 300_000, 1_000_000))
    cases = [(size, size, _paper("W0", plan)) for size in sizes]
    over_sizes = measure_each(cases, ENGINES, plan, part(progress, 0.0, 0.3), settled=True)
    findings = [
        *over_subscriptions(over_sizes),
        _operators(plan, over_sizes, part(progress, 0.3, 0.45)),
        _memory(over_sizes),
        _loading(plan, sizes, part(progress, 0.45, 0.5)),
        phases(_paper("W0", plan), sizes, _pick(AHEAD, DYNAMIC), plan, part(progress, 0.5, 0.55)),
        changes(_paper("W0", plan), _pick("counting", AHEAD, DYNAMIC), plan, part(progress, 0.55, 0.6)),
        _domains(plan, part(progress, 0.6, 0.65)),
        _predicates(plan, part(progress, 0.65, 0.7)),
        *_adaptivity(plan, part(progress, 0.7, 1.0)),
    ]
    notes = [
        "The available text of the paper has lost its digits, so its claims have no figures. Parameters "
        "are those of the workloads W0 and W2 (32 attributes, 5 predicates, values 1 to 35; below the "
        "full size, predicates are on 12 of the 32, which gives fewer kinds of subscriptions).",
        "The paper's times include communication between processes; these are of matching only.",
        "Fig. 4: the paper's hours are steps here, each of which replaces a part of the subscriptions; "
        "throughput is measured after two passes over the events, and includes what an engine does to adapt. "
        "At the start and at the end the engines have settled, as in the paper. In 4(a) no change keeps its "
        "tables, but rows that none of them serves go to a table of one equality whose buckets are ordered "
        "by the next one, so that a block or two are searched: it is no configuration of the paper.",
    ]
    return PaperReport("fabret", CITATION, plan.size, findings, notes, plan.seeds)


def _paper(name: str, plan: PaperPlan) -> Workload:
    workload = WORKLOADS[name]
    assert isinstance(workload, Fabret)
    return workload.with_(focus=plan.pick(12, 12, None))


def _pick(*names: str) -> dict[str, str]:
    return {name: ENGINES[name] for name in names}


def _finding(
    figure: str,
    title: str,
    claim: str,
    runs: Runs,
    varied: str,
    measured: tuple[str, Callable[[MatchResult], float]],
    effects: Effects,
    words: str = "",
    baselines: Sequence[Verdict] = (),
) -> PaperFinding:
    unit, value = measured
    labels = list(dict.fromkeys(label for results in runs.values() for label in results))
    rows: list[dict[str, Cell]] = [
        {varied: x} | cells(results, labels, unit, value) for x, results in runs.items() if labels
    ]
    series = {
        label: [(float(x), value(results[label])) for x, results in runs.items() if label in results]
        for label in labels
    }
    plot = Curves(varied, unit, series, log_x=varied == "subscriptions", log_y=varied == "subscriptions")
    conclusion = f"{claimed(effects)}{words and ' '}{words}"
    return PaperFinding(
        figure, title, claim, conclusion, beside(decide(Claim(), [*effects.values()]), baselines), rows, plot
    )


def _ratios(runs: Runs, *pairs: tuple[str, str]) -> Effects:
    """How many times as fast the first of each pair is as the second, at every point."""
    return {
        f"{fast} over {slow}, {x:,}": times_faster(results, fast, slow)
        for x, results in runs.items()
        for fast, slow in pairs
    }


def _along(runs: Runs, label: str) -> Effects:
    """How many times as fast an algorithm becomes from each point to the next."""
    points = [(x, results[label]) for x, results in runs.items() if label in results]
    return {
        f"{label}, {x:,} to {y:,}": rate_ratio(second, first) for (x, first), (y, second) in pairwise(points)
    }


_STEADY = 2.0
"""How many times the time may grow from any size to the largest, to hardly depend on them."""


def over_subscriptions(runs: Runs) -> list[PaperFinding]:
    """Fig. 3(a): the order of the algorithms, what prefetching gains, and growth."""

    def steady(label: str) -> Effects:
        points = [(x, results[label]) for x, results in runs.items() if label in results]
        growths = {x: rate_ratio(result, points[-1][1]) for x, result in points[:-1]}
        return {
            f"{label}, {_STEADY:g} over its growth from {x:,}": grown and grown.under(_STEADY)
            for x, grown in growths.items()
        }

    others = {name: decide(Claim(), [*steady(name).values()]) for name in ENGINES if name != DYNAMIC}
    powers = {
        name: growth(
            [(float(x), ms_per_event(results[name])) for x, results in runs.items() if name in results]
        )
        for name in ENGINES
        if sum(name in results for results in runs.values()) > 1
    }
    exponents = ", ".join(f"{name} {power:.2f}" for name, power in powers.items())
    between = ((DYNAMIC, PROPAGATION), (DYNAMIC, AHEAD), (PROPAGATION, "counting"), (AHEAD, "counting"))
    shown = (runs, "subscriptions", ("ms", ms_per_event))
    return [
        _finding(
            "Fig. 3(a)",
            "time per event over subscriptions (W0)",
            "Dynamic is the fastest and counting the slowest, with propagation between.",
            *shown,
            _ratios(runs, *between),
            f"Time grows with these powers of the subscriptions: {exponents}.",
        ),
        _finding(
            "Fig. 3(a), prefetching",
            "time per event of propagation with and without prefetching (W0)",
            "Prefetching helps propagation when there are many subscriptions.",
            *shown,
            dict([*_ratios(runs, (AHEAD, PROPAGATION)).items()][-1:]),
        ),
        _finding(
            "Fig. 3(a), growth",
            "growth of the time per event (W0)",
            "Dynamic's time hardly depends on the number of subscriptions.",
            *shown,
            steady(DYNAMIC),
            f"The paper has 'independent'; that {_STEADY:g} times is hardly any growth is this page's, from "
            "each size to the largest. By the same measure: "
            f"{', '.join(f'{name} {verdict}' for name, verdict in others.items())}.",
            [others["counting"], others[PROPAGATION]],
        ),
    ]


def _operators(plan: PaperPlan, equalities: Runs, progress: Progress) -> PaperFinding:
    """W2 compared with W0."""
    engines = _pick(AHEAD, DYNAMIC)
    sizes = [size for size in equalities if size <= plan.pick(800, 80_000, 300_000)]
    cases = [(size, size, _paper("W2", plan)) for size in sizes]
    mixed = measure_each(cases, engines, plan, progress, settled=True)
    runs = {
        size: {
            **{f"{name} ==": equalities[size][name] for name in engines if name in equalities[size]},
            **{f"{name} mixed": mixed[size][name] for name in mixed[size]},
        }
        for size in sizes
    }
    apart = _ratios(runs, *((f"{DYNAMIC} {kind}", f"{AHEAD} {kind}") for kind in ("==", "mixed")))
    return _finding(
        "Fig. 3(b)",
        "time per event for equalities alone (W0) and mixed operators (W2)",
        "Both algorithms are sensitive to non-equality predicates, by a constant factor; the "
        "difference between them stays.",
        runs,
        "subscriptions",
        ("ms", ms_per_event),
        _ratios(runs, *((f"{name} ==", f"{name} mixed") for name in engines)),
        f"Judged is how sensitive each is, not whether their difference stays: {extremes(apart)}. "
        "Propagation finds all predicates that hold, and compares bits; dynamic tests what is left of a row "
        "in place.",
    )


def _memory(runs: Runs) -> PaperFinding:
    pairs = ((PROPAGATION, "counting"), (PROPAGATION, DYNAMIC), ("counting", DYNAMIC))
    effects = {
        f"{small} under {large}, {x:,}": times_smaller(results, small, large)
        for x, results in runs.items()
        for small, large in pairs
    }
    return _finding(
        "Fig. 3(c)",
        "memory over subscriptions (W0)",
        "Propagation needs the least, counting little more, and dynamic the most, for its "
        "multi-attribute tables.",
        runs,
        "subscriptions",
        ("MB", lambda result: sum(result.memory.values()) / 1e6),
        effects,
        "Dynamic's clusters contain their tests and no predicate table, which counting needs in both "
        "directions.",
    )


def _loading(plan: PaperPlan, sizes: Sequence[int], progress: Progress) -> PaperFinding:
    engines = _pick("counting", DYNAMIC, STATIC)
    loads = {
        size: load_times(_paper("W0", plan), size, engines, plan, inner)
        for inner, size in parts(progress, [size for size in sizes if size <= 100_000])
    }
    pairs = (("counting", STATIC), ("counting", DYNAMIC), (DYNAMIC, STATIC))
    effects = {
        f"{fast} over {slow}, {size:,}": gain(times[slow], times[fast])
        for size, times in loads.items()
        for fast, slow in pairs
    }
    seconds = {
        name: [(float(size), median(times[name])) for size, times in loads.items()] for name in engines
    }
    return PaperFinding(
        "Fig. 3(d)",
        "loading time over subscriptions (W0)",
        "Counting loads fastest; static slowest, since it computes its clustering from scratch; "
        "dynamic, which clusters as it goes, takes much less than static.",
        f"{claimed(effects)} Subscriptions load in columns, one group per filter; in the paper they come in "
        "batches from another process and are inserted one by one. What dynamic moves later is not in its "
        "time.",
        decide(Claim(), [*effects.values()]),
        [
            {"subscriptions": size} | {f"{name} s": round(median(times[name]), 4) for name in engines}
            for size, times in loads.items()
        ],
        Curves("subscriptions", "s", seconds, log_x=True, log_y=True),
    )


_TWO = _pick(PROPAGATION, DYNAMIC)


def _domains(plan: PaperPlan, progress: Progress) -> PaperFinding:
    count = plan.pick(300, 20_000, 300_000)
    values = plan.pick((10, 35), (5, 10, 20, 35, 70), (5, 10, 20, 35, 70, 100))
    workloads = [(v, count, Fabret(attributes=12, domain=Domain(1, v))) for v in values]
    runs = measure_each(workloads, _TWO, plan, progress, settled=True)
    spans = {name: _along({x: runs[x] for x in (values[0], values[-1])}, name) for name in _TWO}
    return _finding(
        "Sect. 6.3, domains",
        f"time per event over the values of a domain ({count:,} subscriptions)",
        "The larger the domains, the better both, and dynamic is less sensitive than propagation "
        "because it hashes several attributes.",
        runs,
        "values",
        ("ms", ms_per_event),
        {place: effect for name in _TWO for place, effect in _along(runs, name).items()},
        f"From the smallest to the largest: propagation {extremes(spans[PROPAGATION])}, dynamic "
        f"{extremes(spans[DYNAMIC])}.",
    )


def _predicates(plan: PaperPlan, progress: Progress) -> PaperFinding:
    count = plan.pick(300, 20_000, 300_000)
    numbers = plan.pick((2, 4), (2, 3, 5, 7), (2, 3, 4, 5, 6, 7, 8))
    workloads = [(n, count, Fabret(attributes=12, predicates=n)) for n in numbers]
    runs = measure_each(workloads, _TWO, plan, progress, settled=True)
    return _finding(
        "Sect. 6.3, predicates",
        f"time per event over the predicates per subscription ({count:,} subscriptions)",
        "The more predicates, the better dynamic does: it meets them early and builds its tables on them.",
        runs,
        "predicates",
        ("ms", ms_per_event),
        _along(runs, DYNAMIC),
        f"Propagation: {extremes(_along(runs, PROPAGATION))}.",
    )


def _adaptivity(plan: PaperPlan, progress: Progress) -> list[PaperFinding]:
    cases = (
        (
            "attributes",
            "Fig. 4(a)",
            "throughput while subscriptions move to other attributes",
            "Without change throughput is divided. Dynamic is irregular on the way, as making tables costs, "
            "but better for some time (how long, the text has lost), and handles more events once the "
            "subscriptions are stable.",
        ),
        (
            "skew",
            "Fig. 4(b)",
            "throughput while subscriptions and events become skewed",
            "Without change throughput is reduced. Dynamic adapts: on the way its maintenance costs slightly "
            "more than it gains, later it gains more. More subscriptions match, which costs both.",
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
            repetitions=1,
            clock=process_time,
        )
        result = _joined(
            [measure_drift(replace(limits, seed=seed), each) for each, seed in parts(inner, plan.seeds)]
        )
        findings.append(_drifted(figure, title, claim, limits.steps, result))
    return findings


def _joined(runs: Sequence[DriftResult]) -> DriftResult:
    first = runs[0]
    repetitions = {
        name: [[rate for run in runs for rate in run.repetitions[name][at]] for at in range(len(steps))]
        for name, steps in first.repetitions.items()
    }
    rates = {name: [median(step) for step in repetitions[name]] for name in first.rates}
    return replace(first, rates=rates, repetitions=repetitions)


_SLIGHTLY = 1.25


def _drifted(figure: str, title: str, claim: str, steps: int, result: DriftResult) -> PaperFinding:
    replaced = [step / steps for step in range(steps + 1)]
    series = {name: list(zip(replaced, rates, strict=False)) for name, rates in result.rates.items()}
    rows: list[dict[str, Cell]] = [
        {"replaced": x, **{f"{name} ev/s": round(points[at][1]) for name, points in series.items()}}
        | {f"{STATIC} ev/s": None}
        for at, x in enumerate(replaced)
    ]
    settled = {f"{name} ev/s": round(median(rates[-1])) for name, rates in result.repetitions.items()}
    rows.append({"replaced": "all, settled", **settled})
    dynamic, frozen, (static,) = (result.repetitions[name] for name in (DYNAMIC, "no change", STATIC))
    places = [*(f"{x:.0%} replaced" for x in replaced[1:]), "settled"]
    ahead = {
        place: gain(ours, theirs) for place, ours, theirs in zip(places, dynamic[1:], frozen[1:], strict=True)
    }
    *way, last = ahead.values()
    fall = gain(frozen[0], frozen[-1])
    if figure == "Fig. 4(a)":
        middle = sorted((each for each in way if each is not None), key=lambda each: each.value)
        on_the_way = middle[len(middle) // 2 :][:1]
        lost, judged = fall, "the middle one of the steps on the way, so that it is better for half of them"
    else:
        on_the_way = [None if each is None else each.times(_SLIGHTLY) for each in way]  # type: ignore[misc]
        lost, judged = gain(static, frozen[-1]), f"every step, times {_SLIGHTLY:g} for 'slightly'"
    return PaperFinding(
        figure,
        f"{title} ({result.subscriptions:,} subscriptions)",
        claim,
        f"Dynamic matches so many times the events of no change: {extremes(ahead)}; on the way it is "
        f"{compared([each for each in way if each is not None], 'steps')}; settled {last}. No "
        f"change falls {fall} times. Of a static configuration for the new state dynamic reaches "
        f"{gain(dynamic[-1], static)}, no change {gain(frozen[-1], static)}. Judged are {judged}, the "
        "settled state, and what no change loses.",
        decide(Claim(), [*on_the_way, last, lost]),
        rows,
        Curves("part of the subscriptions replaced", "events/s", series),
    )

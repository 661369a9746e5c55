"""Aguilera et al. 1999: matching by a search tree takes sublinear time and linear space. The paper proves,
for conjunctions of equality tests, that a random event costs at most N to a power below one. Its model can be
computed exactly: if subscriptions test `tests` random ones of `attributes` attributes of `values` values
each, the tree has a node at some depth for every pattern of values and stars that a subscription has, and an
event visits those that agree with it (`visited`, `nodes`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import comb, expm1, log1p

from covey.sim.experiments.bench.match import MatchResult
from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.measuring import (
    cells,
    growth,
    measure_each,
    ms_per_event,
    rate,
    sublinear,
    times_faster,
)
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, PaperReport
from covey.sim.experiments.papers.verdicts import Claim, beside, decide, extremes
from covey.sim.progress import Progress, part, parts
from covey.sim.reports import Curves
from covey.sim.workload import Domain, Fabret

CITATION = (
    "Aguilera, Strom, Sturman, Astley, Chandra: Matching Events in a Content-based Subscription System (1999)"
)
ENGINES = {name: name for name in ("search_tree", "counting", "scan")}
VARIANTS = {
    "all three": "search_tree",
    "no factoring": "search_tree:factoring=0",
    "trivial tests kept": "search_tree:skip_trivial_tests=false",
    "no delayed branching": "search_tree:delayed_branching=false",
    "none": "search_tree:factoring=0,skip_trivial_tests=false,delayed_branching=false",
}
_ATTRIBUTES = 10
_MODELS = ((5, 10), (7, 6), (9, 4))
"""Tests per subscription, and values per attribute."""
_LINEAR = 1.25
"""Space is linear if the bytes per subscription stay below this multiple of those at the smallest size."""


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    full = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    sizes = plan.pick((200, 800, 3_200), (2_000, 8_000, 32_000), full)
    most = plan.pick(sizes, (32_000, 128_000, 512_000), full)
    measured: dict[tuple[int, int], dict[int, dict[str, MatchResult]]] = {}
    for inner, (tests, values) in parts(part(progress, 0.0, 0.7), _MODELS):
        engines = {"search_tree": "search_tree"} if measured else ENGINES
        cases = [(count, count, _workload(tests, values)) for count in (sizes if measured else most)]
        measured[tests, values] = measure_each(cases, engines, plan, inner)
    findings = [
        _sublinear(measured[_MODELS[0]]),
        _exponents(measured),
        _space(measured[_MODELS[0]]),
        _optimisations(plan, part(progress, 0.7, 1.0)),
    ]
    notes = [
        "Claims are those of the abstract, the only text available. "
        f"Workload: {_ATTRIBUTES} attributes, equality tests on random ones of them, uniform values, "
        "events with all attributes. Neither the paper's model nor this one has ranges.",
        "A constant cost per event flattens curves on the left; the cost of cache misses steepens them on "
        "the right, as the tree exceeds the caches.",
    ]
    return PaperReport("aguilera", CITATION, plan.size, findings, notes, plan.seeds)


def _workload(tests: int, values: int) -> Fabret:
    return Fabret(
        name=f"{tests} of {_ATTRIBUTES}, {values} values",
        attributes=_ATTRIBUTES,
        predicates=tests,
        fixed={},
        domain=Domain(1, values),
    )


def visited(subscriptions: int, attributes: int, tests: int, values: int) -> float:
    """Nodes of the plain tree that an event reaches, on average over random subscriptions."""
    patterns = _patterns(subscriptions, attributes, tests, values)
    return sum(choices * present for choices, _, present in patterns)


def nodes(subscriptions: int, attributes: int, tests: int, values: int) -> float:
    """Nodes of the plain tree, on average over random subscriptions."""
    patterns = _patterns(subscriptions, attributes, tests, values)
    return sum(choices * float(values) ** tested * present for choices, tested, present in patterns)


def _patterns(
    subscriptions: int, attributes: int, tests: int, values: int
) -> Iterator[tuple[int, int, float]]:
    """By depth and number of tested attributes down to it: the choices of these attributes, their number, and
    the probability that a node with given values exists."""
    for depth in range(1, attributes + 1):
        for tested in range(min(depth, tests) + 1):
            share = _share(attributes, tests, depth, tested) / float(values) ** tested
            yield comb(depth, tested), tested, _present(subscriptions, share)


def _share(attributes: int, tests: int, depth: int, tested: int) -> float:
    """The share of subscriptions that test one given choice of `tested` of the first `depth` attributes."""
    return comb(attributes - depth, tests - tested) / comb(attributes, tests)


def _present(subscriptions: int, probability: float) -> float:
    return 1.0 if probability >= 1 else -expm1(subscriptions * log1p(-probability))


def _sublinear(runs: Mapping[int, Mapping[str, MatchResult]]) -> PaperFinding:
    tests, values = _MODELS[0]
    rows: list[dict[str, Cell]] = []
    for count, results in runs.items():
        row = {"subscriptions": count} | cells(results, ENGINES, "ms", ms_per_event)
        row["matches/event"] = results["search_tree"].matches_per_event
        row["nodes visited, computed"] = visited(count, _ATTRIBUTES, tests, values)
        rows.append(row)
    series = {
        name: [(float(c), ms_per_event(results[name])) for c, results in runs.items() if name in results]
        for name in ENGINES
    }
    exponents = {name: growth(points) for name, points in series.items() if len(points) > 1}
    powers = ", ".join(f"{name} {exponents[name]:.2f}" for name in exponents)
    effects = {
        name: sublinear({count: results[name] for count, results in runs.items() if name in results})
        for name in ENGINES
    }
    verdicts = {name: decide(Claim(), [*effects[name].values()]) for name in ENGINES}
    words = "; ".join(f"{name} {extremes(effects[name])}: {verdicts[name]}" for name in ENGINES)
    faster = {
        f"{name}, {count:,}": times_faster(results, "search_tree", name)
        for count, results in runs.items()
        for name in ("counting", "scan")
    }
    return PaperFinding(
        "Theorem",
        f"time per event over subscriptions ({tests} equality tests on {_ATTRIBUTES} attributes)",
        "The expected time to match a random event grows at most as a power of the subscriptions below "
        "one, in many cases the square root.",
        f"What one more subscription adds falls so many times between sizes (1 is linear): {words}. Powers "
        f"of the subscriptions, which the constant cost of an event lowers: {powers}. Times as fast as "
        f"counting and the scan: {extremes(faster)}.",
        beside(verdicts["search_tree"], [verdicts[name] for name in ("counting", "scan")]),
        rows,
        Curves("subscriptions", "ms per event", series, log_x=True, log_y=True),
    )


def _exponents(measured: Mapping[tuple[int, int], Mapping[int, Mapping[str, MatchResult]]]) -> PaperFinding:
    rows: list[dict[str, Cell]] = []
    series: dict[str, list[tuple[float, float]]] = {}
    effects: dict[str, Estimate | None] = {}
    for (tests, values), runs in measured.items():
        points = [(float(count), ms_per_event(results["search_tree"])) for count, results in runs.items()]
        expected = [(float(count), visited(count, _ATTRIBUTES, tests, values)) for count in runs]
        label = f"{tests} tests, {values} values"
        grown = [
            growth(
                [
                    (float(count), 1 / results["search_tree"].rates["ids"][at])
                    for count, results in runs.items()
                ]
            )
            for at in range(len(next(iter(runs.values()))["search_tree"].rates["ids"]))
        ]
        effects[label] = gain([growth(expected)] * len(grown), grown)
        series[label] = points
        rows.append(
            {
                "tests": tests,
                "values": values,
                "exponent of time": round(growth(points), 2),
                "of nodes visited, computed": round(growth(expected), 2),
                "visited at most": round(expected[-1][1]),
                "ms at most": points[-1][1],
            }
        )
    words = ", ".join(
        f"{row['tests']} tests of {row['values']} values {row['exponent of time']} "
        f"(visited nodes {row['of nodes visited, computed']})"
        for row in rows
    )
    return PaperFinding(
        "Exponent",
        "how it depends on the number and kind of tests",
        "The exponent is a closed expression of the number and types of attributes.",
        f"Power of the subscriptions by which time grows: {words}. The model's is so many times the measured "
        f"one: {extremes(effects)}, perhaps since a visit costs more as the tree exceeds the caches.",
        decide(Claim(), [*effects.values()]),
        rows,
        Curves("subscriptions", "ms per event", series, log_x=True, log_y=True),
    )


def _space(runs: Mapping[int, Mapping[str, MatchResult]]) -> PaperFinding:
    tests, values = _MODELS[0]
    rows: list[dict[str, Cell]] = []
    for count, results in runs.items():
        row = {"subscriptions": count} | cells(results, ENGINES, "B", lambda of: of.bytes_per_subscription)
        row["nodes each, computed"] = nodes(count, _ATTRIBUTES, tests, values) / count
        rows.append(row)
    series = {
        name: [(float(c), sum(r[name].memory.values()) / 1e6) for c, r in runs.items() if name in r]
        for name in ENGINES
    }
    exponent = growth(series["search_tree"])
    each = [float(row["search_tree B"] or 0) for row in rows]
    steady = [Estimate.exact(_LINEAR * each[0] / of) for of in each[1:]]
    return PaperFinding(
        "Space",
        f"memory over subscriptions ({tests} equality tests on {_ATTRIBUTES} attributes)",
        "The tree takes space linear in the number of subscriptions.",
        f"From {min(runs):,} to {max(runs):,} subscriptions a subscription takes {each[0]:.0f} to "
        f"{each[-1]:.0f} bytes; memory grows with the power {exponent:.2f} of the subscriptions.",
        decide(Claim(), steady),
        rows,
        Curves("subscriptions", "MB", series, log_x=True, log_y=True),
    )


def _optimisations(plan: PaperPlan, progress: Progress) -> PaperFinding:
    """All optimisations, without each of them, and without all three."""
    sizes = plan.pick((200, 400), (10_000, 40_000), (30_000, 100_000, 300_000))
    workload = _workload(*_MODELS[0])
    runs = measure_each([(count, count, workload) for count in sizes], VARIANTS, plan, progress)
    rows: list[dict[str, Cell]] = []
    for name in VARIANTS:
        row: dict[str, Cell] = {"optimisations": name}
        for count, results in runs.items():
            row[f"ev/s at {count:,}"] = round(rate(results[name])) if name in results else None
            row[f"B at {count:,}"] = round(results[name].bytes_per_subscription) if name in results else None
        rows.append(row)
    whole = {f"{count:,}": times_faster(results, "all three", "none") for count, results in runs.items()}
    single = {
        f"{name}, {count:,}": times_faster(results, "all three", name)
        for count, results in runs.items()
        for name in VARIANTS
        if name not in ("all three", "none")
    }
    return PaperFinding(
        "Optimisations",
        "skipping trivial tests, factoring, delayed branching",
        "Techniques that modify the tree improve the search time.",
        f"All three together make it so many times as fast as none: {extremes(whole)}; and as fast as "
        f"without one of them: {extremes(single)}.",
        decide(Claim(), [*whole.values(), *single.values()]),
        rows,
        Curves(
            "subscriptions",
            "ms per event",
            {n: [(float(c), ms_per_event(r[n])) for c, r in runs.items() if n in r] for n in VARIANTS},
            log_x=True,
            log_y=True,
        ),
    )

"""Bittner and Hinze 2005: memory per subscription of filters as trees and in disjunctive normal form.
Canonical engines store the S_s conjunctions of a filter's disjunctive normal form; the non-canonical one
stores its tree. The paper derives bytes per subscription (equations 2, 4 and 5) and the S_s from which the
tree is smaller (12, 14), and measures both. Here memory is the engines' own accounting (`memory_bytes`), and
times are those of `covey bench match`. Figs. 4 to 6 and Table 2 are in `bittner_theory.py`."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from covey.sim.experiments.bench.match import MatchResult
from covey.sim.experiments.papers.bittner_theory import (
    ENGINES,
    TREE,
    crossing,
    load,
    structures,
    tables,
    theory,
    turning_points,
)
from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.measuring import (
    cells,
    growth,
    measure,
    memory_of,
    ms_per_event,
    rate,
    rate_ratio,
    times_faster,
)
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, PaperReport
from covey.sim.experiments.papers.verdicts import Claim, claimed, decide, extremes, together
from covey.sim.progress import Progress, part, parts
from covey.sim.reports import Bars, Curves
from covey.sim.workload import Boolean, Shape
from covey.sim.workload.boolean import branching, pairs, with_least

CITATION = (
    "Bittner, Hinze: Investigating the Memory Requirements for Publish/Subscribe Filtering Algorithms (2005)"
)
_PAIR = {name: ENGINES[name] for name in ("counting", TREE)}
"""The algorithms that the paper has implemented."""


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    """Figs. 4 to 6, 9 to 11 and Table 2: memory; Figs. 12 and 13: time. `quick` takes about 3 minutes."""
    loaded = load(plan, part(progress, 0.0, 0.2))
    findings = [
        *turning_points(loaded),
        structures(loaded),
        *_memory(plan, part(progress, 0.2, 0.4)),
        _redundancy(plan, part(progress, 0.4, 0.45)),
        _time(plan, part(progress, 0.45, 0.6)),
        *_over_predicates(plan, part(progress, 0.6, 0.8)),
        choice(plan, part(progress, 0.8, 1.0)),
    ]
    notes = [
        "B: an engine's whole memory: predicates, index, hash tables with empty places, ids, values and "
        "reserve. tables B: without predicates, their index, and the tables of filters and ids, as in the "
        "paper's equations (eq. B, identifiers of 4 bytes).",
        "Cluster is Fabret's algorithm with single access predicates, the engine `propagation`; where "
        "predicates are on ranges, as here, one of these is the access predicate, and hardly any is shared. "
        "Its cluster vector is counted, which the paper neglects. The paper measures memory with counting "
        "only, but also analyses cluster.",
    ]
    return PaperReport("bittner", CITATION, plan.size, findings, notes, plan.seeds)


def _memory(plan: PaperPlan, progress: Progress) -> list[PaperFinding]:
    """Figs. 9 and 10 for two degrees of sharing, over S_s; and filters of many small alternations."""
    count = plan.pick(300, 20_000, 50_000)
    p = plan.pick(6, 12, 30)
    disjuncts = plan.pick((1, 3), (1, 2, 3, 4, 6), (1, 2, 3, 4, 6, 10))
    few = [branching(p, n, 0.3) for n in disjuncts]
    many = [branching(p, n, 0.7) for n in disjuncts]
    alternating = [pairs(p, k) for k in range(plan.pick(3, 5, 6))]
    cases = [
        (
            "Fig. 9",
            "memory by disjuncts, few of which share a predicate",
            few,
            "With s^r = 0.3, the tree is smaller from about four disjuncts on (3 to 5, by |p|). A predicate "
            f"is in one of S_s conjunctions at least, so few have a larger s^r: here it is {_shared(few)}.",
            5,
        ),
        (
            "Fig. 10",
            "memory by disjuncts, most of which share a predicate",
            many,
            "With s^r = 0.7, the tree is smaller from slightly less than two disjuncts on: one "
            f"`or` suffices. Here s^r is {_shared(many)}.",
            2,
        ),
        (
            "Sect. 2.1, 6.1",
            "memory by the number of `(x or y)` in a conjunction",
            alternating,
            "Canonical memory grows with the disjuncts, which double with each alternation; the "
            "tree's does not.",
            2,
        ),
    ]
    findings = []
    for outer, (figure, title, shapes, claim, least) in parts(progress, cases):
        rows: list[dict[str, Cell]] = []
        for inner, shape in parts(outer, shapes):
            workload = Boolean(shape=shape, fulfilled=plan.pick(0.3, 0.02, 0.02))
            rows.append(_memory_row(shape, measure(workload, count, ENGINES, plan, inner)))
        title = f"{title} (|p| = {p}, {count:,} subscriptions)"
        findings.append(_memory_finding(figure, title, claim, rows, least))
    return findings


def _shared(shapes: list[Shape]) -> str:
    return ", ".join(f"{shape.shared / shape.conjunctions:.2g}" for shape in shapes)


def _memory_row(shape: Shape, results: Mapping[str, MatchResult]) -> dict[str, Cell]:
    expected = theory(shape)
    return {
        "S_s": shape.conjunctions,
        "s^r": round(shape.shared / shape.conjunctions, 2),
        "op^r": round(shape.operators / shape.predicates, 2),
        **cells(results, ENGINES, "B", _size),
        **cells(results, ENGINES, "tables B", _tables),
        **{f"{name} eq. B": round(expected[name]) for name in ENGINES},
        **cells(results, ENGINES, "ev/s", lambda each: round(1e3 / ms_per_event(each))),
    }


def _size(result: MatchResult) -> int:
    return round(result.bytes_per_subscription)


def _tables(result: MatchResult) -> int:
    return round(tables(result.memory) / result.subscriptions)


def _series(rows: list[dict[str, Cell]], x: str, y: str) -> list[tuple[float, float]]:
    return [(float(row[x] or 0), float(row[y] or 0)) for row in rows if row[y] is not None]


def _memory_finding(
    figure: str, title: str, claim: str, rows: list[dict[str, Cell]], least: int
) -> PaperFinding:
    """The claim is judged against counting, at every S_s from `least` on."""
    series = {name: _series(rows, "S_s", f"{name} B") for name in ENGINES}
    tree = series[TREE]
    crossings = {name: crossing(points, tree) for name, points in series.items() if name != TREE}
    paper = {
        name: crossing(_series(rows, "S_s", f"{name} eq. B"), _series(rows, "S_s", f"{TREE} eq. B"))
        for name in crossings
    }
    words = [
        f"the tree is smaller than {name} {_from(crossings[name])}, by the paper's equations "
        f"{_from(paper[name])}"
        for name in crossings
    ]
    growth = ", ".join(f"{name} {points[-1][1] / points[0][1]:.1f}" for name, points in series.items())
    conclusion = (
        f"{'; '.join(words)}. From {rows[0]['S_s']} to {rows[-1]['S_s']} disjuncts memory grew by ({growth})."
    )
    conclusion = conclusion[0].upper() + conclusion[1:]
    effects = {
        f"S_s {x:g}": Estimate.exact(y / other)
        for (x, y), (_, other) in zip(series["counting"], tree, strict=True)
        if x >= least
    }
    conclusion += f" Counting takes so many times the tree's bytes from S_s {least} on: {extremes(effects)}."
    return PaperFinding(
        figure,
        title,
        claim,
        conclusion,
        decide(Claim(), [*effects.values()]),
        rows,
        Curves("disjuncts after normal form, S_s", "bytes per subscription", series),
    )


def _from(disjuncts: float | None) -> str:
    return "at no size measured" if disjuncts is None else f"beyond S_s = {disjuncts:.1f}"


def _redundancy(plan: PaperPlan, progress: Progress) -> PaperFinding:
    """Fig. 11: memory by the share of predicates that several subscriptions share."""
    count = plan.pick(300, 20_000, 50_000)
    shape = branching(plan.pick(6, 12, 30), 4, 0.3)
    rows: list[dict[str, Cell]] = []
    for inner, degree in parts(progress, (0.0, 0.25, 0.5, 0.9)):
        inner("loading", 0.0)
        memory = memory_of(Boolean(shape=shape, redundancy=degree), count, ENGINES, plan)
        sizes = {f"{name} B": round(sum(of.values()) / count) for name, of in memory.items()}
        rows.append({"r_p": degree, **sizes})
    series = {name: _series(rows, "r_p", f"{name} B") for name in ENGINES}
    savings = {name: 1 - points[2][1] / points[0][1] for name, points in series.items()}
    effects = [
        Estimate.exact(points[0][1] / shared)
        for name in ("counting", TREE)
        for points in (series[name],)
        for _, shared in points[1:]
    ]
    return PaperFinding(
        "Fig. 11",
        f"memory by predicate redundancy (|p| = {shape.predicates}, S_s = 4, {count:,} subscriptions)",
        "No effect in theory; in practice both engines take less memory with shared predicates, since "
        "each distinct predicate has a fixed cost.",
        "With half of the predicates shared, "
        + ", ".join(f"{name} takes {part:.0%} less" for name, part in savings.items())
        + ".",
        decide(Claim(), effects),
        rows,
        Curves("predicate redundancy r_p", "bytes per subscription", series),
    )


def _time(plan: PaperPlan, progress: Progress) -> PaperFinding:
    """Fig. 12: time per event over subscriptions, for S_s of 4 and 8, without and with shared predicates."""
    sizes = plan.pick((200, 400), (5_000, 10_000, 20_000), (12_500, 25_000, 50_000, 100_000))
    p, least = plan.pick((8, 4), (10, 5), (30, 10))
    level = p <= 10  # Fig. 12(a); with 30 predicates (b)
    loads = [(degree, alternations) for alternations in (2, 3) for degree in (0.0, 0.5)]
    measured: dict[float, Mapping[str, MatchResult]] = {}
    shared: dict[str, Estimate | None] = {}
    rows: list[dict[str, Cell]] = []
    slower: dict[int, dict[str, Estimate | None]] = {2: {}, 3: {}}
    for outer, count in parts(progress, sizes):
        row: dict[str, Cell] = {"subscriptions": count}
        for inner, (degree, alternations) in parts(outer, loads):
            shape = with_least(p, alternations, least)
            fulfilled = plan.pick(0.3, 0.02, 0.02) / (1 - degree)  # of fewer different ones, as many in all
            workload = Boolean(shape=shape, redundancy=degree, fulfilled=fulfilled)
            results = measured[degree] = measure(workload, count, _PAIR, plan, inner)
            label = f"S_s {shape.conjunctions}, r_p {degree:g}, ms"
            row |= cells(results, _PAIR, label, lambda of: round(ms_per_event(of), 4))
            slower[alternations][f"{count:,}, r_p {degree:g}"] = times_faster(results, TREE, "counting")
            for name in _PAIR if degree else ():
                if name in results and name in measured[0.0]:
                    place = f"{name}, S_s {shape.conjunctions}, {count:,}"
                    shared[place] = rate_ratio(measured[0.0][name], results[name])
        rows.append(row)
    series = {key.removesuffix(", ms"): _series(rows, "subscriptions", key) for key in rows[0] if "ms" in key}
    powers = ", ".join(f"{name} {growth(points):.2f}" for name, points in series.items() if len(points) > 1)
    return PaperFinding(
        "Fig. 12",
        f"time per event over subscriptions (|p| = {p}, |p_min| = {least})",
        "Both grow linearly with the subscriptions, and with the share of predicates that several of them "
        f"have; {'about as fast as each other' if level else 'the tree is the faster one'} at S_s = 4, and "
        "counting is the slowest of all at S_s = 8.",
        f"Counting takes so many times the tree's time at S_s = 4: {extremes(slower[2])}; at S_s = 8: "
        f"{extremes(slower[3])}. A fulfilled predicate adds to a counter of each conjunction that contains "
        "it, of a tree to one. Both evaluate nothing but what enough fulfilled predicates make possible; the "
        "paper's trees are then evaluated whole, these until the outcome is certain. Time grows with these "
        f"powers of the subscriptions: {powers}. With half of the predicates shared it takes so many times "
        f"as long: {extremes(shared)}.",
        together(
            [
                decide(Claim(), [*(map(_as_fast, slower[2].values()) if level else slower[2].values())]),
                decide(Claim(), [*slower[3].values()]),
                decide(Claim(), [*shared.values()]),
            ]
        ),
        rows,
        Curves("subscriptions", "ms per event", series, log_x=True, log_y=True),
    )


def _over_predicates(plan: PaperPlan, progress: Progress) -> list[PaperFinding]:
    """Fig. 13: time per event over |p|, where an event fulfils few predicates, and many."""
    count = plan.pick(300, 10_000, 50_000)
    numbers = plan.pick((8, 12), (15, 20, 30), (15, 30, 50))
    few, many = plan.pick((3, 5), (5, 10), (5, 10))
    loads = {f"S_s {2**n}, |p_min| {least}": (n, least) for n, least in ((2, few), (2, many), (3, few))}
    plain, stricter, larger = loads
    claims = {
        "Fig. 13(a)": (
            0.05,
            "Where an event fulfils few predicates, p_e = 0.05 |s|, counting with S_s = 4 is the faster one; "
            "the tree grows least over |p|.",
        ),
        "Fig. 13(b)": (
            1.0,
            "Where it fulfils many, p_e = |s|, the tree is the faster one, at S_s = 4 and 8; it is faster "
            "the more predicates have to hold, and grows least over |p|.",
        ),
    }
    findings = []
    for outer, (figure, (fulfilled, claim)) in parts(progress, [*claims.items()]):
        runs: dict[int, dict[str, dict[str, MatchResult]]] = {p: {} for p in numbers}
        cases = [(p, label) for p in numbers for label in loads]
        for inner, (p, label) in parts(outer, cases):
            workload = Boolean(shape=with_least(p, *loads[label]), fulfilled=fulfilled / p)
            runs[p][label] = measure(workload, count, _PAIR, plan, inner)
        faster = ("counting", TREE) if figure.endswith("(a)") else (TREE, "counting")
        effects = {f"S_s 4, |p| {p}": times_faster(of[plain], *faster) for p, of in runs.items()}
        if faster[0] == TREE:
            effects |= {f"S_s 8, |p| {p}": times_faster(of[larger], *faster) for p, of in runs.items()}
            for p, of in runs.items():
                if TREE in of[plain] and TREE in of[stricter]:
                    place = f"|p_min| {many} over {few}, |p| {p}"
                    effects[place] = rate_ratio(of[stricter][TREE], of[plain][TREE])
        effects["growth of counting over the tree's"] = _growth_ratio(
            runs[numbers[0]][plain], runs[numbers[-1]][plain]
        )
        rows: list[dict[str, Cell]] = []
        for p, of in runs.items():
            row: dict[str, Cell] = {"|p|": p}
            for label, results in of.items():
                row |= cells(results, _PAIR, f"{label}, ms", lambda each: round(ms_per_event(each), 4))
            rows.append(row)
        series = {key.removesuffix(", ms"): _series(rows, "|p|", key) for key in rows[0] if "ms" in key}
        findings.append(
            PaperFinding(
                figure,
                f"time per event over |p| (p_e = {fulfilled:g} |s|, {count:,} subscriptions)",
                claim,
                claimed(effects),
                decide(Claim(), [*effects.values()]),
                rows,
                Curves("predicates per subscription, |p|", "ms per event", series, log_y=True),
            )
        )
    return findings


def _growth_ratio(first: Mapping[str, MatchResult], last: Mapping[str, MatchResult]) -> Estimate | None:
    if not (first.keys() & last.keys()) >= _PAIR.keys():
        return None
    grown = {
        name: [a / b for a, b in zip(first[name].rates["ids"], last[name].rates["ids"], strict=True)]
        for name in _PAIR
    }
    return gain(grown["counting"], grown[TREE])


def _as_fast(slower: Estimate | None) -> Estimate | None:
    if slower is None:
        return None
    return (slower if slower.value > 1 else slower.under(1)).under(_AS_FAST)


_AS_FAST = 1.25
"""Times within this factor of each other are about equal."""
FORMS = {"cap": "cluster:forms=normal", "tree": "trees", "chosen": "cluster"}
"""Normal form up to 64 conjunctions, trees alone, and the choice of the model."""


def choice(plan: PaperPlan, progress: Progress) -> PaperFinding:
    """Memory and time of the production engine over the paper's range of filters, by form."""
    count, p = plan.pick(300, 10_000, 30_000), plan.pick(6, 12, 30)
    shapes = [
        *[branching(p, n, 0.3) for n in plan.pick((3,), (2, 4, 6), (2, 4, 6, 10))],
        *[branching(p, n, 0.7) for n in plan.pick((3,), (2, 4, 6), (2, 4, 6, 10))],
        *[pairs(p, k) for k in plan.pick((2,), (2, 4, 6), (2, 4, 6, 7))],
    ]
    rows: list[dict[str, Cell]] = []
    better: list[Estimate | None] = []
    loads = [(shape, share) for share in (0.02, 0.3) for shape in shapes]
    for inner, (shape, share) in parts(progress, loads):
        workload = Boolean(shape=shape, fulfilled=share)
        results = measure(workload, count, FORMS, plan, inner)
        if len(results) == len(FORMS):
            shared = round(shape.shared / shape.conjunctions, 2)
            described: dict[str, Cell] = {"p_e / |s||p|": share, "S_s": shape.conjunctions, "s^r": shared}
            rows.append(described | _row(results))
            better.append(_over_worse(results))
    mean = {name: exp(sum(log(_product(row, name)) for row in rows) / len(rows)) for name in FORMS}
    worst = {name: max(_product(row, name) for row in rows) for name in FORMS}
    words = ", ".join(f"{name} {mean[name]:.2f} ({worst[name]:.1f} at worst)" for name in FORMS)
    return PaperFinding(
        "Sect. 4, 6.2",
        f"normal form or tree, chosen by the model (|p| = {p}, {count:,} subscriptions)",
        "The paper recommends the tree from one `or` on where s^r is 0.7, and from about four disjuncts on "
        "where it is 0.3, by memory; time favours either. That a model can choose per filter is ours.",
        "Bytes times nanoseconds as multiples of those of the better form, in the geometric mean: "
        f"{words}. `cap` is the normal form for up to 64 conjunctions, else the tree. The model assumes "
        "what part of the events passes a range, so it errs where the forms are close.",
        decide(Claim(), better),
        rows,
        Bars(
            "bytes times ns, as a multiple of the better form",
            [f"S_s {row['S_s']}, s^r {row['s^r']}, {row['p_e / |s||p|']}" for row in rows],
            {name: [_product(row, name) for row in rows] for name in FORMS},
            dots=True,
            log=True,
        ),
    )


def _row(results: Mapping[str, MatchResult]) -> dict[str, Cell]:
    sizes: dict[str, Cell] = {f"{name} B": round(results[name].bytes_per_subscription) for name in FORMS}
    times: dict[str, Cell] = {f"{name} us": round(1e3 * ms_per_event(results[name]), 2) for name in FORMS}
    form = "tree" if results["chosen"].memory.get("trees", 0) else "normal form"
    return {"chosen": form, **sizes, **times}


def _over_worse(results: Mapping[str, MatchResult]) -> Estimate | None:
    """How many times less bytes times nanoseconds the chosen form takes than the worse one."""
    worse = max(("cap", "tree"), key=lambda name: results[name].bytes_per_subscription / rate(results[name]))
    faster = rate_ratio(results["chosen"], results[worse])
    if faster is None:
        return None
    size = results[worse].bytes_per_subscription / results["chosen"].bytes_per_subscription
    return Estimate(size * faster.value, size * faster.low, size * faster.high, faster.runs)


def _product(row: Mapping[str, Cell], name: str) -> float:
    """Bytes times time of a form, as a multiple of the better one's."""
    products = {each: float(row[f"{each} B"] or 1) * float(row[f"{each} us"] or 1) for each in FORMS}
    return products[name] / min(products["cap"], products["tree"])

"""The findings of `jayaram.py`. A factor of the paper is judged at each rate on the paper's axis, 10 to 100
updates per second and edge broker, and again over all utilisations up to the highest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from covey.sim.experiments.papers.estimates import Estimate
from covey.sim.experiments.papers.jayaram_calibrations import checked_in, costs_of
from covey.sim.experiments.papers.jayaram_cases import (
    BASE,
    COVEY,
    KNEE,
    METRICS,
    Assumption,
    Case,
    warm_up_s,
)
from covey.sim.experiments.papers.jayaram_prediction import (
    at,
    change_costs,
    closed_loop,
    settling_s,
    utilisation_for,
)
from covey.sim.experiments.papers.jayaram_runs import Results
from covey.sim.experiments.papers.report import Cell, PaperFinding
from covey.sim.experiments.papers.verdicts import (
    REACHED,
    Claim,
    Verdict,
    compared,
    decide,
    extremes,
    together,
)
from covey.sim.reports import Bars, Curves
from covey.sim.simulator.costs import CostTable

LABELS = {
    "throughput": "delivered events/s",
    "delay": "mean delay of a change (ms)",
    "spurious": "spurious events/s",
}
GAINS = {"throughput": "throughput", "delay": "delay", "spurious": "spurious events"}
RATE = "updates/s and edge broker"
_RHO = "utilisation by changes, busiest broker"
_PAIRS = {
    "siena": ("siena-static", "siena-parametric-local"),
    "siena, whole poset": ("siena-static", "siena-parametric"),
    "rete": ("rete-static", "rete-parametric-local"),
    "rete, whole poset": ("rete-static", "rete-parametric"),
    "covey": ("covey-static", "covey-parametric"),
}
_SHORT_OF_IT = {Verdict.SMALLER, Verdict.NOT_HERE}
_ONE_BY_ONE = {"fifo", "broker"}
"""Services whose changes wait behind events."""

Factor = Callable[[Case, float, str], Estimate | None]
"""How many times better updates are in a case, at a utilisation, by a metric, under the base assumptions."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A factor of Table 1 or Fig. 9, and the measurement at each utilisation of its case."""

    case: Case
    metric: str
    figure: str
    paper: float
    effects: dict[float, Estimate | None]

    def verdict(self, rhos: Sequence[float]) -> Verdict:
        return judged(self.paper, [self.effects[rho] for rho in rhos])

    def words(self, rhos: Sequence[float]) -> str:
        if not rhos:
            return "no broker with these costs can serve the paper's rates"
        return extremes({f"{self.case.rate(rho):.0f}/s, rho {rho:g}": self.effects[rho] for rho in rhos})

    @property
    def name(self) -> str:
        return f"{self.case.title}: {GAINS[self.metric]}"

    @property
    def loaded(self) -> list[float]:
        return [rho for rho in self.case.rhos if rho > 0]


def claimed(cases: Sequence[Case], factor: Factor) -> list[Claimed]:
    return [
        Claimed(case, metric, figure, paper, {rho: factor(case, rho, metric) for rho in case.rhos})
        for case in cases
        for metric, figure, paper in zip(METRICS, case.figures, case.claims, strict=False)
    ]


def judged(paper: float, effects: Sequence[Estimate | None]) -> Verdict:
    """A lower bound below the claim does not mean that the effect is smaller."""
    verdict = decide(Claim(paper, up_to=True), effects)
    bounded = any(effect is not None and effect.above for effect in effects)
    return Verdict.UNDECIDED if bounded and verdict in _SHORT_OF_IT else verdict


def base_factor(results: Results) -> Factor:
    table = checked_in()

    def factor(case: Case, rho: float, metric: str) -> Estimate | None:
        return bounded(results.factor(case, BASE, rho, metric), metric, case, BASE, rho, table)

    return factor


def bounded(
    effect: Estimate | None, metric: str, case: Case, assumption: Assumption, rho: float, table: CostTable
) -> Estimate | None:
    """A factor of throughput or delay becomes a lower bound if the measurement begins before the lane of
    re-subscription is steady: its events still become fewer and later."""
    if effect is None or metric == "spurious" or is_steady(case, assumption, rho, table):
        return effect
    return replace(effect, value=effect.low, high=inf, above=True)


def is_steady(case: Case, assumption: Assumption, rho: float, table: CostTable) -> bool:
    """Whether a warm-up is as long as the busiest broker needs under re-subscription."""
    of = case.scenario
    service = assumption.fields.get("service", of.service)
    if service not in _ONE_BY_ONE or assumption.offered or rho == 0:
        return True
    event_s = costs_of(case, table).event * of.cpu_scale / 1e9
    return settling_s(of.publishers * of.window, event_s, rho) <= warm_up_s(
        case, of.having(service=service), rho
    )


def table_1(cases: Sequence[Case], factor: Factor) -> PaperFinding:
    factors = claimed(cases, factor)
    rows: list[dict[str, Cell]] = [
        {
            "gain": each.name,
            "figure": each.figure,
            "paper up to": each.paper,
            "at the paper's rates": each.words(each.case.drawn),
            "verdict": each.verdict(each.case.drawn),
            f"up to rho {max(each.loaded):g}": each.words(each.loaded),
            "verdict there": each.verdict(each.loaded),
        }
        for each in factors
    ]
    verdicts = [each.verdict(each.case.drawn) for each in factors]
    beyond = [each.verdict(each.loaded) for each in factors]
    return PaperFinding(
        "Table 1",
        "what parametric subscriptions gain over re-subscription",
        "With the poset as matcher up to 8 and 4.4 times the throughput (HTM, AT), a sixth and a third of "
        "the delay, a sixth of the spurious events; with Rete up to 1.53 and 1.25 times the throughput, 2 "
        "and 4.4 times less delay, 2.2 and 3.4 times fewer spurious events.",
        f"Of {len(factors)} factors, at the paper's rates: {_counted(verdicts)}. Over all utilisations: "
        f"{_counted(beyond)}.",
        together(verdicts),
        rows,
        Bars(
            "times better with updates, at the highest of the paper's rates, without bounds",
            [f"{each.figure} {GAINS[each.metric]}" for each in factors],
            {
                "paper": [each.paper for each in factors],
                "here": [_drawn(each.effects[max(each.case.drawn or each.loaded)]) for each in factors],
            },
            dots=True,
            log=True,
        ),
    )


def _counted(verdicts: Sequence[Verdict]) -> str:
    return ", ".join(f"{verdicts.count(each)} {each}" for each in Verdict if each in verdicts)


def _shown(estimate: Estimate | None) -> str | None:
    return None if estimate is None else str(estimate) if estimate.value else "0.00"


def _drawn(estimate: Estimate | None) -> tuple[float, float, float] | float | None:
    """A factor in a figure: bounds are not drawn."""
    if estimate is None or estimate.above or estimate.low == 0 < estimate.high == estimate.value:
        return None
    return estimate.drawn


def gains(cases: Sequence[Case], factor: Factor) -> list[PaperFinding]:
    findings = []
    for metric in METRICS:
        rows: list[dict[str, Cell]] = []
        series: dict[str, list[tuple[float, float] | tuple[float, float, float, float]]] = {}
        for case in cases:
            for rho in case.rhos:
                effect = factor(case, rho, metric)
                row: dict[str, Cell] = {"case": case.title, RATE: round(case.rate(rho)), "rho": rho}
                rows.append(row | {"times better": None if effect is None else str(effect)})
                if effect is not None and rho > 0 and _drawn(effect) is not None:
                    series.setdefault(case.title, []).append(effect.over(case.rate(rho)))
        factors = [each for each in claimed(cases, factor) if each.metric == metric]
        findings.append(
            PaperFinding(
                GAINS[metric].capitalize(),
                f"gain in {GAINS[metric]} over updates per second and edge broker",
                f"Up to {', '.join(map(_at_most, factors))} times; rates are updates per second.",
                " ".join(_answer(each) for each in factors),
                together([each.verdict(each.case.drawn) for each in factors]),
                rows,
                Curves(RATE, f"gain in {GAINS[metric]}, without bounds", series, log_y=True),
            )
        )
    return findings


def _at_most(each: Claimed) -> str:
    rates = "10 to 100 per edge broker" if each.case.drawn else "up to 1,000 per subscriber"
    return f"{each.paper:g} ({each.figure}, {rates})"


def _answer(each: Claimed) -> str:
    two_lanes = each.case.scenario.service == "two-lanes"
    built = bool(each.case.drawn) and each.metric == "throughput" and two_lanes
    return (
        f"{each.case.title}: {each.words(each.case.drawn)}"
        + (", by construction, as two lanes do not share a processor" if built else "")
        + "."
    )


def summary(cases: Sequence[Case], factor: Factor) -> list[str]:
    """The highest of the paper's rates, with verdicts over all of them; and the conclusion of Table 1."""
    sentences = []
    for case in cases:
        rhos = case.drawn or tuple(rho for rho in case.rhos if rho > 0)
        top = max(rhos)
        claims = {each.metric: each for each in claimed([case], factor)}
        words = []
        for metric in METRICS:
            each = claims.get(metric)
            seen = factor(case, top, metric)
            claim = f", {each.verdict(rhos)} (paper: up to {each.paper:g})" if each else ""
            words.append(f"{GAINS[metric]} {'nothing was measured' if seen is None else seen}{claim}")
        where = "" if case.drawn else ", below the paper's rates"
        sentences.append(f"{case.title}, {case.rate(top):.0f}/s, rho {top:g}{where}: {'; '.join(words)}.")
    return [*sentences, table_1(cases, factor).conclusion]


def costs(table: CostTable) -> PaperFinding:
    """A: the costs of changes and events at a broker."""
    rows: list[dict[str, Cell]] = []
    curves: dict[str, list[tuple[float, float]]] = {}
    gained = []
    for shape in table["siena-static"]:
        for name, (static, parametric) in _PAIRS.items():
            counts = [int(count) for count, _ in table[static][shape]["publish"]]
            for count in counts:
                if count < 100:
                    continue
                cost = change_costs(table, static, parametric, shape, count)
                gained.append(Estimate(1 / cost.ratio, 0.0, inf, 1))
                rows.append(
                    {
                        "filters": f"{count:,} {shape}",
                        "system": name,
                        "subscribe µs": _us(at(table[static][shape]["subscribe"], count)),
                        "unsubscribe µs": _us(at(table[static][shape]["unsubscribe"], count)),
                        "re-subscription µs": _us(cost.resubscription),
                        "update µs": _us(cost.update),
                        "event µs": _us(cost.event),
                        "u/s": round(cost.ratio, 3),
                    }
                )
                if shape == "boxes":
                    curves.setdefault(f"{name}: s", []).append((count, cost.resubscription / 1e3))
                    curves.setdefault(f"{name}: u", []).append((count, cost.update / 1e3))
    return PaperFinding(
        "A, costs",
        "what a change and an event cost one broker, by the number of filters",
        "Re-subscription is linear in the poset; an update looks its variable up and reorders if needed.",
        f"By the median an update costs less than a re-subscription in {sum(e.value > 1 for e in gained)} of "
        f"{len(gained)} cases; the costs were measured once, so there is no interval.",
        decide(Claim(), gained),
        rows,
        Curves("filters (boxes)", "processor time per change (µs)", curves, log_x=True, log_y=True),
    )


def _us(ns: float) -> float:
    return round(ns / 1e3, 1)


def prediction(cases: Sequence[Case], table: CostTable) -> PaperFinding:
    """B: the closed form, from the costs alone."""
    rows: list[dict[str, Cell]] = []
    series: dict[str, list[tuple[float, float]]] = {}
    verdicts = []
    for case in cases:
        cost, claim = costs_of(case, table), case.claims[0]
        in_one_lane = {rho: Estimate.exact(closed_loop(rho, cost.ratio)) for rho in case.drawn}
        verdicts.append(decide(Claim(claim, up_to=True), [*in_one_lane.values()]))
        needed = utilisation_for(claim, cost.ratio)
        rows.append(
            {
                "case": case.title,
                "filters": case.scenario.subscribers,
                "s µs": _us(cost.resubscription),
                "u µs": _us(cost.update),
                "u/s": round(cost.ratio, 3),
                "paper": claim,
                "closed loop: at the paper's highest rate": (
                    str(in_one_lane[max(in_one_lane)]) if in_one_lane else None
                ),
                "verdict": verdicts[-1],
                "paper's at rho": round(needed, 3),
                f"which is {RATE}": round(case.rate(needed)),
                "open loop, fifo: at most": round(1 / cost.ratio, 2),
                "gain in two lanes": 1.0,
            }
        )
        series[case.title] = [(case.rate(rho), closed_loop(rho, cost.ratio)) for rho in _FINE]
    reached = sum(each is Verdict.HOLDS for each in verdicts)
    within = [case.title for case in cases if 1 / costs_of(case, table).ratio >= case.claims[0] * REACHED]
    return PaperFinding(
        "B, prediction",
        "throughput gained by updates, (1 - rho u/s)/(1 - rho)",
        "Up to 8 and 4.4 times with the poset as matcher, 1.53, 1.25 and 2.25 with Rete.",
        f"In one lane that publishers fill, {reached} of {len(rows)} factors are reached at the paper's "
        "rates; in an open loop, first come, first served, the bound s/u allows "
        f"{REACHED:.0%} of {len(within)} of them ({', '.join(within) or 'none'}); in two lanes nothing is "
        "gained until the lane of changes is full, by construction.",
        together(verdicts),
        rows,
        Curves(RATE, "predicted gain of throughput", series, log_y=True),
    )


_FINE = tuple(step / 50 for step in range(49))


def figures(results: Results, table: CostTable) -> list[PaperFinding]:
    """C: the paper's figures, each with the systems over the updates per second."""
    return [_figure(results, each, table) for each in claimed(results.grid.cases, base_factor(results))]


def _figure(results: Results, factor: Claimed, table: CostTable) -> PaperFinding:
    case, metric = factor.case, factor.metric
    rows: list[dict[str, Cell]] = []
    series: dict[str, list[tuple[float, float] | tuple[float, float, float, float]]] = {}
    for rho in case.rhos:
        row: dict[str, Cell] = {RATE: round(case.rate(rho)), "rho": rho}
        for system in case.systems:
            value = results.value(case, BASE, system, rho, metric)
            row[system] = _shown(value)
            if value is not None:
                series.setdefault(system, []).append(value.over(case.rate(rho)))
        shares = [run.control_share for run in results.runs(case, BASE, case.static, rho) if run is not None]
        row["rho measured"] = round(fmean(shares), 3) if shares else None
        gained = factor.effects[rho]
        row["gain"] = None if gained is None else str(gained)
        if metric == "throughput":
            ratio = costs_of(case, table).ratio
            one_lane = case.scenario.service != "two-lanes"
            row["predicted"] = round(closed_loop(rho, ratio), 2) if one_lane else 1.0
        rows.append(row)
    beyond = f"Over all utilisations: {factor.words(factor.loaded)}, {factor.verdict(factor.loaded)}."
    return PaperFinding(
        f"Fig. {factor.figure}",
        f"{case.title}: {LABELS[metric]}",
        f"Parametric subscriptions gain up to {factor.paper:g} times.",
        f"{_answer(factor)} {beyond}",
        factor.verdict(case.drawn),
        rows,
        Curves(RATE, LABELS[metric], series),
    )


def assumptions(results: Results) -> PaperFinding:
    """D: every factor at the knee under one other assumption at a time."""
    rows: list[dict[str, Cell]] = []
    factors: list[Estimate] = []
    verdicts: list[Verdict] = []
    table = checked_in()
    for case in results.grid.cases:
        for assumption in (BASE, *results.grid.assumed(case)):
            row: dict[str, Cell] = {
                "case": case.title,
                "assumption": assumption.title,
                "slowed": case.scenario.cpu_scale * assumption.fields.get("cpu_scale", 1.0),
            }
            for place, metric in enumerate(METRICS):
                measured = results.at_the_knee(case, assumption, metric)
                factor = bounded(measured, metric, case, assumption, KNEE, table)
                row[GAINS[metric]] = None if factor is None else str(factor)
                if place < len(case.claims):
                    verdicts.append(judged(case.claims[place], [factor]))
                    row[f"paper: {GAINS[metric]}"] = f"{case.claims[place]:g}, {verdicts[-1]}"
                    factors += [] if factor is None else [factor]
                else:
                    row[f"paper: {GAINS[metric]}"] = None
            rows.append(row)
    first = results.grid.cases[0]
    named: list[Assumption] = [BASE, *results.grid.assumed(first)]
    return PaperFinding(
        "D, assumptions",
        f"the factors at rho {KNEE:g}, with one assumption changed at a time",
        "Primitives are atomic and in order of invocation (section 4.2); how publishers are limited is not "
        "stated.",
        f"Parametric subscriptions are {compared(factors, 'comparisons')}.",
        together(verdicts),
        rows,
        Bars(
            f"{first.title}: gain of throughput",
            [each.title for each in named],
            {"here": [_drawn(results.at_the_knee(first, each, "throughput")) for each in named]},
            dots=True,
            log=True,
        ),
    )


def best(results: Results) -> PaperFinding:
    """`covey-parametric` beside the best of the paper's systems, at the highest utilisation of each case."""
    rows: list[dict[str, Cell]] = []
    estimates: list[Estimate] = []
    for case in results.grid.cases:
        top = max(case.rhos)
        for metric in METRICS:
            factors = [
                (estimate, old)
                for old in (case.static, case.parametric)
                if (estimate := results.factor(case, BASE, top, metric, (old, COVEY))) is not None
            ]
            if not factors:
                continue
            factor, system = min(factors, key=lambda pair: pair[0].value)  # over the best of them
            ours = results.value(case, BASE, COVEY, top, metric)
            theirs = results.value(case, BASE, system, top, metric)
            estimates.append(factor)
            rows.append(
                {
                    "case": case.title,
                    RATE: round(case.rate(top)),
                    "rho": top,
                    "metric": LABELS[metric],
                    "covey-parametric": _shown(ours),
                    "best of the paper's": _shown(theirs),
                    "which": system,
                    "times better": str(factor),
                    "verdict": decide(Claim(), [factor]),
                }
            )
    return PaperFinding(
        "Covey",
        "covey-parametric beside the best of the paper's systems, at the highest utilisation",
        "Nothing: the forest of witnesses and the cluster engine are Covey's own. Judged is whether it is "
        "ahead everywhere. The baselines walk their posets in Python, beside compiled engines, so a part of "
        "what Covey gains is the language.",
        f"Beside the best of the paper's systems at the highest utilisation, {COVEY} is "
        f"{compared(estimates, 'metrics')}.",
        together([decide(Claim(), [each]) for each in estimates]),
        rows,
    )

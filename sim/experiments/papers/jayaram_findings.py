"""The findings of `jayaram.py`: A costs, B prediction, C simulation, D assumptions, Table 1, and Covey's own
routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from covey.sim.experiments.papers.estimates import Estimate
from covey.sim.experiments.papers.jayaram_calibrations import costs_of
from covey.sim.experiments.papers.jayaram_cases import (
    BASE,
    COVEY,
    KNEE,
    METRICS,
    Assumption,
    Case,
)
from covey.sim.experiments.papers.jayaram_prediction import at, change_costs, closed_loop, utilisation_for
from covey.sim.experiments.papers.jayaram_runs import Results
from covey.sim.experiments.papers.report import Cell, PaperFinding, Verdict
from covey.sim.reports import Bars, Curves
from covey.sim.simulator.calibration import CostTable

LABELS = {
    "throughput": "delivered events/s",
    "delay": "mean delay of a change (ms)",
    "spurious": "spurious events/s",
}
GAINS = {"throughput": "throughput", "delay": "delay", "spurious": "spurious events"}
_RHO = "utilisation by changes, busiest broker"
_PAIRS = {
    "siena": ("siena-static", "siena-parametric-local"),
    "siena, whole poset": ("siena-static", "siena-parametric"),
    "rete": ("rete-static", "rete-parametric-local"),
    "rete, whole poset": ("rete-static", "rete-parametric"),
    "covey": ("covey-static", "covey-parametric"),
}
"""Which systems of a cost table are compared."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A factor of Table 1, and its largest value here under the base assumptions."""

    case: Case
    metric: str
    figure: str
    paper: float
    here: Estimate | None
    rho: float | None

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.here, self.paper)

    @property
    def name(self) -> str:
        return f"{self.case.title}: {GAINS[self.metric]}"


def verdict_of(here: Estimate | None, paper: float) -> Verdict:
    """Reached from 90 % of the paper's factor on; else whether at least the direction holds."""
    if here is None:
        return Verdict.UNDECIDED
    if here.runs == 1:
        return Verdict.of_factor(here.value, paper)
    return Verdict.of_factor(here.value, paper, here.low, here.high)


def claimed(results: Results) -> list[Claimed]:
    """All factors of Table 1 and Fig. 9."""
    factors = []
    for case in results.grid.cases:
        for metric, figure, paper in zip(METRICS, case.figures, case.claims, strict=False):
            estimates = [
                (estimate, rho)
                for rho in results.grid.rhos
                if (estimate := results.factor(case, BASE, rho, metric)) is not None
            ]
            here, rho = max(estimates, key=lambda pair: pair[0].value, default=(None, None))
            factors.append(Claimed(case, metric, figure, paper, here, rho))
    return factors


def costs(table: CostTable) -> PaperFinding:
    """A: what changes and events cost a broker."""
    rows: list[dict[str, Cell]] = []
    curves: dict[str, list[tuple[float, float]]] = {}
    cheaper = []
    for shape in table["siena-static"]:
        for name, (static, parametric) in _PAIRS.items():
            counts = [int(count) for count, _ in table[static][shape]["publish"]]
            for count in counts:
                if count < 100:
                    continue
                cost = change_costs(table, static, parametric, shape, count)
                cheaper.append(cost.ratio < 1)
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
        f"An update costs less than a re-subscription in {sum(cheaper)} of {len(cheaper)} cases.",
        Verdict.of(all(cheaper), any(cheaper)),
        rows,
        Curves("filters (boxes)", "processor time per change (µs)", curves, log_x=True, log_y=True),
    )


def _us(ns: float) -> float:
    return round(ns / 1e3, 1)


def prediction(results: Results, table: CostTable) -> PaperFinding:
    """B: the closed form, from the costs alone."""
    rows: list[dict[str, Cell]] = []
    series: dict[str, list[tuple[float, float]]] = {}
    for case in results.grid.cases:
        cost = costs_of(case, table)
        claim = case.claims[0]
        rows.append(
            {
                "case": case.title,
                "filters": case.scenario.subscribers,
                "s µs": _us(cost.resubscription),
                "u µs": _us(cost.update),
                "u/s": round(cost.ratio, 3),
                "paper": claim,
                "closed loop: paper's at utilisation": round(utilisation_for(claim, cost.ratio), 3),
                "closed loop: at 0.9": round(closed_loop(0.9, cost.ratio), 2),
                "open loop, fifo: at most": round(1 / cost.ratio, 2),
                "gain in two lanes": 1.0,
            }
        )
        series[case.title] = [(rho, closed_loop(rho, cost.ratio)) for rho in _FINE]
    return PaperFinding(
        "B, prediction",
        "throughput gained by updates, (1 - rho u/s)/(1 - rho)",
        "Up to 8 and 4.4 times with the poset as matcher, 1.53, 1.25 and 2.25 with Rete.",
        "In one lane that publishers fill, every factor is reached at some utilisation below one; in an open "
        "loop, first come, first served, none exceeds s/u; in two lanes none is gained until the lane of "
        "changes is full.",
        Verdict.REACHED,
        rows,
        Curves(_RHO, "predicted gain of throughput", series, log_y=True),
    )


_FINE = tuple(step / 50 for step in range(49))


def figures(results: Results, table: CostTable) -> list[PaperFinding]:
    """C: the paper's figures, each with the systems over the control utilisation."""
    return [_figure(results, factor, table) for factor in claimed(results)]


def _figure(results: Results, factor: Claimed, table: CostTable) -> PaperFinding:
    case, metric = factor.case, factor.metric
    rows: list[dict[str, Cell]] = []
    series: dict[str, list[tuple[float, float, float, float]]] = {}
    for rho in results.grid.rhos:
        row: dict[str, Cell] = {"utilisation": rho}
        for system in case.systems:
            value = results.value(case, BASE, system, rho, metric)
            row[system] = None if value is None else str(value)
            if value is not None:
                high = value.high if value.high < float("inf") else value.value
                series.setdefault(system, []).append((rho, value.value, min(value.low, value.value), high))
        shares = [run.control_share for run in results.runs(case, BASE, case.static, rho) if run is not None]
        row["utilisation measured"] = round(fmean(shares), 3) if shares else None
        gained = results.factor(case, BASE, rho, metric)
        row["gain"] = None if gained is None else str(gained)
        if metric == "throughput":
            ratio = costs_of(case, table).ratio
            one_lane = case.scenario.service != "two-lanes"
            row["predicted"] = round(closed_loop(rho, ratio), 2) if one_lane else 1.0
        rows.append(row)
    return PaperFinding(
        f"Fig. {factor.figure}",
        f"{case.title}: {LABELS[metric]}",
        f"Parametric subscriptions gain up to {factor.paper:g} times.",
        _conclusion(factor),
        factor.verdict,
        rows,
        Curves(_RHO, LABELS[metric], series),
    )


def _conclusion(factor: Claimed) -> str:
    if factor.here is None:
        return "No event of this kind was counted."
    largest = str(factor.here).replace("> ", "more than ") if factor.here.above else f"up to {factor.here}"
    return f"{largest.capitalize()} times, at a utilisation of {factor.rho:g}."


def assumptions(results: Results) -> PaperFinding:
    """D: every factor at the knee under one other assumption at a time."""
    rows: list[dict[str, Cell]] = []
    factors: list[Estimate] = []
    for case in results.grid.cases:
        for assumption in (BASE, *results.grid.assumed(case)):
            row: dict[str, Cell] = {"case": case.title, "assumption": assumption.title}
            for place, metric in enumerate(METRICS):
                factor = results.at_the_knee(case, assumption, metric)
                claim = case.claims[place] if place < len(case.claims) else None
                row[GAINS[metric]] = None if factor is None else str(factor)
                row[f"paper: {GAINS[metric]}"] = claim
                if claim is not None and factor is not None:
                    factors.append(factor)
            rows.append(row)
    ahead, compared = _compared(factors, "comparisons")
    first = results.grid.cases[0]
    named = [BASE, *results.grid.assumed(first)]
    return PaperFinding(
        "D, assumptions",
        f"the factors at a utilisation of {KNEE:g}, with one assumption changed at a time",
        "The paper states neither the order in which brokers serve messages, nor how publishers are limited.",
        f"Parametric subscriptions are {compared}.",
        Verdict.of(0 < len(factors) == ahead, ahead > len(factors) / 2),
        rows,
        Bars(
            f"{first.title}: gain of throughput",
            [each.title for each in named],
            {"here": [_bar(results.at_the_knee(first, each, "throughput")) for each in named]},
            dots=True,
            log=True,
        ),
    )


def _bar(estimate: Estimate | None) -> tuple[float, float, float] | None:
    if estimate is None:
        return None
    high = estimate.high if estimate.high < float("inf") else estimate.value
    return estimate.value, min(max(estimate.low, _LEAST), estimate.value), high


_LEAST = 0.1
"""Where intervals are cut off on logarithmic axes."""


def table_1(results: Results) -> PaperFinding:
    """All factors, and under which assumptions each is reached."""
    factors = claimed(results)
    rows: list[dict[str, Cell]] = []
    for factor in factors:
        reached, smaller, not_held = _by_verdict(results, factor)
        rows.append(
            {
                "gain": factor.name,
                "figure": factor.figure,
                "paper up to": factor.paper,
                "here up to": None if factor.here is None else str(factor.here),
                "at utilisation": factor.rho,
                "verdict": factor.verdict.value,
                f"at {KNEE:g}, reached under": reached,
                "same direction under": smaller,
                "not under": not_held,
            }
        )
    verdicts = [factor.verdict for factor in factors]
    counts = [
        f"{verdicts.count(verdict)} {what}" for verdict, what in _COUNTED.items() if verdict in verdicts
    ]
    return PaperFinding(
        "Table 1",
        "what parametric subscriptions gain over re-subscription",
        "With the poset as matcher up to 8 and 4.4 times the throughput (HTM, AT), a sixth and a third of "
        "the delay, a sixth of the spurious events; less with an engine of its own.",
        f"Of {len(factors)} factors, under the base assumptions: {', '.join(counts)}.",
        Verdict.of(
            all(each is Verdict.REACHED for each in verdicts), Verdict.DIFFERS not in verdicts
        ),
        rows,
        Bars(
            "times better with updates",
            [f"{factor.figure} {GAINS[factor.metric]}" for factor in factors],
            {
                "paper": [factor.paper for factor in factors],
                "here": [_bar(factor.here) for factor in factors],
            },
            dots=True,
            log=True,
        ),
    )


_COUNTED = {
    Verdict.REACHED: "reached",
    Verdict.SMALLER: "in the same direction but smaller",
    Verdict.DIFFERS: "not found",
    Verdict.UNDECIDED: "undecided, since too few changes or events show them",
}


def summary(results: Results, table: CostTable) -> list[str]:
    """What follows from all findings, in a few sentences."""
    sentences = []
    for one_lane, where in ((True, "In one lane, changes first"), (False, "In two lanes")):
        parts = [
            f"{factor.case.title}: {factor.here} times at a utilisation of {factor.rho:g} (paper: up to "
            f"{factor.paper:g}; predicted {_predicted(factor, table)})"
            for factor in claimed(results)
            if factor.metric == "throughput"
            and factor.here is not None
            and (factor.case.scenario.service != "two-lanes") is one_lane
        ]
        if parts:
            sentences.append(f"{where}, updates gain at most this in throughput. {'; '.join(parts)}.")
    return [*sentences, table_1(results).conclusion, best(results).conclusion]


def _predicted(factor: Claimed, table: CostTable) -> str:
    if factor.case.scenario.service == "two-lanes" or factor.rho is None:
        return "1"
    return f"{closed_loop(factor.rho, costs_of(factor.case, table).ratio):.2f}"


def _by_verdict(results: Results, factor: Claimed) -> tuple[str, str, str]:
    """The assumptions under which a factor is reached at the knee, is smaller, and does not hold."""
    named: dict[Verdict, list[str]] = {}
    every: Sequence[Assumption] = (BASE, *results.grid.assumed(factor.case))
    for assumption in every:
        verdict = verdict_of(results.at_the_knee(factor.case, assumption, factor.metric), factor.paper)
        named.setdefault(verdict, []).append("base" if assumption is BASE else assumption.title)
    reached, smaller, differs = (
        "; ".join(named.get(verdict, [])) or "-"
        for verdict in (Verdict.REACHED, Verdict.SMALLER, Verdict.DIFFERS)
    )
    return reached, smaller, differs


def best(results: Results) -> PaperFinding:
    """`covey-parametric` beside the best of the paper's systems, at the highest utilisation of each case."""
    rows: list[dict[str, Cell]] = []
    estimates: list[Estimate] = []
    top = max(results.grid.rhos)
    for case in results.grid.cases:
        for metric in METRICS:
            pairs = [(system, COVEY) for system in case.systems if system != COVEY]
            factors = [
                (estimate, old)
                for old, new in pairs
                if (estimate := results.factor(case, BASE, top, metric, (old, new))) is not None
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
                    "metric": LABELS[metric],
                    "covey-parametric": None if ours is None else str(ours),
                    "best of the paper's": None if theirs is None else str(theirs),
                    "which": system,
                    "times better": str(factor),
                }
            )
    ahead, compared = _compared(estimates, "metrics")
    return PaperFinding(
        "Covey",
        f"covey-parametric beside the best of the paper's systems, at a utilisation of {top:g}",
        "Nothing: the forest of witnesses and the cluster engine are Covey's own.",
        f"{COVEY} is {compared}.",
        Verdict.of(0 < len(estimates) == ahead, all(each.high >= 1 for each in estimates)),
        rows,
    )


def _compared(factors: Sequence[Estimate], what: str) -> tuple[int, str]:
    """In how many the interval is above one, and that beside the others as a part of a sentence."""
    ahead, behind = sum(each.low > 1 for each in factors), sum(each.high < 1 for each in factors)
    equal = len(factors) - ahead - behind
    others = f"equal within the intervals in {equal}, behind in {behind}"
    return ahead, f"ahead in {ahead} of {len(factors)} {what}, {others}"

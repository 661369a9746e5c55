"""Liu, Parthasarathy, Ranganathan and Yang 2007: predicates evaluated per event, by strategy. The workload is
Table 1's (`sim/workload/overlapping.py`), the strategies are those of engines and brokers
(`matcher/evaluation/`), and every decision is compared with the truth of the predicates. `bound` is the least
that any algorithm has to evaluate, even one that guesses all answers (`liu_bound.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

import numpy as np
import numpy.typing as npt

from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.problem import TRUE, Chains, Int64s, Problem, Strategy, Truths
from covey.matcher.evaluation.strategies import create_strategy
from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.liu_bound import lower_bound
from covey.sim.experiments.papers.liu_experiments import (
    GREEDY,
    NAIVE,
    SEQUENTIAL,
    STRATEGIES,
    SUB_ORDER,
    Experiment,
    Point,
    experiments,
)
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, PaperReport
from covey.sim.experiments.papers.verdicts import Claim, claimed, compared, decide, extremes
from covey.sim.progress import Progress
from covey.sim.reports import Bars, Curves, Plot
from covey.sim.workload.overlapping import Overlapping, draw_truths

CITATION = (
    "Liu, Parthasarathy, Ranganathan, Yang: Scalable Event Matching for Overlapping Subscriptions in Pub/Sub "
    "Systems (2007)"
)
BOUND, USED = "bound", "predicates used"
_REDUCTION = 0.8
"""The reduction of naive's cost by the paper's algorithms, "up to"."""
_STEADY = 1.3
"""A cost that grows by no more than this factor hardly depends on the length."""
_ITERATIONS = 100
"""Of the bound, which is then within 1 % of its limit."""
_PAIRS = 1 << 21
"""Of events and subscriptions, in one batch."""

Evaluated = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Costs(Mapping[str, float]):
    """Mean cost per event by strategy and of the bound, in units of the mean cost of a predicate; and the
    number of predicates that occur in subscriptions. `seeds` has them per workload."""

    seeds: Mapping[str, list[float]]

    def __getitem__(self, name: str) -> float:
        return mean(self.seeds[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.seeds)

    def __len__(self) -> int:
        return len(self.seeds)

    def less(self, cheap: str, dear: str) -> Estimate | None:
        return gain(self.seeds[dear], self.seeds[cheap])


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    """Figures 4 to 8, section 4.3, and how much depends on what the paper leaves open. `quick` has the
    paper's sizes with fewer events and runs, and takes a few minutes."""
    planned = experiments(plan)
    total = sum(len(experiment.points) for experiment in planned)
    measured: dict[Overlapping, Costs] = {}
    findings = []
    done = 0
    for experiment in planned:
        for point in experiment.points:
            progress(f"{experiment.figure}: {experiment.axis} {point.x}", done / total)
            if point.workload not in measured:
                measured[point.workload] = measure(point.workload, plan)
            done += 1
        findings.append(_finding(experiment, measured))
    findings.insert(0, _summary(planned, measured))
    runs, events = _repetitions(plan)
    notes = [
        "Cells are predicates evaluated per event (section 4.3: their cost, the mean of a predicate is 1), "
        f"means of {runs} workloads of different seeds with {events} events each; the paper has 1,000.",
        "How selectivities are drawn is not in the paper. Here they are uniform in [0, m], with m such that "
        "an event is expected to match 0.2 % of the subscriptions; 'Open' in the findings has others.",
        "bound: what any algorithm must evaluate at least, whatever it knows in advance: all predicates of "
        "matching subscriptions, and of the others a fractional cover by false predicates.",
    ]
    seeds = tuple(range(plan.seed, plan.seed + runs))
    return PaperReport("liu", CITATION, plan.size, findings, notes, seeds)


def measure(workload: Overlapping, plan: PaperPlan) -> Costs:
    """Over workloads of several seeds. Raises `CoveyError` if a strategy decides a pair wrongly."""
    runs, events = _repetitions(plan)
    costs: dict[str, list[float]] = {name: [] for name in (*STRATEGIES, BOUND, USED)}
    for seed in range(plan.seed, plan.seed + runs):
        chains = workload.chains(seed)
        truths = draw_truths(chains, events, seed)
        unit = float(chains.costs.mean())
        for name in STRATEGIES:
            costs[name].append(_cost(name, chains, truths) / unit)
        bounds = [lower_bound(chains, each, _ITERATIONS) for each in truths.T]
        costs[BOUND].append(mean(bounds) / unit)
        costs[USED].append(len(np.unique(chains.predicates)))
    return Costs(costs)


def _cost(name: str, chains: Chains, truths: Truths) -> float:
    strategy = create_strategy(name)
    count, events = len(chains.offsets) - 1, truths.shape[1]
    evaluated = np.zeros(truths.shape, np.bool_)
    size = max(1, _PAIRS // count)
    for first in range(0, events, size):
        part = truths[:, first : first + size]
        decided = _decide(strategy, chains, part, evaluated[:, first : first + size])
        expected = np.minimum.reduceat(part[chains.predicates], chains.offsets[:-1])
        if not np.array_equal(decided == TRUE, (expected == TRUE).T.ravel()):
            raise CoveyError(f"strategy {name}: decided a subscription wrongly")
    return float((chains.costs * evaluated.sum(axis=1)).sum() / events)


def _decide(strategy: Strategy, chains: Chains, truths: Truths, evaluated: Evaluated) -> Truths:
    """Decide all subscriptions for some events, and set `evaluated`."""
    count, events = len(chains.offsets) - 1, truths.shape[1]

    def ask(predicate: int, rows: Int64s) -> Truths:
        evaluated[predicate, rows] = True
        answers: Truths = truths[predicate, rows]
        return answers

    rows = np.repeat(np.arange(events), count)
    return strategy.decide(Problem(chains, events, rows, np.tile(np.arange(count), events)), ask)


def _repetitions(plan: PaperPlan) -> tuple[int, int]:
    return plan.pick((5, 2), (5, 4), (5, 25))


def _row(experiment: Experiment, point: Point, costs: Costs) -> dict[str, Cell]:
    row: dict[str, Cell] = {experiment.axis: point.x}
    row |= {name: round(costs[name], 1) for name in (*STRATEGIES, BOUND)}
    row["greedy / sub_order"] = round(costs[GREEDY] / costs[SUB_ORDER], 3)
    row["sub_order less than naive"] = f"{_less(costs, SUB_ORDER):.0%}"
    row["greedy less than naive"] = f"{_less(costs, GREEDY):.0%}"
    row["paper"] = ", ".join(f"{name} {value:,}" for name, value in point.paper.items())
    return row


def _less(costs: Costs, name: str) -> float:
    return 1 - costs[name] / costs[NAIVE]


def _finding(experiment: Experiment, measured: Mapping[Overlapping, Costs]) -> PaperFinding:
    costs = [measured[point.workload] for point in experiment.points]
    rows = [_row(experiment, point, each) for point, each in zip(experiment.points, costs, strict=True)]
    words, claim, effects = _JUDGES[experiment.figure](experiment, costs)
    conclusion = f"{words} {claimed(effects)}" if effects else words
    ratios = [each[GREEDY] / each[SUB_ORDER] for each in costs]
    conclusion += f" Greedy evaluates {min(ratios):.2f} to {max(ratios):.2f} times as much as Sub-Order."
    unit = "cost per event" if experiment.figure == "Sect. 4.3" else "predicates evaluated per event"
    return PaperFinding(
        experiment.figure,
        experiment.title,
        experiment.claim,
        conclusion,
        decide(claim, [*effects.values()]),
        rows,
        _plot(experiment, unit, costs),
    )


def _plot(experiment: Experiment, unit: str, costs: Sequence[Costs]) -> Plot:
    """Curves over numbers; dots by name where the points are no numbers."""
    names = (*STRATEGIES, BOUND)
    places = [point.x for point in experiment.points]
    numbers = [float(x) for x in places if isinstance(x, int | float)]
    if len(numbers) < len(places):
        values = {name: [each[name] for each in costs] for name in names}
        return Bars(unit, [str(x) for x in places], values, dots=True)
    series = {name: [(x, each[name]) for x, each in zip(numbers, costs, strict=True)] for name in names}
    return Curves(experiment.axis, unit, series)


Judged = tuple[str, Claim, Mapping[str, Estimate | None]]
"""A conclusion, the paper's claim, and how many times less it costs at each point."""


def _below_naive(experiment: Experiment, costs: Sequence[Costs]) -> dict[str, Estimate | None]:
    return {
        str(point.x): each.less(SUB_ORDER, NAIVE)
        for point, each in zip(experiment.points, costs, strict=True)
    }


def _ordered(experiment: Experiment, costs: Sequence[Costs]) -> dict[str, Estimate | None]:
    """Naive costs more than Sequential, and that more than Sub-Order, everywhere."""
    return {
        f"{cheap} under {dear}, {point.x}": each.less(cheap, dear)
        for point, each in zip(experiment.points, costs, strict=True)
        for cheap, dear in ((SEQUENTIAL, NAIVE), (SUB_ORDER, SEQUENTIAL))
    }


def _scale(experiment: Experiment, costs: Sequence[Costs]) -> Judged:
    last = costs[-1]
    words = (
        f"At {experiment.points[-1].x:,} naive evaluates {last[NAIVE]:,.0f}, Sequential "
        f"{last[SEQUENTIAL]:,.0f} ({_less(last, SEQUENTIAL):.0%} less), Sub-Order {last[SUB_ORDER]:,.0f} "
        f"({_less(last, SUB_ORDER):.0%}), greedy {last[GREEDY]:,.0f} ({_less(last, GREEDY):.0%}); with these "
        f"selectivities no algorithm can do with fewer than {last[BOUND]:,.0f}."
    )
    below = [
        f"{name} {value:,}" for name, value in experiment.points[-1].paper.items() if value < last[BOUND]
    ]
    if below:
        words += f" The paper's {' and '.join(below)} are below that, so its workload was another one."
    stated = experiment.points[-1].paper.get(NAIVE, 0)
    if stated > last[USED]:
        words += f" The paper's naive {stated:,} is more than all {last[USED]:,.0f} predicates that occur."
    return words, Claim(1 / (1 - _REDUCTION), up_to=True), _below_naive(experiment, costs)


def _growing(experiment: Experiment, costs: Sequence[Costs]) -> Judged:
    growths = {name: costs[-1][name] / costs[0][name] for name in STRATEGIES}
    words, *_ = _scale(experiment, costs)
    words += " From the first to the last row costs grow " + ", ".join(
        f"{name} {growth:.1f}" for name, growth in growths.items()
    )
    effects = _ordered(experiment, costs)
    for name in (SEQUENTIAL, SUB_ORDER):
        ours, naive = (
            [b / a for a, b in zip(costs[0].seeds[each], costs[-1].seeds[each], strict=True)]
            for each in (name, NAIVE)
        )
        effects[f"growth of {name} under naive's"] = gain(naive, ours)
    return f"{words} times.", Claim(), effects


def _by_length(experiment: Experiment, costs: Sequence[Costs]) -> Judged:
    first, last = costs[0], costs[-1]
    words = (
        f"From {experiment.points[0].x} to {experiment.points[-1].x} predicates Sequential goes from "
        f"{first[SEQUENTIAL]:,.0f} to {last[SEQUENTIAL]:,.0f} and Sub-Order from {first[SUB_ORDER]:,.0f} to "
        f"{last[SUB_ORDER]:,.0f}, while naive evaluates {first[NAIVE]:,.0f} and {last[NAIVE]:,.0f}. Longer "
        "subscriptions share more, and at 0.2 % matching more of their predicates hold. That naive evaluates "
        "nearly all, and that the gap shrinks, is not judged."
    )
    grown = gain(last.seeds[SEQUENTIAL], first.seeds[SEQUENTIAL])
    steady = {f"sequential, {_STEADY:g} over its growth": None if grown is None else grown.under(_STEADY)}
    return words, Claim(), _ordered(experiment, costs) | steady


def _by_popularity(experiment: Experiment, costs: Sequence[Costs]) -> Judged:
    words = []
    effects: dict[str, Estimate | None] = {}
    names = [point.x for point in experiment.points]
    for name in (SEQUENTIAL, SUB_ORDER):
        values = [each[name] for each in costs]
        words.append(f"{name} {values[0]:,.0f} when uniform, " + ", ".join(f"{v:,.0f}" for v in values[1:]))
        for (x, before), (y, after) in pairwise(zip(names, costs, strict=True)):
            effects[f"{name}, {x} to {y}"] = gain(before.seeds[name], after.seeds[name])
    return f"Costs: {'; '.join(words)} with rising exponent.", Claim(), effects


def _by_cost(experiment: Experiment, costs: Sequence[Costs]) -> Judged:
    less = [_less(each, SUB_ORDER) for each in costs]
    ours = [_less(each, GREEDY) for each in costs]
    return (
        f"Sub-Order costs {min(less):.0%} to {max(less):.0%} less than naive, greedy {min(ours):.0%} to "
        f"{max(ours):.0%}: so many times, {extremes(_below_naive(experiment, costs))}. The paper claims no "
        "figure here, so nothing is judged.",
        Claim(),
        {},
    )


def _summary(planned: Sequence[Experiment], measured: Mapping[Overlapping, Costs]) -> PaperFinding:
    """The abstract's claim, and greedy against Sub-Order over all workloads."""
    by_workload: dict[Overlapping, tuple[str, Point, Costs]] = {}
    for each in planned:
        for point in each.points:
            by_workload.setdefault(point.workload, (each.figure, point, measured[point.workload]))
    points = [*by_workload.values()]
    best = {name: max(points, key=lambda each: _less(each[2], name)) for name in STRATEGIES[1:]}
    rows: list[dict[str, Cell]] = [
        {
            "strategy": name,
            "most below naive": f"{_less(costs, name):.0%}",
            "figure": figure,
            "at": str(point.x),
            "mean over all workloads": f"{mean(_less(each[2], name) for each in points):.0%}",
            "mean times bound": round(mean(each[2][name] / each[2][BOUND] for each in points), 2),
        }
        for name, (figure, point, costs) in best.items()
    ]
    greedy = [effect for _, _, costs in points if (effect := costs.less(GREEDY, SUB_ORDER)) is not None]
    effects = {f"{figure}, {point.x}": costs.less(SUB_ORDER, NAIVE) for figure, point, costs in points}
    return PaperFinding(
        "Abstract",
        "reduction against naive, over all workloads",
        "The algorithms reduce the cost of matching by up to 80 %, as compared to naive.",
        f"Sub-Order reduces the cost by up to {_less(best[SUB_ORDER][2], SUB_ORDER):.0%}, greedy by up to "
        f"{_less(best[GREEDY][2], GREEDY):.0%}. Less by Sub-Order: {extremes(effects)}. Greedy "
        f"is, beside Sub-Order, {compared(greedy, 'workloads')}.",
        decide(Claim(1 / (1 - _REDUCTION), up_to=True), [*effects.values()]),
        rows,
        Bars(
            "share of the cost of naive",
            [f"{figure}: {point.x}" for figure, point, _ in points],
            {
                name: [costs[name] / costs[NAIVE] for _, _, costs in points]
                for name in (*STRATEGIES[1:], BOUND)
            },
            dots=True,
        ),
    )


_JUDGES = {
    "Fig. 4": _scale,
    "Fig. 5": _scale,
    "Fig. 6": _growing,
    "Fig. 7": _by_length,
    "Fig. 8": _by_popularity,
    "Sect. 4.3": _by_cost,
    "Open": _by_cost,
}

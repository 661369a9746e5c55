"""The runs of `jayaram.py`: loads, rates and systems, and the factors between systems.

Links take 10 ms, as in the paper. A broker is charged the processor time of the real routing core, multiplied
by `cpu_scale`. The scale replaces rates that are too high to simulate in minutes: a broker slowed k times at
rate f is as busy as one at full speed at rate k f. Ratios between systems do not depend on it unless link
delays dominate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.experiments.papers.report import PaperPlan
from covey.sim.experiments.runs.executors import Processes
from covey.sim.experiments.runs.planned import PlannedRun, RunOutcome
from covey.sim.experiments.runs.run_all import run_all
from covey.sim.progress import Progress, part
from covey.sim.scenario.scenario import Scenario
from covey.sim.scenario.systems import find_system

_ENOUGH = 5
STATIC, PARAMETRIC = "subscribe-first", "parametric"
METRICS = ("throughput", "delay", "spurious")
LABELS = {
    "throughput": "delivered events/s",
    "delay": "mean delay of a change (ms)",
    "spurious": "spurious events/s",
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One load under rising rates of updates. `rates` are per subscriber; times `per` they are the paper's
    axis.

    `claims` are the factors of Table 1 by system, in the order of `METRICS`; `figures` are their figures.
    """

    key: str
    title: str
    scenario: Scenario
    rates: tuple[float, ...]
    per: float
    x: str
    systems: tuple[str, ...]
    figures: Mapping[str, tuple[str, ...]]
    claims: Mapping[str, tuple[float, ...]]
    why: str


_PAPER = ("siena-subscribe-first", "siena-parametric", "rete-subscribe-first", "rete-parametric")
_OURS = "covey-parametric"
_FULL = (*_PAPER, "siena-unsubscribe-first", "rete-unsubscribe-first", "covey-subscribe-first", _OURS)


def experiments(plan: PaperPlan) -> tuple[Experiment, ...]:
    """The experiments at a size; smaller ones have fewer clients and seconds, and slower brokers.

    AT is measured twice. Siena has no event types: the commodity is an attribute, and one poset contains
    every filter of a broker (`MarketLoad`). With a poset per type, as in Figs. 3 and 6 of the paper and in
    EventJava, 150 subscriptions over 200 types leave less than one filter in each. The paper does not state
    the event rate; here events are published in batches of four, so that there are enough spurious events to
    count.
    """
    systems = plan.pick((*_PAPER, _OURS), (*_PAPER, _OURS), _FULL)
    common = Scenario(cpu="measured", delay_ms=10.0, seed=2010 + plan.seed)
    vehicles, brokers = plan.pick(3, 6, 20), plan.pick(4, 10, 20)
    highway = common.having(
        load="highway",
        brokers=brokers,
        publishers=plan.pick(2, 2, 10) * brokers,
        subscribers=vehicles * brokers,
        event_rate=plan.pick(20.0, 20.0, 10.0),
        duration_s=plan.pick(0.2, 0.8, 2.0),
        cpu_scale=plan.pick(10.0, 15.0, 1.0),
    )
    trading = common.having(
        load="trading",
        brokers=plan.pick(6, 20, 20),
        publishers=5,
        subscribers=plan.pick(20, 150, 150),
        types=plan.pick(10, 200, 200),
        event_rate=plan.pick(50.0, 600.0, 600.0),
        batch=plan.pick(1, 4, 4),
        duration_s=plan.pick(0.2, 0.8, 2.0),
        cpu_scale=plan.pick(10.0, 10.0, 4.0),
    )
    market = trading.having(load="market")
    artificial = trading.having(
        topology="random",
        batch=1,
        publishers=plan.pick(5, 100, 100),
        event_rate=plan.pick(20.0, 20.0, 10.0),
        duration_s=plan.pick(0.2, 0.5, 0.5),
        cpu_scale=plan.pick(10.0, 8.0, 1.0),
    )
    edge = plan.pick((25.0, 100.0), (10.0, 25.0, 50.0, 100.0), (10.0, 25.0, 50.0, 100.0))
    return (
        Experiment(
            "htm",
            "Highway traffic management (HTM)",
            highway,
            tuple(rate / vehicles for rate in edge),
            float(vehicles),
            "updates/s per edge broker",
            systems,
            {"siena": ("8a", "8b", "8c"), "rete": ("8d", "8e", "8f")},
            {"siena": (8.0, 6.0, 6.0), "rete": (1.53, 2.0, 2.2)},
            "Vehicles' boxes rarely cover each other, so every change reaches every broker. A "
            "re-subscription changes the poset twice, an update once.",
        ),
        Experiment(
            "market",
            "Algorithmic trading (AT), one poset for all commodities",
            market,
            plan.pick((5.0, 20.0), (2.0, 5.0, 10.0, 20.0), (10.0, 25.0, 50.0, 100.0)),
            1.0,
            "updates/s per subscriber",
            (*(s for s in systems if s.startswith("siena-")), _OURS),
            {"siena": ("8g", "8h", "8i")},
            {"siena": (4.4, 3.0, 6.0)},
            "Either change computes the poset's relations in one pass over its filters; messages, "
            "acknowledgements and links cost the same.",
        ),
        Experiment(
            "at",
            "Algorithmic trading (AT), a poset per event type",
            trading,
            plan.pick((5.0, 20.0), (2.0, 5.0, 10.0, 20.0), (10.0, 25.0, 50.0, 100.0)),
            1.0,
            "updates/s per subscriber",
            systems,
            {"rete": ("8j", "8k", "8l")},
            {"rete": (1.25, 4.4, 3.4)},
            "150 subscriptions over 200 types leave less than one filter per poset, so no cost is linear: an "
            "update saves one of two messages, and a new entry in the engine.",
        ),
        Experiment(
            "fig9",
            "Throughput scalability",
            artificial,
            plan.pick((5.0, 20.0), (5.0, 10.0, 20.0, 40.0), (125.0, 250.0, 500.0, 1000.0)),
            1.0,
            "updates/s per subscriber",
            (*_PAPER[2:], _OURS),
            {"rete": ("9",)},
            {"rete": (2.25,)},
            "The posets contain less than one filter each: an update saves one of two messages.",
        ),
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """The factor by which parametric subscriptions improve a metric, at the rate with the largest factor."""

    experiment: str
    system: str
    metric: str
    figure: str
    claim: float
    factor: float | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """The metrics of each run of an experiment by system and rate, and the factors of Table 1."""

    experiment: Experiment
    summaries: Mapping[tuple[str, float], dict[str, Any]]
    finished: Mapping[tuple[str, float], RunOutcome]
    ratios: tuple[Ratio, ...]

    def value(self, system: str, rate: float, metric: str) -> float | None:
        """One metric of one run."""
        return value_of(self.summaries[system, rate], metric)

    def series(self, metric: str, system: str) -> list[tuple[float, float]]:
        """A metric over the rate as the paper plots it; rates without a value are skipped."""
        e = self.experiment
        points = [(e.per * rate, self.value(system, rate, metric)) for rate in e.rates]
        return [(x, y) for x, y in points if y is not None]

    def ms_per_change(self, system: str, rate: float) -> float | None:
        """Processor time of all brokers for control messages, per change."""
        changes = self.summaries[system, rate]["changes"]
        took_ns = sum(work["busy_ns"] for kind, work in self.work(system, rate).items() if kind != "Publish")
        return took_ns / self.experiment.scenario.cpu_scale / changes / 1e6 if changes else None

    def us_per_event(self, system: str, rate: float) -> float:
        """Processor time of a broker for a Publish, in microseconds; 0 if there was none."""
        publish = self.work(system, rate).get("Publish")
        scale = self.experiment.scenario.cpu_scale
        return publish["busy_ns"] / scale / publish["messages"] / 1e3 if publish else 0.0

    def work(self, system: str, rate: float) -> Mapping[str, Mapping[str, int]]:
        """`RunSummary.work` of a run."""
        summary = self.finished[system, rate].summary
        return {} if summary is None else summary["work"]


def value_of(summary: Mapping[str, Any], metric: str) -> float | None:
    """One of `METRICS` from the summary of a run (`covey.sim.metrics.summarise`)."""
    if metric == "delay":
        value: float | None = summary["delay_ms"]["mean"]
    else:
        value = summary["throughput_events_per_s" if metric == "throughput" else "spurious_per_s"]
    return value


def run_experiments(
    planned: Sequence[Experiment], folder: Path, progress: Progress
) -> list[ExperimentResult]:
    """Run every point with a trace in `folder`, and compute its metrics. Raises `SparkError` if Spark does
    not start.
    """
    # Workers do not need it, so it is imported here; before the runs, so that a missing package is an early
    # error.
    from covey.sim.metrics import summarise

    points: dict[tuple[str, str, float], Scenario] = {}
    for e in planned:
        for system in e.systems:
            for rate in e.rates:
                name = f"{e.key}-{system}-{e.per * rate:g}"
                scenario = e.scenario.having(name=name, update_rate=rate)
                points[e.key, system, rate] = find_system(system).applied_to(scenario)
    planned_runs = [PlannedRun(point.name, point) for point in points.values()]
    outcomes = run_all(planned_runs, folder, Processes(), part(progress, 0.0, 0.9))
    for outcome in outcomes:
        if outcome.error:
            raise CoveyError(f"run {outcome.run} failed: {outcome.error}")
    finished = {outcome.run: outcome for outcome in outcomes}
    progress("computing metrics", 0.9)
    names = {point.name: key for key, point in points.items()}
    traces = [outcome.trace for outcome in outcomes]
    summaries = {names[summary["run"]]: summary for summary in summarise(traces)}
    results = []
    for e in planned:
        mine = {(s, rate): summaries[e.key, s, rate] for s in e.systems for rate in e.rates}
        work = {(s, rate): finished[points[e.key, s, rate].name] for s in e.systems for rate in e.rates}
        results.append(ExperimentResult(e, mine, work, compare(e, mine)))
    return results


def _enough(summary: Mapping[str, Any], metric: str) -> bool:
    """Whether a metric of a run is based on enough events."""
    counts = {
        "throughput": summary["delivered"],
        "delay": summary["delay_ms"]["count"],
        "spurious": summary["spurious"],
    }
    return bool(counts[metric] >= _ENOUGH)


def compare(
    experiment: Experiment, summaries: Mapping[tuple[str, float], Mapping[str, Any]]
) -> tuple[Ratio, ...]:
    """The factors of Table 1: for each system and metric the largest over all rates at which both runs have
    enough events.
    """
    ratios: list[Ratio] = []
    for system, claims in experiment.claims.items():
        for metric, figure, claim in zip(METRICS, experiment.figures[system], claims, strict=False):
            factor, at_rate = None, None
            for rate in experiment.rates:
                pair = [summaries[f"{system}-{change}", rate] for change in (STATIC, PARAMETRIC)]
                static, parametric = (value_of(summary, metric) for summary in pair)
                if static and parametric and all(_enough(summary, metric) for summary in pair):
                    gain = parametric / static if metric == "throughput" else static / parametric
                    if factor is None or gain > factor:
                        factor, at_rate = gain, experiment.per * rate
            ratios.append(Ratio(experiment.key, system, metric, figure, claim, factor, at_rate))
    return tuple(ratios)

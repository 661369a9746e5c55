"""The runs of C and D: pilots, then all points of a grid, in a folder that keeps their traces and results. An
interrupted evaluation resumes: runs by their manifests (`runs/run_all.py`), metrics by `results.json`, in a
folder named after the digest of the measured code (`provenance.py`), so that no results of other code are
used. The points of one seed precede those of the next, so that partial results are complete over cases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import exp, inf, isfinite, sqrt
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.experiments.papers.estimates import Estimate, gain, mean
from covey.sim.experiments.papers.jayaram_calibrations import Calibrations
from covey.sim.experiments.papers.jayaram_cases import (
    KNEE,
    Assumption,
    Case,
    Grid,
    Pilot,
    Point,
    events_for_one,
    pilot_scenario,
    pilots_of,
    point_scenario,
    rate_for_one,
)
from covey.sim.experiments.papers.provenance import digest
from covey.sim.experiments.runs.run_all import PlannedRun, Processes, RunOutcome, run_all
from covey.sim.progress import Progress, labelled, part
from covey.sim.scenario.scenario import Scenario

_RESULTS = "results.json"
_ROUND = 250
"""Runs that are measured and stored together: a query of Spark takes half a minute even for a few."""
_OF_THE_MACHINE = ("real_s", "cpu_s", "memory_bytes", "steps_per_real_s")


@dataclass(frozen=True, slots=True)
class Measured:
    """The metrics of one run; `delay_ms` is None if it answered no change."""

    throughput: float
    delay_ms: float | None
    spurious: float
    control_share: float
    """The share of the measured time that the broker with most changes spent on them."""
    answered: int
    changes: int
    busiest_share: float
    duration_s: float
    violations: int

    @classmethod
    def of(cls, summary: Mapping[str, Any], outcome: RunOutcome) -> Measured:
        """From the metrics of a trace (`covey.sim.metrics.summarise`) and the run's own summary."""
        duration_s = summary["duration_s"]
        return cls(
            throughput=summary["throughput_events_per_s"] or 0.0,
            delay_ms=summary["delay_ms"]["mean"],
            spurious=summary["spurious_per_s"] or 0.0,
            control_share=_control_share(outcome, duration_s),
            answered=summary["delay_ms"]["count"],
            changes=summary["changes"],
            busiest_share=summary["busiest_share"] or 0.0,
            duration_s=duration_s,
            violations=sum(outcome.counts.values()),
        )


def _control_share(outcome: RunOutcome, duration_s: float) -> float:
    work = {} if outcome.summary is None else outcome.summary["work_of_brokers"]
    busy_ns = [
        sum(each["busy_ns"] for kind, each in kinds.items() if kind != "Publish") for kinds in work.values()
    ]
    return max(busy_ns, default=0) / duration_s / 1e9


@dataclass(frozen=True, slots=True)
class Results:
    grid: Grid
    measured: Mapping[str, Measured]

    def runs(self, case: Case, assumption: Assumption, system: str, rho: float) -> list[Measured | None]:
        return [
            self.measured.get(Point(case, assumption, system, rho, self.grid.first_seed + seed).name)
            for seed in range(max(self.grid.seeds, self.grid.assumption_seeds))
        ]

    def at_the_knee(self, case: Case, assumption: Assumption, metric: str) -> Estimate | None:
        """A factor of D, over the seeds that all assumptions have, so that seeds are no difference."""
        known = replace(self, grid=replace(self.grid, seeds=self.grid.assumption_seeds))
        return known.factor(case, assumption, KNEE, metric)

    def value(
        self, case: Case, assumption: Assumption, system: str, rho: float, metric: str
    ) -> Estimate | None:
        """A metric of a system, over the seeds; zero without an interval if all are zero."""
        runs = [run for run in self.runs(case, assumption, system, rho) if run is not None]
        values = [value for run in runs if (value := _value(run, metric)) is not None]
        if not values:
            return None
        return mean(values) if any(values) else Estimate.exact(0.0)

    def factor(
        self,
        case: Case,
        assumption: Assumption,
        rho: float,
        metric: str,
        systems: tuple[str, str] | None = None,
    ) -> Estimate | None:
        """How many times better the second of two systems is, by default the parametric one of a case."""
        old, new = systems or (case.static, case.parametric)
        both = zip(self.runs(case, assumption, old, rho), self.runs(case, assumption, new, rho), strict=True)
        return _factor([(a, b) for a, b in both if a is not None and b is not None], metric)


def _value(run: Measured, metric: str) -> float | None:
    return run.delay_ms if metric == "delay" else getattr(run, metric)


def _factor(pairs: Sequence[tuple[Measured, Measured]], metric: str) -> Estimate | None:
    if not pairs:
        return None
    unit = len(pairs) / sum(a.duration_s for a, _ in pairs)
    if metric == "throughput":
        return gain([b.throughput for _, b in pairs], [a.throughput for a, _ in pairs], unit)
    if metric == "spurious":
        factor = gain([a.spurious for a, _ in pairs], [b.spurious for _, b in pairs], unit)
        old, new = (sum(run.spurious * run.duration_s for run in runs) for runs in zip(*pairs, strict=True))
        return None if factor is None else _by_chance(factor, old, new)
    answered = [(a, b) for a, b in pairs if b.delay_ms]
    # changes come evenly, so where none is answered they have waited half of the run on average
    late = [a.delay_ms or a.duration_s * 1e3 / 2 for a, _ in answered]
    factor = gain(late, [b.delay_ms or 0.0 for _, b in answered])
    if factor is None or all(a.delay_ms for a, _ in answered):
        return factor
    return replace(factor, value=factor.low, high=inf, above=True)


def _by_chance(factor: Estimate, first: float, second: float) -> Estimate:
    """A ratio of two counts with an interval at least as wide as that of as many random events: five runs may
    agree by chance if they have few events."""
    if factor.above or not isfinite(factor.high) or not first or not second:
        return factor
    spread = exp(1.96 * sqrt(1 / first + 1 / second))
    low, high = factor.value / spread, factor.value * spread
    return replace(factor, low=min(factor.low, low), high=max(factor.high, high))


def run_grid(
    grid: Grid, calibrations: Calibrations, folder: Path, progress: Progress, jobs: int = 0
) -> Results:
    """Run what is missing in `folder`. `CoveyError` if a run fails, `SparkError` if Spark does not start."""
    # Workers do not need it, so it is imported here; before the runs, so that a missing package or Java is an
    # early error.
    from covey.sim.metrics import summarise
    from covey.sim.metrics.session import check_spark

    folder /= digest("jayaram")
    runs = _Runs(folder, jobs)
    points = list(grid.points())
    stored = Stored(folder / _RESULTS)
    if not stored.names >= {point.name for point in points}:
        check_spark()
    pilots = runs.pilots(pilots_of(points), calibrations, part(progress, 0.0, 0.05))
    rounds = [points[at : at + _ROUND] for at in range(0, len(points), _ROUND)]
    measured: dict[str, Measured] = {}
    for done, group in enumerate(rounds):
        at = part(progress, 0.05 + 0.95 * done / len(rounds), 0.05 + 0.95 * (done + 1) / len(rounds))
        label = f"part {done + 1} of {len(rounds)}"
        scenarios = [_scenario(point, pilots, calibrations) for point in group]
        outcomes = runs.run(scenarios, part(labelled(at, label), 0.0, 0.85))
        fresh = [each for each in outcomes if not stored.has(each)]
        if fresh:
            by_name = {each.run: each for each in fresh}
            reading = part(labelled(at, f"{label}, {len(fresh)} runs"), 0.85, 1.0)
            for summary in summarise([each.trace for each in fresh], progress=reading):
                stored.put(by_name[summary["run"]], Measured.of(summary, by_name[summary["run"]]))
            stored.save()
        measured |= {each.run: stored.get(each.run) for each in outcomes}
    return Results(grid, measured)


def _scenario(point: Point, pilots: Mapping[str, Mapping[str, Any]], calibrations: Calibrations) -> Scenario:
    rate = rate_for_one(pilots[Pilot(point.case, point.seed, point.assumption.costs).name])
    events = pilots.get(Pilot(point.case, point.seed, events=True).name)
    return point_scenario(point, calibrations.files, rate, 0.0 if events is None else events_for_one(events))


class _Runs:
    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder, self._executor = folder / "runs", Processes(jobs)

    def run(self, scenarios: Sequence[Scenario], progress: Progress) -> list[RunOutcome]:
        planned = [PlannedRun(scenario.name, scenario) for scenario in scenarios]
        outcomes = run_all(planned, self._folder, self._executor, progress)
        for outcome in outcomes:
            if outcome.error:
                raise CoveyError(f"run {outcome.run} failed: {outcome.error}")
        return outcomes

    def pilots(
        self, pilots: Sequence[Pilot], calibrations: Calibrations, progress: Progress
    ) -> dict[str, Mapping[str, Any]]:
        scenarios = [
            pilot_scenario(pilot, calibrations.files, calibrations.message_ns(pilot)) for pilot in pilots
        ]
        outcomes = self.run(scenarios, labelled(progress, "pilots"))
        return {each.run: each.summary for each in outcomes if each.summary is not None}


class Stored:
    """The metrics of runs in a file, each with a digest of the run's own summary: a repeated run with another
    outcome is computed again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._entries: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._entries = {}

    @property
    def names(self) -> set[str]:
        return {*self._entries}

    def has(self, outcome: RunOutcome) -> bool:
        entry = self._entries.get(outcome.run)
        return entry is not None and entry.get("digest") == _digest(outcome)

    def get(self, name: str) -> Measured:
        return Measured(**self._entries[name]["measured"])

    def put(self, outcome: RunOutcome, measured: Measured) -> None:
        assert outcome.summary is not None
        self._entries[outcome.run] = {
            "digest": _digest(outcome),
            "scenario": outcome.summary["scenario"],
            "measured": asdict(measured),
        }

    def save(self) -> None:
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(self._entries, indent=1) + "\n", encoding="utf-8")
        written.replace(self._path)  # so that an interruption leaves the old one


def _digest(outcome: RunOutcome) -> str:
    assert outcome.summary is not None
    stated = {name: value for name, value in outcome.summary.items() if name not in _OF_THE_MACHINE}
    return sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()

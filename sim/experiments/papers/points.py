"""Scenarios of an experiment, run in worker processes, each with a trace."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

from covey.sim.experiments.processes import workers
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.progress import Progress
from covey.sim.scenario.scenario import Scenario
from covey.sim.simulator import Measured


@dataclass(frozen=True, slots=True)
class MessageCost:
    """Number and total processor time of one kind of message at all brokers, after the set-up."""

    kind: str
    messages: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class FinishedPoint:
    """A finished run: the brokers' processor time by kind of message, and the checkers' findings."""

    name: str
    costs: tuple[MessageCost, ...]
    violations: int
    findings: tuple[str, ...]


def run_point(scenario: Scenario, folder: Path) -> FinishedPoint:
    """Run a scenario; its trace is `folder`/NAME.parquet."""
    run = SimulatedRun(scenario)
    samples = run.costs.samples if isinstance(run.costs, Measured) else []
    set_up: list[int] = []

    def on_progress(phase: str, share: float) -> None:
        if phase == "running" and not set_up:
            set_up.append(len(samples))

    report = run.run(folder / f"{scenario.name}.parquet", on_progress)
    times: dict[str, list[int]] = {}
    for sample in samples[set_up[0] if set_up else 0 :]:
        times.setdefault(sample.kind, []).append(sample.took_ns)
    return FinishedPoint(
        scenario.name,
        tuple(MessageCost(kind, len(took), sum(took)) for kind, took in sorted(times.items())),
        sum(report.counts.values()),
        tuple(report.findings[:3]),
    )


def run_points(points: Sequence[Scenario], folder: Path, progress: Progress) -> dict[str, FinishedPoint]:
    """Run all scenarios in one process per core, the longest first; results by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, FinishedPoint] = {}
    ordered = sorted(points, key=lambda scenario: -scenario.update_rate)
    with workers() as pool:
        for future in as_completed([pool.submit(run_point, scenario, folder) for scenario in ordered]):
            finished = future.result()
            results[finished.name] = finished
            progress(f"finished {finished.name}", len(results) / len(points))
    return results

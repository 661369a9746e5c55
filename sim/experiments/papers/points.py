"""Points of an experiment: one scenario under one system each, played in processes, each leaving a trace."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from covey.sim.experiments.driver import Run
from covey.sim.experiments.processes import workers
from covey.sim.experiments.progress import Progress
from covey.sim.scenario.scenario import Scenario
from covey.sim.simulator import Measured


@dataclass(frozen=True, slots=True)
class Point:
    """A run to make; `name` is the trace's."""

    name: str
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class MessageCost:
    """What the brokers did with one sort of message once all was set up: how many, and the processor time of
    all."""

    sort: str
    messages: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class PlayedPoint:
    """A run that was made: what its brokers' time went into, and what the checkers found wrong."""

    name: str
    work: tuple[MessageCost, ...]
    violations: int
    findings: tuple[str, ...]


def play_point(point: Point, folder: Path) -> PlayedPoint:
    """Play one point; its trace is `folder`/NAME.parquet."""
    run = Run(point.scenario)
    samples = run.costs.samples if isinstance(run.costs, Measured) else []
    before: list[int] = []

    def say(phase: str, share: float) -> None:
        if phase == "running" and not before:
            before.append(len(samples))

    report = run.play(folder / f"{point.name}.parquet", say)
    work: dict[str, list[int]] = {}
    for sample in samples[before[0] if before else 0 :]:
        work.setdefault(sample.sort, []).append(sample.took_ns)
    return PlayedPoint(
        point.name,
        tuple(MessageCost(sort, len(took), sum(took)) for sort, took in sorted(work.items())),
        sum(report.counts.values()),
        tuple(report.findings[:3]),
    )


def play_points(
    points: Sequence[Point], folder: Path, progress: Progress, jobs: int = 0
) -> dict[str, PlayedPoint]:
    """Play all points in `jobs` processes (0: one per core), the longest first; by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, PlayedPoint] = {}
    ordered = sorted(points, key=lambda p: -p.scenario.update_rate)
    with workers(jobs) as pool:
        for future in as_completed([pool.submit(partial(play_point, point, folder)) for point in ordered]):
            played = future.result()
            found[played.name] = played
            progress(f"played {played.name}", len(found) / len(points))
    return found

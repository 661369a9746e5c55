"""Many planned runs in one folder, in processes of this machine or as tasks of Spark. Each run has a folder
of its name, its trace. A run is not repeated if its manifest is complete, simulated, and of the same
scenario, choices, contents of the files that it names, and version of Covey; so interrupted work resumes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from covey.matcher.errors import CoveyError, InputError
from covey.sim.experiments import processes
from covey.sim.progress import Progress, silent
from covey.sim.scenario.scenario import Scenario, inputs_of
from covey.sim.trace.finding import TracesError, find_traces
from covey.sim.trace.manifest import Choices
from covey.sim.trace.storage import Folder, reason_of


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A scenario under a name that is unique in its folder; `choices` are those of its sweep."""

    name: str
    scenario: Scenario
    choices: Choices = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The trace of a planned run and its summary (`RunSummary.as_json`) or error; `reused` if it was in the
    folder already."""

    run: str
    trace: str
    summary: Mapping[str, Any] | None = None
    error: str = ""
    reused: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        return {} if self.summary is None else self.summary["counts"]

    @property
    def findings(self) -> Sequence[str]:
        return () if self.summary is None else self.summary["findings"]

    @property
    def failed(self) -> bool:
        return bool(self.error or self.counts)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+=~_-]*")
"""Part of a path, and never a name that Spark takes for a hidden file."""


class Executor(Protocol):
    """Runs everything planned into a folder and returns the outcomes in any order; calls `ended` with the
    number of runs that have ended."""

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]: ...


def run_all(
    planned: Sequence[PlannedRun], folder: str | Path, executor: Executor, progress: Progress = silent
) -> list[RunOutcome]:
    """Run what is not in `folder`, a path or a URI, and return all outcomes in the order of `planned`.

    A run that fails does not stop the others. Raises `InputError` if two runs have one name, or a name is not
    a valid folder name; `CoveyError` if `folder` cannot be written.
    """
    _check_names(planned)
    root = Folder.at(folder)
    try:
        root.make()
    except (OSError, pa.ArrowException) as error:
        raise CoveyError(f"{folder}: cannot be written: {reason_of(error)}") from None
    earlier = [_earlier(each, root.shown) for each in planned]
    outcomes = {outcome.run: outcome for outcome in earlier if outcome is not None}
    reused, total = len(outcomes), len(planned)

    def ended(count: int) -> None:
        progress(f"{reused + count} of {total} runs", (reused + count) / max(total, 1))

    ended(0)
    rest = [each for each in planned if each.name not in outcomes]
    if rest:
        outcomes |= {outcome.run: outcome for outcome in executor.run(rest, root.shown, ended)}
    return [outcomes[each.name] for each in planned]


def _check_names(planned: Sequence[PlannedRun]) -> None:
    for name, count in Counter(each.name for each in planned).items():
        if count > 1:
            raise InputError(f"run {name} is planned {count} times: expected a name of its own for each run")
        if not _NAME.fullmatch(name):
            raise InputError(f"run {name!r}: expected a name of letters, digits and . + = ~ _ -")


def run_one(planned: PlannedRun, folder: str) -> RunOutcome:
    """Run one scenario into `folder`, on any machine. A repeated call finds the first one's result."""
    from covey.sim.experiments.runs.simulated import SimulatedRun

    trace = _trace(planned, folder)
    try:
        earlier = _earlier(planned, folder)
        if earlier is not None:
            return replace(earlier, reused=False)
        result = SimulatedRun(planned.scenario).run(trace, choices=planned.choices).as_json()
    except Exception as error:
        kind = "" if isinstance(error, CoveyError) else f"{type(error).__name__}: "
        return RunOutcome(planned.name, trace, error=f"{kind}{error}")
    return RunOutcome(planned.name, trace, result)


def _trace(planned: PlannedRun, folder: str) -> str:
    return f"{folder}/{planned.name}"


def _earlier(planned: PlannedRun, folder: str) -> RunOutcome | None:
    trace = _trace(planned, folder)
    try:
        manifest = find_traces([trace]).runs[planned.name]
    except (TracesError, KeyError):
        return None
    same = json.loads(json.dumps(asdict(planned.scenario)))
    if manifest.summary is None or not manifest.complete:
        return None
    if manifest.scenario != same or manifest.covey != version("covey") or manifest.real:
        return None
    if manifest.choices != json.loads(json.dumps(planned.choices)):
        return None
    if manifest.inputs not in (None, inputs_of(planned.scenario)):
        return None
    return RunOutcome(planned.name, trace, manifest.summary, reused=True)


_DIED = "its process died, as one does that the system stops for want of memory"


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs in `jobs` processes of this machine (0: one per core), the longest first."""

    jobs: int = 0

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]:
        outcomes: list[RunOutcome] = []
        ordered = sorted(planned, key=lambda each: -expected_work(each.scenario))
        jobs = min(self.jobs, len(ordered))
        for run, future in processes.each(partial(run_one, folder=folder), ordered, jobs):
            try:
                outcome = future.result()
            except BrokenProcessPool:
                outcome = RunOutcome(run.name, "", error=_DIED)
            outcomes.append(outcome)
            ended(len(outcomes))
        return outcomes


def expected_work(scenario: Scenario) -> float:
    """A measure of how long a run takes: events and updates, times the brokers that they may reach."""
    rate = scenario.event_rate * scenario.publishers + scenario.update_rate * scenario.subscribers
    seconds = scenario.warm_up_s + scenario.duration_s
    return (rate * seconds + scenario.subscribers) * scenario.brokers


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """Runs as tasks of Spark, on this machine or on a cluster, whose machines must share the folder. Lost
    tasks are run again. Raises `SparkError` if Spark does not start, `CoveyError` if its tasks fail,
    `InputError` for Spark Connect."""

    master: str | None = None

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]:
        from covey.sim.metrics.session import SparkError, is_remote, job_failure, spark_session
        from covey.sim.metrics.spark_jobs import cancel_jobs, interruptible, watched

        if self.master is not None and self.master.startswith("sc://"):
            raise InputError(
                f"master is {self.master!r}: expected one whose tasks can be any Python function, such as "
                "spark://HOST:PORT; Spark Connect runs queries alone"
            )
        session = spark_session(self.master)
        if is_remote(session):
            raise SparkError("Spark Connect has no tasks of Python objects: a sweep needs a master of Spark")
        with interruptible(partial(cancel_jobs, session)), watched(session, lambda tasks: ended(tasks.done)):
            try:
                tasks = session.sparkContext.parallelize(planned, len(planned))
                outcomes: list[RunOutcome] = tasks.map(partial(run_one, folder=folder)).collect()
            except Exception as error:
                raise CoveyError(f"the runs failed: {job_failure(str(error))}") from error
        ended(len(outcomes))  # Spark's own status may lag behind
        return outcomes


def executor_at(master: str | None) -> Executor:
    """Processes without Spark on this machine, tasks of Spark elsewhere.

    A process that dies costs one run; a task of a local Spark would end the whole job.
    """
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", "local[*]" if master is None else master)
    if local is None:
        return SparkTasks(master)
    return Processes(0 if local[1] == "*" else int(local[1] or 1))

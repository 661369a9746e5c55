"""Many planned runs in one folder: those that are not in it yet are run, by an executor.

Each run has a folder of its name, which is its trace. A run is not repeated if its manifest says that it is
complete, of the same scenario and choices and the same contents of the files that it names, over the same
kind of brokers (simulated or real), and of the same version of Covey; so work that was interrupted resumes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from covey.matcher.errors import CoveyError, InputError
from covey.sim.progress import Progress, silent
from covey.sim.scenario.fields import inputs_of
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.finding import TracesError, find_traces
from covey.sim.trace.manifest import Choices
from covey.sim.trace.storage import Folder, reason_of


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A scenario under a name that is unique in its folder; `real` runs it over broker processes, and
    `choices` are those of its sweep."""

    name: str
    scenario: Scenario
    real: bool = False
    choices: Choices = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What became of a planned run: its trace, its summary (`RunSummary.as_json`) or else the error, and
    whether it was in the folder already."""

    run: str
    trace: str
    summary: Mapping[str, Any] | None = None
    error: str = ""
    reused: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """Violations by property."""
        return {} if self.summary is None else self.summary["counts"]

    @property
    def findings(self) -> Sequence[str]:
        """The first violations."""
        return () if self.summary is None else self.summary["findings"]

    @property
    def failed(self) -> bool:
        """Whether it has no summary, or the checkers report a violation."""
        return bool(self.error or self.counts)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+=~_-]*")
"""Of a run: part of a path, and never one that Spark takes for a hidden file."""


class Executor(Protocol):
    """Runs what is planned into a folder, and returns the outcomes in any order; meanwhile it calls `ended`
    with the number of runs that have ended."""

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]: ...


def run_all(
    planned: Sequence[PlannedRun], folder: str | Path, executor: Executor, progress: Progress = silent
) -> list[RunOutcome]:
    """Run what is not in `folder`, a path or a URI, and return all outcomes in the order of `planned`.

    A run that fails does not stop the others. `InputError` if two runs have one name, or if a name cannot be
    that of a folder; `CoveyError` if `folder` cannot be written.
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
    """Run one scenario into `folder`: what an executor calls wherever its work is done. Where an executor
    calls it twice, the second call finds the first one's result."""
    from covey.sim.experiments.runs.real import RealRun
    from covey.sim.experiments.runs.simulated import SimulatedRun

    trace = _trace(planned, folder)
    try:
        earlier = _earlier(planned, folder)
        if earlier is not None:
            return replace(earlier, reused=False)
        run = RealRun(planned.scenario) if planned.real else SimulatedRun(planned.scenario)
        result = run.run(trace, choices=planned.choices).as_json()
    except Exception as error:
        kind = "" if isinstance(error, CoveyError) else f"{type(error).__name__}: "
        return RunOutcome(planned.name, trace, error=f"{kind}{error}")
    return RunOutcome(planned.name, trace, result)


def _trace(planned: PlannedRun, folder: str) -> str:
    return f"{folder}/{planned.name}"


def _earlier(planned: PlannedRun, folder: str) -> RunOutcome | None:
    """The outcome of an earlier run of the same scenario; None if there is none."""
    trace = _trace(planned, folder)
    try:
        manifest = find_traces([trace]).runs[planned.name]
    except (TracesError, KeyError):
        return None
    same = json.loads(json.dumps(asdict(planned.scenario)))
    if manifest.summary is None or not manifest.complete:
        return None
    if manifest.scenario != same or manifest.covey != version("covey") or manifest.real != planned.real:
        return None
    if manifest.choices != json.loads(json.dumps(planned.choices)):
        return None
    if manifest.inputs not in (None, inputs_of(planned.scenario)):
        return None
    return RunOutcome(planned.name, trace, manifest.summary, reused=True)

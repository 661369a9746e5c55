"""Runs a sweep: each run is one Spark task, on this machine or on a cluster.

A run writes into `OUT/run=NAME/` and is complete when `trace.parquet` and `report.json` exist: both are
written under temporary names and renamed. So an interrupted sweep resumes, and a run whose scenario has
changed is repeated. On a cluster, all machines must share `OUT`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.matcher.errors import CoveyError
from covey.sim.experiments.sweep.plan import Sweep
from covey.sim.progress import Progress, silent
from covey.sim.scenario.scenario import Scenario

if TYPE_CHECKING:
    from pyspark import SparkContext

_TRACE, _REPORT = "trace.parquet", "report.json"
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run: the path of its trace, the violations by kind, the error if it failed, and whether it was in
    the folder already."""

    run: str
    trace: str
    counts: dict[str, int]
    error: str = ""
    reused: bool = False

    @property
    def failed(self) -> bool:
        """Whether it has no trace, or the checkers report a violation."""
        return bool(self.error or self.counts)


def run_sweep(
    sweep: Sweep, out: str | Path, master: str = "local[*]", progress: Progress = silent
) -> list[RunOutcome]:
    """Run those that are not in the folder yet, and return all in their order.

    A run that fails does not stop the others. `SparkError` if Spark does not start, `CoveyError` if `out`
    cannot be written.
    """
    total = len(sweep.runs)

    def done(count: int) -> None:
        progress(f"{count} of {total} runs", count / total)

    folder = Path(out).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CoveyError(f"{out}: cannot be written: {error.strerror or error}") from None
    outcomes: dict[str, RunOutcome] = {}
    todo = []
    for name, scenario in sweep.runs.items():
        earlier = _earlier(folder, name, scenario)
        if earlier is None:
            todo.append((str(folder), name, scenario))
        else:
            outcomes[name] = earlier
    done(len(outcomes))
    if todo:
        from covey.sim.metrics.session import spark_session

        context = spark_session(master).sparkContext
        reused = len(outcomes)
        ended = _run_tasks(context, todo, lambda count: done(reused + count))
        outcomes |= {outcome.run: outcome for outcome in ended}
    return [outcomes[name] for name in sweep.runs]


def _run_tasks(
    context: SparkContext, todo: Sequence[tuple[str, str, Scenario]], done: Callable[[int], None]
) -> list[RunOutcome]:
    """The outcomes of all tasks; calls `done` with the number of ended ones meanwhile."""
    group = "covey sweep"
    ended = threading.Event()
    failures: list[BaseException] = []
    outcomes: list[RunOutcome] = []

    def work() -> None:
        try:
            context.setJobGroup(group, group)
            outcomes.extend(context.parallelize(todo, len(todo)).map(run_task).collect())
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    from pyspark import InheritableThread

    InheritableThread(target=work, daemon=True).start()
    tracker = context.statusTracker()
    try:
        while not ended.wait(_POLL_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [
                tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
            ]
            done(sum(stage.numCompletedTasks for stage in stages if stage is not None))
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    if failures:
        raise CoveyError(f"the sweep failed: {_reason(str(failures[0]))}") from failures[0]
    done(len(outcomes))
    return outcomes


def _reason(message: str) -> str:
    """One sentence of Spark's message on a failed job: the Python exception, if there is one."""
    raised = re.search(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt): .*", message, re.MULTILINE)
    reason = raised[0] if raised and "Traceback" in message else message.strip().partition("\n")[0]
    if "No module named 'covey" in reason:
        reason += ": install Covey on the cluster, and name its interpreter there in PYSPARK_PYTHON"
    return reason


def run_task(task: tuple[str, str, Scenario]) -> RunOutcome:
    """Run one scenario: the body of a Spark task."""
    from covey.sim.experiments.runs.simulated import SimulatedRun

    out, name, scenario = task
    folder = Path(out) / f"run={name}"
    trace, report = folder / _TRACE, folder / _REPORT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        result = SimulatedRun(scenario).run(_temporary(trace))
        _temporary(report).write_text(json.dumps(result.as_json(), indent=2), encoding="utf-8")
        if trace.is_dir():
            shutil.rmtree(trace)
        os.replace(_temporary(trace), trace)
        os.replace(_temporary(report), report)
    except Exception as error:
        kind = "" if isinstance(error, CoveyError) else f"{type(error).__name__}: "
        return RunOutcome(name, str(trace), {}, error=f"{kind}{error}")
    return RunOutcome(name, str(trace), result.counts)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _earlier(folder: Path, name: str, scenario: Scenario) -> RunOutcome | None:
    """The outcome of an earlier run of the same scenario; None if there is none."""
    trace, report = folder / f"run={name}" / _TRACE, folder / f"run={name}" / _REPORT
    try:
        summary: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        if not trace.exists() or summary["scenario"] != json.loads(json.dumps(asdict(scenario))):
            return None
        return RunOutcome(name, str(trace), summary["counts"], reused=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None

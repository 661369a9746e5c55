"""Where planned runs are run: in processes of this machine, or as tasks of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from covey.matcher.errors import CoveyError, InputError
from covey.sim.experiments.processes import each
from covey.sim.experiments.runs.run_all import Executor, PlannedRun, RunOutcome, run_one

if TYPE_CHECKING:
    from covey.sim.scenario.scenario import Scenario

_DIED = "its process died, as one does that the system stops for want of memory"


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs in `jobs` processes of this machine (0: one per core), the longest first; real ones one by one."""

    jobs: int = 0

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]:
        outcomes: list[RunOutcome] = []
        ordered = sorted(planned, key=lambda each: -expected_work(each.scenario))
        for real in (False, True):
            these = [run for run in ordered if run.real == real]
            jobs = 1 if real else min(self.jobs, len(these))
            for run, future in each(partial(run_one, folder=folder), these, jobs) if these else ():
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
    """Runs as tasks of Spark, on this machine or on a cluster, whose machines must share the folder. A task
    whose executor is lost is run again.

    `SparkError` if Spark does not start, `CoveyError` if its tasks fail, `InputError` for Spark Connect.
    """

    master: str | None = None

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]:
        from covey.sim.metrics.session import is_remote, spark_session
        from covey.sim.metrics.spark_failures import SparkError, job_failure
        from covey.sim.metrics.spark_interrupts import cancel_jobs, interruptible
        from covey.sim.metrics.spark_tasks import watched

        if self.master is not None and self.master.startswith("sc://"):
            raise InputError(
                f"master is {self.master!r}: expected one whose tasks can be any Python function, such as "
                "spark://HOST:PORT; Spark Connect runs queries alone"
            )
        session = spark_session(self.master)
        if is_remote(session):
            raise SparkError("Spark Connect has no tasks of Python objects: a sweep needs a master of Spark")
        with (
            interruptible(partial(cancel_jobs, session)),
            watched(session, lambda tasks: ended(tasks.done)),
        ):
            try:
                tasks = session.sparkContext.parallelize(planned, len(planned))
                outcomes: list[RunOutcome] = tasks.map(partial(run_one, folder=folder)).collect()
            except Exception as error:
                raise CoveyError(f"the runs failed: {job_failure(str(error))}") from error
        ended(len(outcomes))  # Spark's own status may lag behind
        return outcomes


def executor_at(master: str | None) -> Executor:
    """What runs at a Spark master: processes without Spark on this machine, tasks of Spark elsewhere.

    A process that dies costs one run; a task of a local Spark would end the whole job.
    """
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", "local[*]" if master is None else master)
    if local is None:
        return SparkTasks(master)
    return Processes(0 if local[1] == "*" else int(local[1] or 1))

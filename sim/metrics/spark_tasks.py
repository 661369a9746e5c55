"""The tasks of Spark's jobs while they run, from Spark's own status: how many there are, how many are done.

    with watched(spark, shown(progress, "latencies")):
        table.collect()

Spark plans a query's later stages as it goes, so the number of tasks grows. The share never decreases, and
leaves room for a further stage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from itertools import count
from operator import add
from typing import TYPE_CHECKING, Any

from covey.sim.progress import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_POLL_S = 0.3
_GROUP, _DESCRIPTION, _INTERRUPT = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"
_numbers = count()


@dataclass(frozen=True, slots=True)
class Tasks:
    """Numbers of tasks and stages so far. A task that failed and is run again counts once as done, and in
    `failed` as often as it failed."""

    done: int = 0
    all: int = 0
    failed: int = 0
    stages_done: int = 0
    stages: int = 0

    def __add__(self, other: Tasks) -> Tasks:
        return Tasks(*map(add, astuple(self), astuple(other)))


@contextmanager
def watched(session: SparkSession, on_tasks: Callable[[Tasks], None]) -> Iterator[None]:
    """Call `on_tasks` now and then, on a thread of its own, with the tasks of the jobs that the calling
    thread starts in the block, and once more when it ends.

    A session of Spark Connect reports on all its jobs. Cost: a call of the JVM per unfinished stage, three
    times a second.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        with _watched_remotely(session, on_tasks):
            yield
        return
    context = session.sparkContext
    group = f"covey-{next(_numbers)}"
    names = (_GROUP, _DESCRIPTION, _INTERRUPT)
    before = {name: context.getLocalProperty(name) for name in names}
    ended = threading.Event()
    seen = _Jobs(context, group)

    def poll() -> None:
        while not ended.wait(_POLL_S):
            with suppress(Exception):  # of a session that is being stopped
                on_tasks(seen.tasks())

    thread = threading.Thread(target=poll, name=group, daemon=True)
    context.setJobGroup(group, before[_DESCRIPTION] or "covey")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(Exception):
            on_tasks(seen.tasks())
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]


def shown(progress: Progress, step: str) -> Callable[[Tasks], None]:
    """Reports tasks to `progress`: "STEP: stage 2 of 5, 30 of 80 tasks", and a share below 1 that never
    decreases."""
    highest = 0.0

    def show(tasks: Tasks) -> None:
        nonlocal highest
        if not tasks.all:
            return
        highest = max(highest, tasks.done / tasks.all * tasks.stages / (tasks.stages + 1))
        stage = min(tasks.stages_done + 1, tasks.stages)
        text = f"{step}: stage {stage:,} of {tasks.stages:,}, {tasks.done:,} of {tasks.all:,} tasks"
        progress(text + (f", {tasks.failed:,} failed and repeated" if tasks.failed else ""), highest)

    return show


class _Jobs:
    """The jobs of a group. Stages that are done are not asked about again."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._ended: dict[int, Tasks] = {}

    def tasks(self) -> Tasks:
        total = Tasks()
        for job in sorted(self._tracker.getJobIdsForGroup(self._group)):
            total += self._ended.get(job) or self._of(job)
        return total

    def _of(self, job: int) -> Tasks:
        info = self._tracker.getJobInfo(job)
        if info is None:
            return Tasks()
        ended = info.status != "RUNNING"
        total = Tasks()
        for stage_id in info.stageIds:
            stage = self._tracker.getStageInfo(stage_id)
            # A stage without tasks done at the end of its job was skipped: an earlier job has its output.
            if stage is None or (ended and not stage.numCompletedTasks):
                continue
            done = stage.numCompletedTasks
            total += Tasks(done, stage.numTasks, stage.numFailedTasks, int(done >= stage.numTasks), 1)
        if ended:
            self._ended[job] = total
        return total


@contextmanager
def _watched_remotely(session: Any, on_tasks: Callable[[Tasks], None]) -> Iterator[None]:
    """The same by the progress handlers of Spark Connect."""
    operations: dict[str, Tasks] = {}

    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        tasks = Tasks()
        for stage in stages or ():
            completed, number = stage.num_completed_tasks, stage.num_tasks
            tasks += Tasks(completed, number, 0, int(completed >= number), 1)
        if tasks.all:
            operations[operation_id or ""] = tasks
        on_tasks(sum(operations.values(), Tasks()))

    session.registerProgressHandler(handle)
    try:
        yield
    finally:
        session.removeProgressHandler(handle)

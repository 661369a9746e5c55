"""Progress of Spark's jobs, from Spark's status, and their cancellation by Ctrl-C. An exception in the middle
of a call of Java breaks the connection and leaves the job running. So the signal cancels from its own thread;
the call then fails, and Java has cleaned up. The number of tasks grows, since Spark plans later stages as it
goes."""

from __future__ import annotations

import logging
import signal
import subprocess
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

_PAUSE_S = 0.2


@contextmanager
def interruptible(cancel: Callable[[], Any]) -> Iterator[None]:
    """On SIGINT, call `cancel` repeatedly on a thread until the block ends, then raise `KeyboardInterrupt` in
    place of the block's exception. A second SIGINT raises it at once.

    No effect in threads other than the main one and in processes that ignore SIGINT.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    interrupted, ended = threading.Event(), threading.Event()

    def cancel_until_end() -> None:
        while not ended.is_set():
            with suppress(Exception):  # such as of what has ended meanwhile
                cancel()
            ended.wait(_PAUSE_S)

    def on_signal(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        threading.Thread(target=cancel_until_end, name="cancel", daemon=True).start()

    signal.signal(signal.SIGINT, on_signal)
    logging.getLogger().addFilter(_is_of_others)
    try:
        yield
    except Exception:
        if not interrupted.is_set():
            raise
    finally:
        ended.set()
        logging.getLogger().removeFilter(_is_of_others)
        if signal.getsignal(signal.SIGINT) is on_signal:  # else pyspark has set its own
            signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt


def cancel_jobs(session: SparkSession) -> None:
    if type(session).__module__.startswith("pyspark.sql.connect"):
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


@contextmanager
def interruptible_launch() -> Iterator[None]:
    """`interruptible` for pyspark's start of Java: an interrupt terminates Java, which would outlive this
    process."""
    from pyspark import java_gateway

    module: Any = java_gateway
    processes: list[subprocess.Popen[bytes]] = []
    launch = module.Popen

    def recorded(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(launch(*words, **options))
        return processes[-1]

    def terminate() -> None:
        for process in processes:
            process.terminate()

    module.Popen = recorded
    try:
        with interruptible(terminate):
            yield
    finally:
        module.Popen = launch


def _is_of_others(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


_POLL_S = 0.3
_GROUP, _DESCRIPTION, _INTERRUPT = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"
_numbers = count()


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks and stages so far. A repeated task counts once in `done`, and once per failure in `failed`."""

    done: int = 0
    all: int = 0
    failed: int = 0
    stages_done: int = 0
    stages: int = 0

    def __add__(self, other: Tasks) -> Tasks:
        return Tasks(*map(add, astuple(self), astuple(other)))


@contextmanager
def watched(session: SparkSession, on_tasks: Callable[[Tasks], None]) -> Iterator[None]:
    """Call `on_tasks` on a thread with the tasks of the jobs that the calling thread starts in the block, and
    once more when it ends.

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
    """Reports "STEP: stage 2 of 5, 30 of 80 tasks", and a share below 1 that never decreases."""
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

"""Spark's tasks, watched while they run."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from covey.sim.metrics.session import spark_session
from covey.sim.metrics.spark_jobs import Tasks, shown, watched


def test_tasks_and_stages_are_counted_while_jobs_run(spark: None, tmp_path: Path) -> None:
    session = spark_session()
    context = session.sparkContext
    context.setJobGroup("mine", "of the user")
    seen: list[Tasks] = []

    seen_done = tmp_path / "seen"

    def see(tasks: Tasks) -> None:
        seen.append(tasks)
        if tasks.done:
            seen_done.touch()

    def last_waits(number: int) -> tuple[int, int]:
        until = time.monotonic() + 60
        while number == 7 and not seen_done.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return number % 2, number

    with watched(session, see):
        pairs = context.parallelize(range(8), 4).map(last_waits)
        assert sorted(pairs.reduceByKey(max, 3).collect()) == [(0, 6), (1, 7)]
    assert seen[-1] == Tasks(done=7, all=7, failed=0, stages_done=2, stages=2)
    assert any(0 < tasks.done < 7 for tasks in seen[:-1])
    assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    assert context.getLocalProperty("spark.job.description") == "of the user"
    context.setLocalProperty("spark.jobGroup.id", None)
    context.setLocalProperty("spark.job.description", None)


def test_what_fails_is_raised_and_the_watch_ends(spark: None) -> None:
    session = spark_session()
    with pytest.raises(ValueError, match="mine"), watched(session, lambda tasks: None):
        raise ValueError("mine")


def test_the_share_never_decreases_is_not_complete_before_the_end_and_retries_are_said() -> None:
    shares: list[tuple[str, float]] = []
    show = shown(lambda step, share: shares.append((step, share)), "latencies")
    show(Tasks())
    show(Tasks(done=4, all=4, stages_done=1, stages=1))
    show(Tasks(done=5, all=1_000, failed=2, stages_done=1, stages=2))
    show(Tasks(done=900, all=1_000, stages_done=3, stages=4))
    assert shares == [
        ("latencies: stage 1 of 1, 4 of 4 tasks", 0.5),
        ("latencies: stage 2 of 2, 5 of 1,000 tasks, 2 failed and repeated", 0.5),
        ("latencies: stage 4 of 4, 900 of 1,000 tasks", 0.72),
    ]


def test_a_session_of_spark_connect_reports_by_its_own_handlers() -> None:
    handlers: list[Any] = []
    session: Any = type("Connected", (), {"__module__": "pyspark.sql.connect.session"})()
    session.registerProgressHandler, session.removeProgressHandler = handlers.append, handlers.remove
    seen: list[Tasks] = []
    with watched(session, seen.append):
        stage = SimpleNamespace(num_tasks=4, num_completed_tasks=4)
        handlers[0](stages=[stage], inflight_tasks=0, operation_id="a", done=True)
        half = SimpleNamespace(num_tasks=4, num_completed_tasks=1)
        handlers[0](stages=[half], inflight_tasks=1, operation_id="b", done=False)
        handlers[0](stages=None, inflight_tasks=0, operation_id="b", done=False)
    assert seen[-1] == Tasks(done=5, all=8, failed=0, stages_done=1, stages=2)
    assert not handlers

"""Ctrl-C while Spark starts and works."""

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pyspark
import pytest
from interrupting import interrupted

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.metrics import spark_session, summarise, summary
from covey.sim.metrics.spark_jobs import cancel_jobs, interruptible
from covey.sim.scenario.scenario import Scenario

TINY = Scenario(brokers=4, publishers=1, subscribers=5, types=2, duration_s=0.3)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_cancels_until_the_block_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    cancelled = threading.Event()

    @interruptible(cancelled.set)
    def work() -> None:
        interrupt()
        assert cancelled.wait(60)
        raise ValueError("as of a job that was cancelled")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError, match="another"), interruptible(cancelled.set):
        raise ValueError("another")


def test_a_second_signal_does_not_wait() -> None:
    @interruptible(lambda: time.sleep(600))
    def work() -> None:
        interrupt()
        interrupt()
        time.sleep(600)

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_job_is_cancelled_and_nothing_is_printed(spark: None, capfd: pytest.CaptureFixture[str]) -> None:
    session = spark_session()
    tracker = session.sparkContext.statusTracker()
    ended = threading.Event()

    def interrupt_in_a_job() -> None:
        while not tracker.getActiveJobsIds() and not ended.wait(0.05):
            pass
        interrupt()

    slow = session.range(600, numPartitions=600)
    slow = slow.selectExpr("java_method('java.lang.Thread', 'sleep', 1000L + id)")
    thread = threading.Thread(target=interrupt_in_a_job)
    capfd.readouterr()

    @interruptible(partial(cancel_jobs, session))
    def work() -> None:
        thread.start()
        try:
            slow.collect()
        finally:
            ended.set()
            thread.join()

    with pytest.raises(KeyboardInterrupt):
        work()
    until = time.monotonic() + 60
    while tracker.getActiveJobsIds():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert capfd.readouterr() == ("", "")
    assert session.range(3).count() == 3


@pytest.mark.thorough
def test_tables_of_a_call_that_is_interrupted_are_removed(
    spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        assert (results / "latencies").is_dir()
        raise KeyboardInterrupt

    trace, results = tmp_path / "run", tmp_path / "results"
    SimulatedRun(TINY).run(trace)
    monkeypatch.setattr(summary, "write_summaries", interrupted)
    with pytest.raises(KeyboardInterrupt):
        summarise([trace], out=results)
    assert not results.exists()
    (results / "mine").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        summarise([trace], out=results)
    assert [each.name for each in results.iterdir()] == ["mine"]


@pytest.mark.thorough
def test_java_is_terminated_where_its_start_is_interrupted(tmp_path: Path) -> None:
    trace, home, started = tmp_path / "run", tmp_path / "spark", tmp_path / "started"
    SimulatedRun(TINY).run(trace)
    (home / "bin").mkdir(parents=True)
    (home / "jars").mkdir()
    (home / "jars" / f"spark-core_2.13-{pyspark.__version__}.jar").touch()
    submit = home / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\necho $$ > {started}.part\nmv {started}.part {started}\nexec sleep 600\n")
    submit.chmod(0o755)
    status, output = interrupted(
        [sys.executable, "-m", "covey.cli.main", "metrics", str(trace)],
        started.exists,
        os.environ | {"SPARK_HOME": str(home)},
    )
    assert (status, output) == (130, "covey: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)

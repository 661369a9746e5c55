"""A driver program in its own process: a sweep, its metrics and a stream on a Spark cluster. An executor is
killed during the sweep, and a worker with its executor during the metrics, which have to equal those on this
machine, in the same JVM. Arguments: the master, a folder, the broker of the stream, the process ids of the
workers. Prints JSON, and times on stderr."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from spark_cluster import executors_of

from covey.sim.experiments.runs.run_all import PlannedRun, SparkTasks, run_all
from covey.sim.metrics import spark_session, summarise
from covey.sim.scenario.scenario import Scenario
from covey.spark import CoveySource

_LONG_S = 400.0
"""For a very busy machine; an idle one needs a minute for everything."""


def planned_runs() -> list[PlannedRun]:
    """Small runs, and long enough to be interrupted."""
    small = Scenario(brokers=5, publishers=2, subscribers=20, types=2, duration_s=1.0, event_rate=40.0)
    return [PlannedRun(f"seed-{seed}", small.having(seed=seed)) for seed in range(4)]


def sweep(master: str, folder: str, worker: int) -> list[Any]:
    """The outcomes; an executor is killed as soon as the first run has begun."""
    killed: list[int] = []

    def kill() -> None:
        if _until(lambda: any(Path(folder).glob("seed-*/*")), _LONG_S):
            killed.extend(executors_of(worker))
            for executor in killed:
                os.kill(executor, signal.SIGKILL)

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    outcomes = run_all(planned_runs(), folder, SparkTasks(master))
    killing.join()
    assert killed, "no executor was killed"
    return [[each.run, each.trace, each.error, each.summary] for each in outcomes]


def metrics(session: SparkSession, master: str, traces: list[str], worker: int) -> list[dict[str, Any]]:
    """The metrics; a worker and its executor are killed as soon as Spark runs their third job."""
    tracker = session.sparkContext.statusTracker()
    killed = threading.Event()
    before = _last_job(session)

    def kill() -> None:
        while not killed.is_set():
            if any(job >= before + 3 for job in tracker.getActiveJobsIds()):
                os.killpg(worker, signal.SIGKILL)
                killed.set()
            time.sleep(0.01)

    threading.Thread(target=kill, daemon=True).start()
    summaries = summarise(traces, master)
    assert killed.is_set(), "no worker was killed"
    return summaries


def _last_job(session: SparkSession) -> int:
    context = session.sparkContext
    context.setJobGroup("counted", "counted")
    session.range(1).collect()
    return max(context.statusTracker().getJobIdsForGroup("counted"))


def stream(session: SparkSession, folder: str, broker: str, wanted: int) -> list[int]:
    """The volumes of the stream's first events, once there are `wanted`."""
    session.dataSource.register(CoveySource)
    options = {"broker": broker, "type": "Quote", "filter": "price < 5", "name": "on-cluster"}
    volumes: list[int] = []
    enough = threading.Event()

    def take(batch: Any, number: int) -> None:
        volumes.extend(row["volume"] for row in batch.select("volume").collect())
        if len(volumes) >= wanted:
            enough.set()

    source = session.readStream.format("covey").options(**options).load()
    query = source.writeStream.foreachBatch(take).option("checkpointLocation", f"{folder}/checkpoint").start()
    assert _until(enough.is_set, _LONG_S), f"{len(volumes)} events: {query.exception() or query.status}"
    query.stop()
    return sorted(volumes)


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def main(master: str, folder: str, broker: str, *workers: str) -> None:
    start = time.monotonic()

    def ended(what: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s: {what}", file=sys.stderr, flush=True)

    session = spark_session(master)
    assert _until(lambda: all(executors_of(int(worker)) for worker in workers), _LONG_S), "too few executors"
    ended("start")
    outcomes = sweep(master, folder, int(workers[0]))
    ended("sweep")
    volumes = stream(session, folder, broker, 20)
    ended("stream")
    traces = [trace for _, trace, _, _ in outcomes]
    summaries = metrics(session, master, traces, int(workers[1]))
    ended("metrics")
    session.stop()
    spark_session("local[1]")
    here = summarise(traces)
    ended("metrics on one machine")
    print(json.dumps({"outcomes": outcomes, "volumes": volumes, "summaries": summaries, "here": here}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The program of a driver, run in a process of its own: a sweep, its metrics and a stream on a Spark cluster.

An executor is killed in the middle of the sweep, and a worker with its executor in the middle of the metrics.
Arguments: the master, a folder, the broker of the stream, the process ids of the workers. Prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from cluster_runs import planned_runs
from pyspark.sql import SparkSession
from spark_cluster import executors_of

from covey.sim.experiments.runs.executors import SparkTasks
from covey.sim.experiments.runs.run_all import run_all
from covey.sim.metrics import spark_session, summarise
from covey.spark import CoveySource


def sweep(session: SparkSession, master: str, folder: str, worker: int) -> list[Any]:
    """The outcomes; an executor is killed as soon as a run has ended."""
    killed: list[int] = []

    def kill_once(step: str, share: float) -> None:
        if 0 < share < 1 and not killed:
            killed.extend(executors_of(worker))
            for executor in killed:
                os.kill(executor, signal.SIGKILL)

    outcomes = run_all(planned_runs(), folder, SparkTasks(master), kill_once)
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
            time.sleep(0.02)

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
    """The volumes of the first events that the stream has, once there are `wanted`."""
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
    assert _until(enough.is_set, 400.0), f"{len(volumes)} events: {query.exception() or query.status}"
    query.stop()
    return sorted(volumes)


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def main(master: str, folder: str, broker: str, *workers: str) -> None:
    session = spark_session(master)
    outcomes = sweep(session, master, folder, int(workers[0]))
    volumes = stream(session, folder, broker, 20)
    summaries = metrics(session, master, [trace for _, trace, _, _ in outcomes], int(workers[1]))
    print(json.dumps({"outcomes": outcomes, "volumes": volumes, "summaries": summaries}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Sweeps, metrics and streams on a standalone Spark cluster of two workers that lose executors."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from live_brokers import live_brokers
from on_cluster import planned_runs
from spark_cluster import spark_cluster

from covey.sim.experiments.runs.run_all import run_one

SUPPORT = Path(__file__).resolve().parents[2] / "support"


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
@pytest.mark.xdist_group("spark")
def test_a_cluster_that_loses_an_executor_and_a_worker_gives_complete_results(tmp_path: Path) -> None:
    with live_brokers() as live, spark_cluster(tmp_path) as cluster:
        ended = threading.Event()

        def publish() -> None:
            volume = 0
            while not ended.wait(0.2):
                live.publish(*[("IBM", float(price), volume + price) for price in range(10)])
                volume += 10

        publishing = threading.Thread(target=publish)
        publishing.start()
        workers = [str(worker) for worker in cluster.workers]
        arguments = (cluster.master, str(tmp_path / "sweep"), live.far, *workers)
        try:
            done = subprocess.run(
                [sys.executable, str(SUPPORT / "on_cluster.py"), *arguments],
                env=os.environ | cluster.environment | {"PYTHONPATH": str(SUPPORT)},
                capture_output=True,
                text=True,
                timeout=1_000,
            )
        finally:
            ended.set()
            publishing.join()
    assert done.returncode == 0, done.stderr[-4_000:]
    results = json.loads(done.stdout.splitlines()[-1])
    volumes = results["volumes"]
    assert volumes == [volume for volume in range(volumes[0], volumes[-1] + 1) if volume % 10 < 5]
    assert [(run, error) for run, _, error, _ in results["outcomes"] if error] == []
    (tmp_path / "here").mkdir()
    here = [run_one(each, str(tmp_path / "here")) for each in planned_runs()]
    assert [[each.run, each.error, _timeless(each.summary)] for each in here] == [
        [run, error, _timeless(summary)] for run, _, error, summary in results["outcomes"]
    ]
    assert results["summaries"] == results["here"]
    assert all(summary["delivered"] for summary in results["summaries"])


def _timeless(summary: Any) -> dict[str, Any]:
    """The part of a run's summary that its seed determines."""
    measured = {"real_s", "steps_per_real_s", "cpu_s", "memory_bytes"}
    return {name: value for name, value in summary.items() if name not in measured}

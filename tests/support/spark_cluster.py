"""A standalone Spark cluster on loopback: a master and workers, each a process, from pyspark's own scripts,
at ports of the system's choice. Each process leads its own group, so that a worker ends with its executors
whatever happens in a test."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

_START_S = 120.0
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = f"""
spark.executor.extraJavaOptions {_JVM}
spark.executor.memory 512m
spark.shuffle.io.maxRetries 1
spark.shuffle.io.retryWait 100ms
"""
"""Of applications. By default Spark tries to fetch lost output for 15 s before it computes it again."""


class SparkCluster:
    """`master` is its URL, `workers` the process ids of its workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""
        self.workers: list[int] = []

    @property
    def environment(self) -> dict[str, str]:
        """For a process that uses the cluster."""
        return {"SPARK_CONF_DIR": str(self._folder), "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self, workers: int) -> None:
        (self._folder / "spark-defaults.conf").write_text(_SETTINGS)
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / "work"))
        for number in range(workers):
            name = f"worker-{number}"
            self.workers.append(self._start(name, "worker.Worker", *size, "--host", "127.0.0.1", self.master))
        for number in range(workers):
            self._said(f"worker-{number}", "(Successfully registered) with master")

    def stop(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _start(self, name: str, main: str, *options: str) -> int:
        home = Path(pyspark.__path__[0])
        ours = ("SPARK_", "PYSPARK_")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        environment |= self.environment | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JVM,
        }
        words = (home / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", "--webui-port", "0")
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*words, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process.pid

    def _said(self, name: str, pattern: str) -> str:
        """A match in the log of a process, as soon as it is there."""
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + _START_S
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert time.monotonic() < deadline, f"{name} did not start:\n{log.read_text(errors='replace')}"
            time.sleep(0.05)
        return found[1]


def executors_of(worker: int) -> list[int]:
    """The process ids of a worker's executors."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
            if parent == worker and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(stat.parent.name))
    return found


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster with its logs in `folder`, stopped at the end of the block."""
    cluster = SparkCluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()

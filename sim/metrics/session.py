"""The Spark session of metrics and sweeps: one per process, quiet, and small on a local master."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from covey.matcher.errors import CoveyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA = "Spark needs Java 17: install a Java runtime of version 17 or newer (Debian: openjdk-17-jre-headless)"


class SparkError(CoveyError, RuntimeError):
    """Spark cannot be started, or its master cannot be reached."""


def spark_session(master: str = "local[*]") -> SparkSession:
    """The session of this process. The first call starts it, which takes seconds.

    Raises `SparkError` if Java or the master is missing, or if the process has a session at another master.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of pandas
        from pyspark.sql import SparkSession
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    running = SparkSession.getActiveSession()
    if running is not None:
        if running.sparkContext.master != master:
            raise SparkError(
                f"master is {master!r}: this process already has a Spark session at "
                f"{running.sparkContext.master!r}"
            )
        return running
    if not _has_java():
        raise SparkError(_JAVA)
    settings = {
        "spark.app.name": "covey",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Names of runs are text, even if they look like numbers.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    # Tasks run in this interpreter's path unless PYSPARK_PYTHON names another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # For many small steps, adaptive replanning, the optimising compiler and parallel garbage collection
        # cost more than they save (half of the CPU time of a small run).
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.adaptive.enabled": "false",
            # Small tables are broadcast explicitly; the others are already partitioned by run.
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, 16)),
        }
    builder = SparkSession.Builder().master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_to_file() as stderr:
        try:
            return builder.getOrCreate()
        except Exception as error:
            stderr.seek(0)
            raise SparkError(_failure(master, str(error), stderr.read())) from None


def _failure(master: str, error: str, stderr: str) -> str:
    """The reason why Spark does not start, from the exception and stderr."""
    if "UnsupportedClassVersionError" in stderr:
        return _JAVA
    lines = [line for line in stderr.splitlines() if "Exception: " in line]
    reason = lines[0].rpartition("Exception: ")[2] if lines else error.strip().partition("\n")[0]
    return f"Spark does not start at master {master!r}: {reason}"


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (home is not None and (Path(home) / "bin" / "java").exists()) or shutil.which("java") is not None


@contextmanager
def _stderr_to_file() -> Iterator[IO[str]]:
    """Redirects stderr of this process, and of the processes it starts meanwhile, to a file: Java and Spark
    print long banners, and a failure is raised as an exception as well."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        sys.stderr.flush()
        original = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(original, 2)
            os.close(original)

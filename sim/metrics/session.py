"""The Spark session that metrics and sweeps run in: one per process, quiet, and small where it is local."""

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
    """The session of this process, started at the first call, which takes seconds; `SparkError` where Java
    or the master is missing, or where the process already has a session at another master.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of which versions of pandas Spark knows
        from pyspark.sql import SparkSession
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    running = SparkSession.getActiveSession()
    if running is not None:
        if running.sparkContext.master != master:
            raise SparkError(
                f"master is {master!r}, but this process has a Spark session at "
                f"{running.sparkContext.master!r}: expected the same"
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
        # The names of runs are names, even where they look like numbers.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    # Tasks run in this interpreter, which a cluster has to have in the same place, unless another is named.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Small and many steps: replanning between them, optimising compilation and parallel collection of
        # garbage cost more than they gain (half of the processor time of a small run).
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.adaptive.enabled": "false",
            # What is small enough is broadcast on purpose; the rest is partitioned by run already.
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, 16)),
        }
    builder = SparkSession.Builder().master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_to_file() as said:
        try:
            return builder.getOrCreate()
        except Exception as error:
            said.seek(0)
            raise SparkError(_failure(master, str(error), said.read())) from None


def _failure(master: str, error: str, said: str) -> str:
    """Why Spark does not start, from the exception and from what Java and Spark have said on stderr."""
    if "UnsupportedClassVersionError" in said:
        return _JAVA
    lines = [line for line in said.splitlines() if "Exception: " in line]
    reason = lines[0].rpartition("Exception: ")[2] if lines else error.strip().partition("\n")[0]
    return f"Spark does not start at master {master!r}: {reason}"


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (home is not None and (Path(home) / "bin" / "java").exists()) or shutil.which("java") is not None


@contextmanager
def _stderr_to_file() -> Iterator[IO[str]]:
    """What is written to stderr meanwhile, and by the processes that are started meanwhile from then on, goes
    to a file: Java and Spark greet at length, and a failure comes as an exception as well."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)

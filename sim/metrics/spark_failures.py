"""What Spark reports in hundreds of lines, as one sentence: why it did not start, and why a job failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from covey.sim.metrics.spark_checks import SparkError, java, no_fitting_java

_OF_WORKERS = "install Covey on the cluster, and name its interpreter there in PYSPARK_PYTHON"
_FILE = re.compile(r"reading file:? *(?:file:/*(?=/))?([^\s\"]+\.parquet)")


@contextmanager
def explained() -> Iterator[None]:
    """Raises `SparkError` with one sentence where a query in the block fails."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkError(job_failure(str(error))) from error


def start_failure(master: str, error: str, stderr: str, spark_version: str) -> str:
    """Why Spark does not start, from the exception and from stderr."""
    if re.search(r"UnsupportedClassVersionError|Unable to locate a Java Runtime", stderr):
        return no_fitting_java(java())
    everything = f"{stderr}\n{error}"
    if "All masters are unresponsive" in everything or "stopped SparkContext" in error:
        return (
            f"Spark does not start at master {master!r}: the master does not accept this application; "
            f"expected a cluster with Spark {spark_version}, the version of this pyspark"
        )
    lines = [line for line in stderr.splitlines() if "Exception: " in line]
    reason = lines[0].rpartition("Exception: ")[2] if lines else error.strip().partition("\n")[0]
    return f"Spark does not start at master {master!r}: {reason}"


def job_failure(message: str) -> str:
    """Why a job failed, from the message of Spark's exception: the Python exception, if there is one."""
    versions = re.search(r"PYTHON_VERSION_MISMATCH\].*?(\d+\.\d+)\D+?(\d+\.\d+)", message, re.DOTALL)
    if versions:
        return (
            f"the workers run Python {versions[1]}, and this process Python {versions[2]}: expected one "
            "version; name a fitting interpreter on the workers in PYSPARK_PYTHON"
        )
    file = _FILE.search(message)
    if file:
        return f"{file[1]}: cannot be read: damaged, or removed since the trace was found"
    absent = re.search(r'Cannot run program "([^"]+)"', message)
    if absent:
        return f"the workers have no {absent[1]}: {_OF_WORKERS}"
    store = re.search(r'No FileSystem for scheme "?(\w+)|Class (\S+FileSystem) not found', message)
    if store:
        what = f"{store[1]}://" if store[1] else store[2]
        return f"this Spark has no file system for {what}: expected its jars (docs/metrics.md), or a folder"
    raised = re.search(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt): .*", message, re.MULTILINE)
    reason = raised[0] if raised and "Traceback" in message else message.strip().partition("\n")[0]
    if "No module named 'covey" in reason:
        reason += f": {_OF_WORKERS}"
    return reason

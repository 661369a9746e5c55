"""Why Spark cannot start here, did not start, or a job failed: each is one sentence."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from covey.matcher.errors import CoveyError
from covey.sim.extras import INSTALL_JAVA, java, no_fitting_java

_CONNECT_S = 5.0
_CONNECT_PORT = 15_002
"""Of Spark Connect, by default."""
_REMOTE = "sc://HOST:PORT"
_FORM = re.compile(r"local(\[([1-9]\d*|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|[a-z0-9]+://.+")
_RUN_S = 20.0


class SparkError(CoveyError, ValueError):
    """Spark cannot start, its master cannot be reached, or a version does not fit."""


def check_form(master: str) -> None:
    """Raise `SparkError` for what names no master."""
    if not _FORM.fullmatch(master):
        raise SparkError(f"master is {master!r}: expected local[CORES], spark://HOST:PORT, yarn or {_REMOTE}")


def check_before_start(master: str, spark_version: str) -> None:
    """Raise `SparkError` for what would keep Spark from starting, or from starting workers, at `master`.

    Cost: one connection to the master of a cluster; on a local master one start of the interpreter in
    PYSPARK_PYTHON, where that is another one than this.
    """
    if master.startswith("sc://"):
        host, _, port = master.removeprefix("sc://").partition("/")[0].partition(":")
        return _check_answers(master, [f"{host}:{port or _CONNECT_PORT}"], _REMOTE)
    check_form(master)
    _check_spark_home(spark_version)
    _check_java()
    if master.startswith("local"):
        _check_python()
    elif master.startswith("spark://"):
        places = master.removeprefix("spark://").split(",")  # of several masters one leads
        _check_answers(master, places, "spark://HOST:PORT")


def _check_java() -> None:
    found = java()
    if found is None:
        raise SparkError(f"Spark needs Java 17: {INSTALL_JAVA}")
    if not Path(found).exists():
        home = os.environ.get("JAVA_HOME")
        raise SparkError(f"JAVA_HOME is {home!r}: expected a Java runtime of version 17 or newer")


def _check_spark_home(spark_version: str) -> None:
    """SPARK_HOME decides which Spark this pyspark starts."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    jars = sorted(Path(home).glob("jars/spark-core_*.jar"))
    if not jars:
        raise SparkError(f"SPARK_HOME is {home!r}: expected an installation of Spark, or no SPARK_HOME")
    version = jars[-1].stem.partition("_")[2].partition("-")[2]
    if version != spark_version:
        raise SparkError(
            f"SPARK_HOME is {home!r} with Spark {version}, and pyspark is {spark_version}: expected the same "
            f"version; unset SPARK_HOME to use pyspark's, or install 'pyspark=={version}'"
        )


def _check_python() -> None:
    named = os.environ.get("PYSPARK_PYTHON")
    if not named or named == sys.executable:
        return
    mine = ".".join(map(str, sys.version_info[:2]))
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        ran = subprocess.run([named, "-c", show], capture_output=True, text=True, timeout=_RUN_S)
    except (OSError, subprocess.SubprocessError):
        ran = None
    if ran is None or ran.returncode:
        raise SparkError(f"PYSPARK_PYTHON is {named!r}: expected an interpreter that runs, of Python {mine}")
    if ran.stdout.strip() != mine:
        raise SparkError(
            f"PYSPARK_PYTHON is {named!r} with Python {ran.stdout.strip()}: expected Python {mine}, as runs "
            "this process; unset it, or name one of that version"
        )


def _check_answers(master: str, places: Sequence[str], form: str) -> None:
    """`SparkError` unless one of the places, HOST:PORT, accepts a connection."""
    reasons = []
    for place in places:
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise SparkError(f"master is {master!r}: expected {form}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
        else:
            return
    what = "server of Spark Connect" if master.startswith("sc://") else "Spark master"
    raise SparkError(f"master is {master!r}: no {what} answers there ({', '.join(reasons)})")


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

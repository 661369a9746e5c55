"""The Spark session of metrics and sweeps: the user's own, or one that this process starts, sized by its
input; and the reasons of failures, in one sentence each. A session of the user's program (notebook,
spark-submit, Databricks, Spark Connect) is used as it is. For small input a session started here has no
optimising compiler and no parallel garbage collection, which cost half of the CPU time of a small run."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from covey.matcher.errors import CoveyError
from covey.sim.extras import INSTALL_JAVA, java, need, no_fitting_java
from covey.sim.metrics.spark_jobs import interruptible, interruptible_launch
from covey.sim.trace.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from covey.sim.trace.finding import Traces

LOCAL = "local[*]"
LARGE_BYTES = 256 << 20
"""From this input on the optimising compiler saves more than it costs, a minute of CPU time."""
_HEAP_MB = (1024, 8192)
_EXECUTOR_S = 60.0
_REMOTE_CORES = 16
_QUIET = {
    "spark.app.name": "covey",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Names of runs are text, even if they look like numbers.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def spark_session(master: str | None = None, *, input_bytes: int = 0) -> SparkSession:
    """The session of this process, else a new one at `master`, whose start takes seconds.

    `master` is a URL of Spark (`local[2]`, `spark://HOST:PORT`, `yarn`) or of Spark Connect
    (`sc://HOST:PORT`); None means the existing session, that of spark-submit, or all cores of this machine.
    `input_bytes` is the approximate input size. Raises `SparkError` if Java or the master is missing, a
    version does not fit, or the existing session has another master.
    """
    running = _running(master)
    if running is not None:
        return running
    place = _place(master)
    return _connected(place) if place.startswith("sc://") else _started(place, input_bytes)


def check_spark(master: str | None = None) -> None:
    """Raise what `spark_session` raises, before work whose result Spark is to read.

    Faults that appear only when Spark starts, such as an old Java, are not detected. Cost: as
    `check_before_start`.
    """
    if _running(master) is None:
        from pyspark import __version__ as version

        check_before_start(_place(master), version)


def _place(master: str | None) -> str:
    remote = os.environ.get("SPARK_REMOTE", "")
    return master or (remote if remote.startswith("sc://") else LOCAL)


def _running(master: str | None) -> SparkSession | None:
    """The session of this process, or of spark-submit, which has started Spark with the user's settings."""
    need("Spark", "pyspark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of pandas
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        running = SparkSession.Builder().getOrCreate()
    if running is None:
        return SparkSession.Builder().getOrCreate() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    if master is not None and not is_remote(running) and running.sparkContext.master != master:
        check_form(master)
        raise SparkError(
            f"master is {master!r}: this process already has a Spark session at "
            f"{running.sparkContext.master!r}"
        )
    return running


def is_remote(session: SparkSession) -> bool:
    """Whether it is one of Spark Connect, which has neither a context nor RDDs."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def parallel_tasks(session: SparkSession) -> int:
    """A guess for Spark Connect, which does not report it."""
    return _REMOTE_CORES if is_remote(session) else session.sparkContext.defaultParallelism


def heap_mb(input_bytes: int, memory_bytes: int) -> int:
    """Spark's default for small input, else a quarter of the memory, within bounds. Spark spills the rest."""
    least, most = _HEAP_MB
    return least if input_bytes < LARGE_BYTES else max(least, min(most, memory_bytes // 4 >> 20))


def settings(master: str, input_bytes: int) -> dict[str, str]:
    chosen = _QUIET | {"spark.driver.memory": f"{heap_mb(input_bytes, _memory_bytes())}m"}
    if master.startswith("local") and not master.startswith("local-cluster"):
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        if input_bytes < LARGE_BYTES:
            chosen["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
            chosen["spark.sql.adaptive.enabled"] = "false"
            chosen["spark.sql.shuffle.partitions"] = str(min(os.cpu_count() or 1, 16))
    return chosen


def _memory_bytes() -> int:
    """The memory of this machine, or the limit of the container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def _started(master: str, input_bytes: int) -> SparkSession:
    from pyspark import __version__ as version
    from pyspark.sql import SparkSession

    check_before_start(master, version)
    # Tasks run in this interpreter's path unless PYSPARK_PYTHON names another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().master(master)
    for name, value in settings(master, input_bytes).items():
        builder = builder.config(name, value)
    with interruptible_launch(), _stderr_to_file() as stderr:
        try:
            session = builder.getOrCreate()
        except Exception as error:
            stderr.seek(0)
            raise SparkError(start_failure(master, str(error), stderr.read(), version)) from None
    if master.startswith("spark://"):
        with interruptible(session.stop):
            _await_executor(session, master, version)
    return session


def _await_executor(session: SparkSession, master: str, version: str) -> None:
    """Without an executor Spark would wait for ever and print nothing."""
    context = session.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    tracker = context.statusTracker()
    until = time.monotonic() + _EXECUTOR_S
    with suppress(Exception):  # of a context that the master has stopped
        while time.monotonic() < until:
            if len(tracker.getExecutorInfos()) > 1:  # the driver is one
                return
            time.sleep(0.1)
    address = context.getConf().get("spark.driver.host", "")
    with suppress(Exception):
        session.stop()
    raise SparkError(
        f"master is {master!r}: no executor has started within {_EXECUTOR_S:.0f} s; expected workers with "
        f"free cores and memory, Java 17, Spark {version} (the version of this pyspark) and a way to connect "
        f"to {address}; their logs say what is missing"
    )


def _connected(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.Builder().remote(remote).getOrCreate()
        version = session.version
    except ImportError:
        what = "Spark Connect needs `pip install 'pyspark[connect]'`"
        raise SparkError(f"master is {remote!r}: {what}") from None
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise SparkError(f"master is {remote!r}: no server of Spark Connect answers ({reason})") from None
    if int(version.partition(".")[0]) < 4:
        raise SparkError(f"master is {remote!r} with Spark {version}: expected Spark 4.0 or newer")
    return session


@contextmanager
def _stderr_to_file() -> Iterator[IO[str]]:
    """Redirects stderr of this process and its children to a file: Java and Spark print long banners, and a
    failure also raises an exception."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        sys.stderr.flush()
        original = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(original, 2)
            os.close(original)


SMALL_ROWS = 1_000_000
"""Up to this number, the overhead of tasks and of adaptive planning exceeds the work."""
_ROWS_PER_TASK = 500_000


def query_settings(rows: int, cores: int) -> dict[str, str]:
    """Settings for a query over this number of rows of traces.

    Adaptive execution joins small partitions, splits skewed ones of a join (a subscription with most of the
    deliveries), and broadcasts tables that turn out small. Planned broadcasts are off: they go by the size of
    files, and a trace takes a few bytes of file per row.
    """
    unplanned = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    if rows <= SMALL_ROWS:
        return unplanned | {
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": str(min(cores, 16)),
        }
    return unplanned | {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(max(2 * cores, min(rows // _ROWS_PER_TASK, 4096))),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
        "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "64m",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "16m",
    }


@contextmanager
def sized(session: SparkSession, traces: Traces) -> Iterator[None]:
    """Applies the `query_settings` for the size of these traces in the block."""
    rows = sum(traces.rows(table) for table in TABLES)
    chosen = query_settings(rows, parallel_tasks(session))
    before = {name: session.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


_CONNECT_S = 5.0
_CONNECT_PORT = 15_002
_REMOTE = "sc://HOST:PORT"
_FORM = re.compile(r"local(\[([1-9]\d*|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|[a-z0-9]+://.+")
_RUN_S = 20.0


class SparkError(CoveyError, ValueError):
    """Spark cannot start, its master cannot be reached, or a version does not fit."""


def check_form(master: str) -> None:
    """`SparkError` for a text that names no master."""
    if not _FORM.fullmatch(master):
        raise SparkError(f"master is {master!r}: expected local[CORES], spark://HOST:PORT, yarn or {_REMOTE}")


def check_before_start(master: str, spark_version: str) -> None:
    """Raise `SparkError` for what would prevent the start of Spark or of its workers at `master`.

    Cost: a connection to the master of a cluster; locally a start of the interpreter in PYSPARK_PYTHON, if
    that is another one.
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
    """`SparkError` unless one of `places`, HOST:PORT, accepts a connection."""
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

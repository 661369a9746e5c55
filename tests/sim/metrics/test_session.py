"""The Spark session: its owner, its settings by size of input, and one sentence for each misfit."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run

from covey.matcher.errors import CoveyError
from covey.sim import extras
from covey.sim.experiments.papers import PaperPlan, jayaram
from covey.sim.metrics.session import (
    LARGE_BYTES,
    SparkError,
    check_before_start,
    check_spark,
    heap_mb,
    job_failure,
    settings,
    spark_session,
    start_failure,
)
from covey.sim.progress import silent

GIB = 1 << 30


def executable(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, spark: None) -> None:
    """As in a process without a session; the other tests' session stays."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    for name in ("SPARK_HOME", "JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def test_the_session_of_the_program_is_used_as_it_is(spark: None) -> None:
    session = spark_session()
    assert spark_session(input_bytes=100 * GIB) is session
    assert spark_session(session.sparkContext.master) is session
    with pytest.raises(SparkError, match="master is 'local': this process already has a Spark session"):
        spark_session("local")


def test_small_input_starts_a_light_session_and_large_input_an_optimising_one() -> None:
    small, large = settings("local[2]", LARGE_BYTES - 1), settings("local[2]", LARGE_BYTES)
    assert "TieredStopAtLevel=1" in small["spark.driver.extraJavaOptions"]
    assert small["spark.sql.adaptive.enabled"] == "false"
    assert "spark.driver.extraJavaOptions" not in large
    assert "spark.sql.adaptive.enabled" not in large
    assert "spark.driver.bindAddress" not in settings("spark://head:7077", 0)


def test_the_heap_is_bounded() -> None:
    assert heap_mb(0, 64 * GIB) == 1024
    assert heap_mb(10 * GIB, 24 * GIB) == 6 * 1024
    assert heap_mb(10 * GIB, 512 * GIB) == 8 * 1024
    assert heap_mb(10 * GIB, 2 * GIB) == 1024


def test_without_java_the_error_names_the_package(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SparkError, match="Spark needs Java 17: install a Java runtime"):
        spark_session()
    monkeypatch.setenv("JAVA_HOME", "/absent")
    with pytest.raises(SparkError, match="JAVA_HOME is '/absent': expected a Java runtime"):
        spark_session()


def test_an_old_java_is_named(tmp_path: Path) -> None:
    java = executable(
        tmp_path / "bin" / "java",
        'case "$1" in -version) echo \'openjdk version "11.0.2" 2019-01-15\' >&2;;\n'
        "*) echo 'Error: LinkageError java.lang.UnsupportedClassVersionError: Main' >&2; exit 1;; esac",
    )
    start = "from covey.sim.metrics.session import spark_session; spark_session('local[1]')"
    ours = ("SPARK", "PYSPARK")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", start],
        env=environment | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert f"SparkError: Spark needs Java 17, and {java} is Java 11.0.2: install a Java" in done.stderr


@pytest.mark.parametrize("installed", ["3.5.1", "4.0.0", "5.1.0.dev1"])
def test_an_old_pyspark_is_named(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "version", lambda package: installed)
    if installed != "3.5.1":
        return extras.need("covey metrics", "pyspark")
    with pytest.raises(CoveyError) as failed:
        extras.need("covey metrics", "pyspark")
    assert str(failed.value) == (
        "covey metrics needs pyspark 4.0 or newer, and 3.5.1 is installed: `pip install 'pyspark>=4.0'`"
    )


def test_a_spark_home_of_another_version_is_named(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(SparkError, match=r"SPARK_HOME is '.*': expected an installation of Spark"):
        spark_session()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    with pytest.raises(SparkError, match=r"with Spark 3\.5\.1, and pyspark is \d.*: expected the same"):
        spark_session()


def test_a_python_of_another_version_is_named(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", executable(tmp_path / "python3.8", "echo 3.8"))
    with pytest.raises(SparkError, match=r"PYSPARK_PYTHON is '.*' with Python 3\.8: expected Python 3\.\d+"):
        spark_session()
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "absent"))
    with pytest.raises(SparkError, match=r"PYSPARK_PYTHON is '.*absent': expected an interpreter that runs"):
        spark_session()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    check_before_start("local[1]", "4.0.0")


def test_a_master_that_does_not_answer_is_named(fresh: None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SparkError, match=f"no Spark master answers there .{place}: Connection refused"):
            spark_session(f"spark://{place}")
        free.listen()
        check_before_start(f"spark://127.0.0.1:1,{place}", "4.0.0")
    with pytest.raises(SparkError, match="expected spark://HOST:PORT"):
        spark_session("spark://head")
    with pytest.raises(SparkError, match=r"no server of Spark Connect answers there .127\.0\.0\.1:1: Conn"):
        check_spark("sc://127.0.0.1:1/;user_id=me")
    with pytest.raises(SparkError, match=r"master is 'local\[0\]': expected local\[CORES\], spark://HOST:"):
        check_spark("local[0]")


def test_the_command_ends_with_status_2(
    fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("scenario: {brokers: 4, publishers: 1, subscribers: 1, duration_s: 0.1}\n")
    assert run("sweep", str(sweep), "--out", str(tmp_path / "out")) == 2
    assert capsys.readouterr().err.startswith("covey: Spark needs Java 17: ")
    assert not (tmp_path / "out").exists(), "before any run"
    page = tmp_path / "page.html"
    assert run("sim", "--brokers", "4", "--trace", str(tmp_path / "run"), "--report", str(page)) == 2
    assert capsys.readouterr().err.startswith("covey: Spark needs Java 17: ")
    assert not (tmp_path / "run").exists()
    with pytest.raises(SparkError, match="Spark needs Java 17: "):
        jayaram.run(PaperPlan("tiny", 0, str(tmp_path / "jayaram")), silent)
    assert not (tmp_path / "jayaram" / "runs").exists()


def test_a_failure_to_start_is_one_sentence() -> None:
    def failure(error: str, stderr: str) -> str:
        return start_failure("x", error, stderr, "4.0.1")

    stderr = 'Banner\nException in thread "main" org.apache.spark.SparkException: Master must be local\n\tat'
    assert failure("gateway", stderr) == "Spark does not start at master 'x': Master must be local"
    assert failure("gone\nmore", "") == "Spark does not start at master 'x': gone"
    old = failure("", "java.lang.UnsupportedClassVersionError: SparkSubmit")
    assert old.startswith("Spark needs Java 17")
    refused = failure("ERROR: All masters are unresponsive! Giving up.", "")
    assert refused.endswith("expected a cluster with Spark 4.0.1, the version of this pyspark")


def test_a_failed_job_is_one_sentence() -> None:
    raised = (
        "An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in loads\n'
        "{}\n SQLSTATE: 38000\n\tat org.apache.spark.api.python.Runner"
    )
    installed = "install Covey on the cluster, and name its interpreter there in PYSPARK_PYTHON"
    missing = job_failure(raised.format("ModuleNotFoundError: No module named 'covey'"))
    assert missing == f"ModuleNotFoundError: No module named 'covey': {installed}"
    assert job_failure(raised.format("ValueError: 3 is odd")) == "ValueError: 3 is odd"
    assert job_failure("Job aborted: the stage was lost\nand more") == "Job aborted: the stage was lost"
    absent = 'Job aborted\njava.io.IOException: Cannot run program "/opt/x/python": error=2, No such file'
    assert job_failure(absent) == f"the workers have no /opt/x/python: {installed}"
    store = 'o48.parquet.\n: org.apache.hadoop.UnsupportedFileSystemException: No FileSystem for scheme "s3"'
    assert job_failure(store).startswith("this Spark has no file system for s3://: expected its jars")
    absent = "RuntimeException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n"
    assert "no file system for org.apache.hadoop.fs.s3a.S3AFileSystem: " in job_failure(absent)


def test_a_trace_on_a_store_that_spark_lacks_is_one_sentence(spark: None) -> None:
    from covey.sim.metrics.session import explained

    with pytest.raises(SparkError, match="this Spark has no file system for s3://: "), explained():
        spark_session().read.schema("a int").parquet("s3://bucket/part.parquet")

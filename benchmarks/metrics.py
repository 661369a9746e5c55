"""`metrics`: the metrics of one run of any size, on one core and on more. A simulated run is multiplied by
copies with publishers, clients and times of their own (with equal times they would take less space than a
run's), so events, deliveries and changes multiply, and the counts of its metrics are known. Each measurement
has its own process; Spark's event log has its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from pyarrow import parquet

from benchmarks.harness import Counts, command
from covey.cli.support.output import compile_once, print_table
from covey.matcher.errors import CoveyError
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.extras import need
from covey.sim.progress import Progress, part, silent
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.finding import Traces, TracesError, find_traces
from covey.sim.trace.manifest import Attempt, Part
from covey.sim.trace.storage import Folder
from covey.sim.trace.tables import TABLES

_NAMES = ("publisher", "client")
_TIMES = ("time_ns", "ingress_ns")
_LATER_NS = 101
"""How much later the times of a copy are than those of the one before it."""
_ONCE = ("work", "history")
"""Tables about brokers and the whole run, which are not multiplied."""
_COPIES = 128
_BASE = Scenario(brokers=20, publishers=20, subscribers=1_000, duration_s=5.0, event_rate=20.0, seed=1)
_MEASURED = """
import json, resource, sys, time
from pathlib import Path
from covey.sim.metrics import spark_session, summarise
from covey.sim.trace.finding import find_traces
from covey.sim.trace.tables import TABLES
traces = find_traces([sys.argv[1]])
begun = time.perf_counter()
session = spark_session(sys.argv[2], input_bytes=sum(map(traces.bytes, TABLES)))
started = time.perf_counter()
(summary,) = summarise(traces)
ended = time.perf_counter()
def peak(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
children = Path("/proc/self/task").glob("*/children")
jvm = max(peak(int(pid)) for file in children for pid in file.read_text().split())
print(json.dumps({"summary": summary, "start_s": started - begun, "metrics_s": ended - started,
                  "jvm_bytes": jvm, "python_bytes": peak("self")}))
session.stop()
"""


@dataclass(frozen=True, slots=True)
class MetricsResult:
    """One measurement: seconds for Spark's start and for the metrics, the tasks with their total seconds of
    CPU and bytes, and the peak resident bytes of the two processes."""

    cores: int
    trace_bytes: int
    rows: int
    start_s: float
    metrics_s: float
    stages: int
    tasks: int
    task_cpu_s: float
    shuffled_bytes: int
    spilled_bytes: int
    jvm_bytes: int
    python_bytes: int


def multiplied(base: Traces, place: Path, trace_bytes: int, progress: Progress = silent) -> None:
    """Write copies of the run of `base` at `place`, a trace of slightly more than `trace_bytes`. `CoveyError`
    unless `base` is one run."""
    if len(base.runs) != 1:
        raise CoveyError(f"{len(base.runs)} runs: expected one to multiply")
    ((name, manifest),) = base.runs.items()
    folder = base.folders[name]
    attempt = Attempt(place, manifest.scenario)
    attempt.manifest.phases = manifest.phases
    attempt.manifest.event_types = manifest.event_types
    attempt.manifest.summary = manifest.summary
    whole = {
        table: _named(_whole(folder, manifest.tables[table], TABLES[table]), "run", attempt.manifest.run)
        for table in manifest.tables
    }
    together = max(1, min(_COPIES, trace_bytes // sum(base.bytes(table) for table in TABLES)))
    try:
        attempt.write({table: whole.pop(table) for table in _ONCE if table in whole})
        copies = size = 0
        while size < trace_bytes:
            numbers = range(copies, copies + together)
            several = {name: [_copy(rows, number) for number in numbers] for name, rows in whole.items()}
            attempt.write({name: pa.concat_tables(rows) for name, rows in several.items()})
            copies += together
            size = sum(part.bytes for parts in attempt.manifest.tables.values() for part in parts)
            progress(f"{copies:,} copies", min(1.0, size / trace_bytes))
    except BaseException:
        attempt.fail()  # so that the next attempt removes it
        raise
    attempt.complete()


def _is_complete(place: Path) -> bool:
    try:
        return all(manifest.complete for manifest in find_traces([place]).runs.values())
    except TracesError:
        return False


def _whole(folder: Folder, parts: Sequence[Part], schema: pa.Schema) -> pa.Table:
    files = [f"{folder.path}/{each.file}" for each in parts]
    table = parquet.read_table(files, filesystem=folder.system, schema=schema)
    return table.unify_dictionaries().combine_chunks()


def _copy(whole: pa.Table, number: int) -> pa.Table:
    """The rows with publishers, clients and times of their own; copy 0 is unchanged."""
    for column in _NAMES if number else ():
        if column in whole.schema.names:
            whole = _named(whole, column, f"{{}}~{number}")
    for column in _TIMES:
        if column in whole.schema.names:
            place = whole.schema.get_field_index(column)
            later = pc.add(whole.column(place), number * _LATER_NS)
            whole = whole.set_column(place, whole.schema.field(place), later)
    return whole


def _named(rows: pa.Table, column: str, form: str) -> pa.Table:
    """The rows with each word of a column formatted by `form`."""
    place = rows.schema.get_field_index(column)
    words = rows.column(place).chunk(0)
    named = pa.array([form.format(word) for word in words.dictionary.to_pylist()], pa.string())
    renamed = pa.DictionaryArray.from_arrays(words.indices, named)
    return rows.set_column(place, rows.schema.field(place), renamed)


@dataclass(frozen=True, slots=True)
class MetricsPlan:
    """Measure the metrics of one large run, on one core and on more.

    A simulated run is multiplied: copies have publishers and clients of their own, so every count is known.

    Example: python -m benchmarks metrics --gib 10 --folder /data/bench
    """

    gib: Annotated[float, typer.Option(min=0.001, help="Size of the run's trace on disk, in GiB.")] = 1.0
    cores: Annotated[tuple[int, ...], Counts("Numbers of cores")] = (1, 2)
    folder: Annotated[Path, typer.Option(help="Folder for the trace, which is used again.")] = Path(
        "bench-metrics"
    )


def measure_metrics(plan: MetricsPlan, progress: Progress = silent) -> list[MetricsResult]:
    """The metrics of a run, by numbers of cores. A complete trace in the folder is used again. `CoveyError`
    if a measurement fails, if its counts are not the copies', or if the folder cannot be written."""
    folder = plan.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CoveyError(f"{folder}: cannot be written: {error.strerror}") from None
    base_place, place = folder / "base", folder / f"run-{plan.gib:g}-gib"
    if not _is_complete(base_place):
        SimulatedRun(replace(_BASE, name="base")).run(base_place, progress=part(progress, 0, 0.05))
    base = find_traces([base_place])
    if not _is_complete(place):
        multiplied(base, place, round(plan.gib * 2**30), part(progress, 0.05, 0.2))
    traces = find_traces([place])
    size, rows = (sum(map(count, TABLES)) for count in (traces.bytes, traces.rows))
    copies = traces.rows("events") // base.rows("events")
    results = []
    for at, number in enumerate(plan.cores):
        progress(f"on {number} of {os.cpu_count()} cores", 0.2 + 0.8 * at / len(plan.cores))
        measured, tasks = _measured(place, number)
        published = measured.pop("summary")["published"]
        if published != copies * base.rows("events"):
            raise CoveyError(f"{place}: {published:,} events published: expected those of {copies:,} copies")
        results.append(MetricsResult(cores=number, trace_bytes=size, rows=rows, **measured, **tasks))
    return results


def _measured(place: Path, cores: int) -> tuple[dict[str, Any], dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="covey-spark-") as log:
        options = ("enabled=true", f"dir={Path(log).as_uri()}", "rolling.enabled=false", "compress=false")
        words = [f"--conf spark.eventLog.{option}" for option in options]
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED, str(place), f"local[{cores}]"],
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": f"{' '.join(words)} pyspark-shell"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise CoveyError(f"{place}: the metrics failed: {(done.stderr.splitlines() or ['?'])[-1]}")
        events = (json.loads(line) for file in Path(log).iterdir() for line in file.open())
        return json.loads(done.stdout.splitlines()[-1]), _tasks(events)


def _tasks(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    stages, tasks, cpu_ns, shuffled, spilled = set(), 0, 0, 0, 0
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            metrics = event["Task Metrics"]
            stages.add(event["Stage ID"])
            tasks += 1
            cpu_ns += metrics["Executor CPU Time"]
            shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            spilled += metrics["Disk Bytes Spilled"]
    return {
        "stages": len(stages),
        "tasks": tasks,
        "task_cpu_s": cpu_ns / 1e9,
        "shuffled_bytes": shuffled,
        "spilled_bytes": spilled,
    }


def show(plan: MetricsPlan, results: list[MetricsResult]) -> None:
    columns = ("cores", "start of Spark s", "metrics s", "stages", "tasks", "CPU of tasks s")
    sizes = ("shuffled MiB", "spilled MiB", "peak of the JVM MiB", "peak of Python MiB")
    rows = []
    for each in results:
        bytes_each = (each.shuffled_bytes, each.spilled_bytes, each.jvm_bytes, each.python_bytes)
        numbers = (each.cores, each.start_s, each.metrics_s, each.stages, each.tasks, each.task_cpu_s)
        rows.append([*numbers, *(round(size / 2**20) for size in bytes_each)])
    title = f"one run of {results[0].rows:,} rows, {results[0].trace_bytes / 2**30:.2f} GiB on disk"
    print_table(title, [*columns, *sizes], rows)


def prepare() -> None:
    need("python -m benchmarks metrics", "pyspark", "networkx")
    compile_once()


metrics = command(MetricsPlan, measure_metrics, show, prepare=prepare)

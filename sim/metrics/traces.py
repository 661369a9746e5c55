"""Traces as one table: where they lie, which can be read, and what is made sure of first.

A run is a trace, a folder of Parquet files or a single one, or a folder `run=NAME` of traces in the folder of
a sweep; its name is the trace's or the folder's. Invariants of the table: time never goes back within a run,
and a row knows whether it lies in the phase that is measured.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from covey.matcher.errors import CoveyError
from covey.sim.metrics import columns as c
from covey.sim.trace.trace import SCHEMA, part_name, parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = [name for name in SCHEMA.names if name != "values"]


class RunsError(CoveyError, ValueError):
    """There is no trace to compute metrics of; one sentence says where was looked, and for what."""


@dataclass(slots=True)
class Runs:
    """The traces found: `files` by the name of the run, and `broken`, those that cannot be read, with why."""

    files: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


def find_runs(paths: Iterable[str | Path]) -> Runs:
    """The runs at some paths: traces, folders of them or of a sweep, or URIs that only Spark can read.

    A trace that lacks a part or has one that is no complete Parquet file is broken, and the others are read;
    `RunsError` if nothing is left, or a path does not exist. Cost: one footer per file.
    """
    runs = Runs()
    named: Counter[str] = Counter()
    for path in paths:
        text = str(path)
        if re.match(r"[a-z][a-z0-9+]*://", text):
            runs.files.setdefault(_unique(Path(text).stem, named), []).append(text)
            continue
        for name, traces in _local(Path(path)):
            name = _unique(name, named)
            files = [file for trace in traces for file in _files(trace)]
            faults = filter(None, (*map(_gap, traces), *map(_fault, files)))
            fault = next(faults, None)
            if fault is None:
                runs.files[name] = [str(file.resolve()) for file in files]
            else:
                runs.broken[name] = fault
    if not runs.files:
        raise RunsError(next(iter(runs.broken.values()), "no runs: expected at least one trace"))
    return runs


def _unique(name: str, named: Counter[str]) -> str:
    named[name] += 1
    return name if named[name] == 1 else f"{name}~{named[name]}"


def _local(path: Path) -> Sequence[tuple[str, list[Path]]]:
    """The runs at a path: name and traces of each."""
    if path.is_file() or (path.is_dir() and (path.suffix == ".parquet" or parts_of(path))):
        folder = path.parent.name
        return [(folder.removeprefix("run=") if folder.startswith("run=") else path.stem, [path])]
    if not path.is_dir():
        raise RunsError(f"{path}: no such file or folder: expected a trace, or the folder of a sweep")
    if path.name.startswith("run="):
        folders = [path]
    else:
        folders = sorted(found for found in path.glob("run=*") if found.is_dir())
    found = [(folder.name.removeprefix("run="), sorted(folder.glob("*.parquet"))) for folder in folders]
    found += [] if folders else [(trace.stem, [trace]) for trace in sorted(path.glob("*.parquet"))]
    found = [(name, traces) for name, traces in found if traces]
    if not found:
        raise RunsError(f"{path}: no traces in it: expected folders or files *.parquet, or folders run=NAME")
    return found


def _files(trace: Path) -> list[Path]:
    return parts_of(trace) if trace.is_dir() else [trace]


def _gap(trace: Path) -> str | None:
    """Which part of a trace is not there, None if none is missing before the last."""
    if not trace.is_dir():
        return None
    found = {part.name for part in parts_of(trace)}
    missing = next(name for name in map(part_name, count()) if name not in found)
    return f"{trace}: {missing} is missing" if missing < max(found, default="part-00001") else None


def _fault(file: Path) -> str | None:
    """Why a file is no trace, None if it is one."""
    try:
        names = pq.read_schema(file).names
    except pa.ArrowInvalid:
        return f"{file}: it is no complete Parquet file: it was cut short, or it is something else"
    except OSError as error:
        return f"{file}: it cannot be read: {error.strerror or error}"
    missing = [name for name in _NEEDED if name not in names]
    return f"{file}: it is no trace of this version: it has no column {missing[0]}" if missing else None


def read_traces(spark: SparkSession, runs: Runs) -> DataFrame:
    """All rows of some runs, with the columns of a trace that metrics use, `run`, `setup` and `measured`.

    Where the clock was put back during a run, time stands still until it has caught up, so that no duration
    is negative; how often that happened is counted by `clock_steps`. A step forwards cannot be told from a
    pause.
    """
    local = {_key(file): name for name, files in runs.files.items() for file in files if "://" not in file}
    tables = [_read(spark, name, files) for name, files in runs.files.items() if "://" in files[0]]
    if local:
        read = spark.read.parquet(
            *(file for files in runs.files.values() for file in files if "://" not in file)
        )
        named = spark.createDataFrame(list(local.items()), f"file string, {c.RUN} string")
        # A path as Spark writes it is a URI, of which not every encoder makes the same.
        path = f.regexp_replace(f.url_decode(f.col("_metadata.file_path")), "^file:/+", "/")
        tables.append(
            read.withColumn("file", path)
            .join(f.broadcast(named), on="file", how="inner")
            .select(c.RUN, *_NEEDED)
        )
    rows = tables[0]
    for table in tables[1:]:
        rows = rows.union(table)
    return with_phases(monotonic(rows))


def _key(file: str) -> str:
    """A path as it is after `url_decode`, which takes a plus for a space."""
    return file.replace("+", " ")


def _read(spark: SparkSession, name: str, files: Sequence[str]) -> DataFrame:
    return spark.read.parquet(*files).select(f.lit(name).alias(c.RUN), *_NEEDED)


def monotonic(rows: DataFrame) -> DataFrame:
    """The rows of traces, with times that never go back: a row's time is the latest up to it. `stepped` marks
    rows at which the clock had been put back."""
    before = Window.partitionBy(c.RUN).orderBy(c.ROW)
    so_far = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return rows.select(
        *[name for name in rows.columns if name != c.TIME_NS],
        f.max(c.TIME_NS).over(so_far).alias(c.TIME_NS),
        f.coalesce(f.col(c.TIME_NS) < f.lag(c.TIME_NS).over(before), f.lit(False)).alias(c.STEPPED),
    )


def _is_phase(name: str) -> Column:
    return (f.col(c.KIND) == c.PHASE) & (f.col(c.NAME) == name)


def with_phases(rows: DataFrame) -> DataFrame:
    """The rows, of which those before `running` are `setup`, and those from there up to `resting` `measured`;
    all are measured where there are no phases."""
    bounds = rows.groupBy(c.RUN).agg(
        f.min(f.when(_is_phase(c.RUNNING), f.col(c.ROW))).alias("first"),
        f.min(f.when(_is_phase(c.RESTING), f.col(c.ROW))).alias("last"),
        f.max(f.col(c.KIND) == c.PHASE).alias("phases"),
    )
    setup = f.when(f.col("first").isNull(), f.col("phases")).otherwise(f.col(c.ROW) < f.col("first"))
    over = f.coalesce(f.col(c.ROW) >= f.col("last"), f.lit(False))
    return rows.join(f.broadcast(bounds), on=c.RUN, how="inner").select(
        *rows.columns, setup.alias(c.SETUP), (~setup & ~over).alias(c.MEASURED)
    )

"""Finds traces and reads them as one table.

A run is a trace (a folder of Parquet files, or a single file) or a folder `run=NAME` of traces in the folder
of a sweep; its name is that of the trace or the folder. Invariants of the table: time never decreases within
a run, and every row has its phase (`setup`, `measured`).
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
from covey.sim.trace.first_parts import SCHEMA, part_name, parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = [name for name in SCHEMA.names if name != "values"]


class RunsError(CoveyError, ValueError):
    """No trace was found; the message names the path and what was expected there."""


@dataclass(slots=True)
class Runs:
    """Traces: `files` by run name, and `broken`, the reason per run that cannot be read."""

    files: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


def find_runs(paths: Iterable[str | Path]) -> Runs:
    """The runs at `paths`: traces, folders of traces, folders of sweeps, or URIs that only Spark can read.

    A trace with a missing part or an incomplete Parquet file is broken; the others are read. Raises
    `RunsError` if none is readable or a path does not exist. Cost: one footer per file.
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
    """Name and traces of each run at a path."""
    if path.is_file() or (path.is_dir() and (path.suffix == ".parquet" or parts_of(path))):
        folder = path.parent.name
        return [(folder.removeprefix("run=") if folder.startswith("run=") else path.stem, [path])]
    if not path.is_dir():
        raise RunsError(f"{path}: no such file or folder: expected a trace, or the folder of a sweep")
    if path.name.startswith("run="):
        folders = [path]
    else:
        folders = sorted(folder for folder in path.glob("run=*") if folder.is_dir())
    runs = [(folder.name.removeprefix("run="), sorted(folder.glob("*.parquet"))) for folder in folders]
    runs += [] if folders else [(trace.stem, [trace]) for trace in sorted(path.glob("*.parquet"))]
    runs = [(name, traces) for name, traces in runs if traces]
    if not runs:
        raise RunsError(f"{path}: no traces: expected folders or files *.parquet, or folders run=NAME")
    return runs


def _files(trace: Path) -> list[Path]:
    return parts_of(trace) if trace.is_dir() else [trace]


def _gap(trace: Path) -> str | None:
    """The first missing part of a trace, None if there is no gap."""
    if not trace.is_dir():
        return None
    present = {part.name for part in parts_of(trace)}
    missing = next(name for name in map(part_name, count()) if name not in present)
    return f"{trace}: {missing} is missing" if missing < max(present, default="part-00001") else None


def _fault(file: Path) -> str | None:
    """The reason why a file is not a trace, None if it is one."""
    try:
        names = pq.read_schema(file).names
    except pa.ArrowInvalid:
        return f"{file}: not a complete Parquet file"
    except OSError as error:
        return f"{file}: cannot be read: {error.strerror or error}"
    missing = [name for name in _NEEDED if name not in names]
    return f"{file}: not a trace of this version: no column {missing[0]}" if missing else None


def read_traces(spark: SparkSession, runs: Runs) -> DataFrame:
    """All rows of `runs`: the trace columns that metrics use, and `run`, `setup` and `measured`.

    If the clock was set back during a run, time stands still until the clock has caught up, so that no
    duration is negative; `clock_steps` counts this. A step forwards is indistinguishable from a pause.
    """
    local = {_key(file): name for name, files in runs.files.items() for file in files if "://" not in file}
    tables = [_read(spark, name, files) for name, files in runs.files.items() if "://" in files[0]]
    if local:
        read = spark.read.parquet(
            *(file for files in runs.files.values() for file in files if "://" not in file)
        )
        named = spark.createDataFrame(list(local.items()), f"file string, {c.RUN} string")
        # Spark writes paths as URIs, and encoders differ.
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
    """A path as `url_decode` returns it: with a space for each plus."""
    return file.replace("+", " ")


def _read(spark: SparkSession, name: str, files: Sequence[str]) -> DataFrame:
    return spark.read.parquet(*files).select(f.lit(name).alias(c.RUN), *_NEEDED)


def monotonic(rows: DataFrame) -> DataFrame:
    """The rows with times that never decrease: a row's time is the maximum up to it. `stepped` marks rows at
    which the clock was set back."""
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
    """The rows with `setup` (before `running`) and `measured` (from `running` up to `resting`); a run without
    phases is measured as a whole."""
    bounds = rows.groupBy(c.RUN).agg(
        f.min(f.when(_is_phase(c.RUNNING), f.col(c.ROW))).alias("first"),
        f.min(f.when(_is_phase(c.RESTING), f.col(c.ROW))).alias("last"),
        f.max(f.col(c.KIND) == c.PHASE).alias("phases"),
    )
    setup = f.when(f.col("first").isNull(), f.col("phases")).otherwise(f.col(c.ROW) < f.col("first"))
    ended = f.coalesce(f.col(c.ROW) >= f.col("last"), f.lit(False))
    return rows.join(f.broadcast(bounds), on=c.RUN, how="inner").select(
        *rows.columns, setup.alias(c.SETUP), (~setup & ~ended).alias(c.MEASURED)
    )

"""`match` beside joins of Spark: quotes of bokeh against filters with a range of prices and of volumes.
"ranges" name no firm, so Spark compares every quote with every filter, a cross join; "firm and ranges" have
an equality, so Spark does a hash join, with its optimising compiler where it likes. The first of two runs
includes one-time work: shipped and loaded filters, or compiled code. Invariant: every system finds the same
number of pairs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from benchmarks.harness import Counts, command, show_fields
from covey.cli.support.options import Master, Seed
from covey.cli.support.output import compile_once
from covey.matcher.errors import CoveyError
from covey.sim.experiments.processes import cpu_ns
from covey.sim.extras import need
from covey.sim.metrics.session import LARGE_BYTES, spark_session
from covey.sim.metrics.spark_jobs import cancel_jobs, interruptible
from covey.sim.progress import Progress, silent
from covey.sim.scenario.recorded import load_quotes
from covey.spark.matching import match

_RANGES = "price between $low and $high and volume between $least and $most"
_FORMS = {"ranges": (_RANGES, "cross join"), "firm and ranges": (f"firm == $of and {_RANGES}", "hash join")}
_WIDTH = 0.001
"""The width of a range of prices, relative to its price; a range of volumes contains half of all quotes."""


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """Measure covey.spark.match over quotes beside Spark's cross join and hash join.

    Both find the same pairs of a quote and a filter. The first run includes shipping and loading the filters.

    Example: python -m benchmarks spark --filters 1000 --events 100000 --master 'local[1]'
    """

    filters: Annotated[tuple[int, ...], Counts("Numbers of filters")] = (1_000, 100_000, 1_000_000)
    events: Annotated[int, typer.Option(min=1, help="Quotes, repeated from 12,154.")] = 200_000
    join_filters: Annotated[
        int, typer.Option(min=0, help="Measure joins of Spark up to this number of filters.")
    ] = 1_000
    master: Master = None
    seed: Seed = 0


@dataclass(frozen=True)
class SparkResult:
    filters: int
    form: str
    system: str
    events: Annotated[int, ""]
    pairs: int
    first_s: Annotated[float, "first run s"]
    again_s: Annotated[float, "second run s"]
    cpu_s: Annotated[float, "CPU s"]
    """Of the second run, over all processes of a local master; the figure least affected by other load."""
    events_per_s: Annotated[float, "events/s"]


def measure_spark(plan: SparkPlan, progress: Progress = silent) -> list[SparkResult]:
    """Both forms, all numbers of filters. `CoveyError` if systems differ."""
    session = spark_session(plan.master, input_bytes=LARGE_BYTES)
    with interruptible(partial(cancel_jobs, session)):
        return _measure_all(session, plan, progress)


def _measure_all(session: SparkSession, plan: SparkPlan, progress: Progress) -> list[SparkResult]:
    quotes = load_quotes().select(["firm", "price", "volume"])
    events = _events(session, quotes, plan.events)
    results = []
    for number, count in enumerate(plan.filters):
        values = _values(quotes, count, plan.seed)
        for form, (text, join) in _FORMS.items():
            progress(f"{count:,} filters, {form}", number / len(plan.filters))
            needed = values if "$of" in text else values.drop_columns(["of"])
            runs: dict[str, Callable[[], int]] = {"match": partial(_matched, events, text, needed)}
            if count <= plan.join_filters:
                runs[join] = partial(_joined, session, events, needed)
            mine = [_measured(form, system, count, plan.events, run) for system, run in runs.items()]
            if len({result.pairs for result in mine}) > 1:
                found = ", ".join(f"{result.system}: {result.pairs:,}" for result in mine)
                raise CoveyError(f"{count:,} filters, {form}: pairs differ: {found}")
            results += mine
    return results


def _events(session: SparkSession, quotes: pa.RecordBatch, count: int) -> DataFrame:
    rows = np.arange(count) % quotes.num_rows
    frame = session.createDataFrame(pa.Table.from_batches([quotes]).take(pa.array(rows)))
    frame = frame.repartition(session.sparkContext.defaultParallelism).cache()
    frame.count()
    return frame


def _values(quotes: pa.RecordBatch, count: int, seed: int) -> pa.Table:
    """The values of filters, each around a quote."""
    random = np.random.default_rng(seed)
    chosen = quotes.take(pa.array(random.integers(0, quotes.num_rows, count)))
    price = chosen.column("price").to_numpy()
    volumes = np.sort(quotes.column("volume").to_numpy())
    rank = np.searchsorted(volumes, chosen.column("volume").to_numpy())
    quarter = len(volumes) // 4
    return pa.table(
        {
            "id": np.arange(count),
            "of": chosen.column("firm"),
            "low": price * (1 - _WIDTH / 2),
            "high": price * (1 + _WIDTH / 2),
            "least": volumes[np.maximum(rank - quarter, 0)],
            "most": volumes[np.minimum(rank + quarter, len(volumes) - 1)],
        }
    )


def _matched(events: DataFrame, text: str, values: pa.Table) -> int:
    (found,) = match(events, text, values=values).selectExpr("sum(size(filters))").collect()
    return int(found[0])


def _joined(session: SparkSession, events: DataFrame, values: pa.Table) -> int:
    filters = broadcast(session.createDataFrame(values))
    holds = "price between low and high and volume between least and most"
    if "of" in values.column_names:
        holds = f"firm = of and {holds}"
    return events.crossJoin(filters).where(holds).count()


def _measured(form: str, system: str, filters: int, events: int, run: Callable[[], int]) -> SparkResult:
    start = time.perf_counter()
    run()
    first_s = time.perf_counter() - start
    start, start_ns = time.perf_counter(), _cpu_ns()
    pairs = run()
    again_s = time.perf_counter() - start
    cpu_s = (_cpu_ns() - start_ns) / 1e9
    return SparkResult(filters, form, system, events, pairs, first_s, again_s, cpu_s, events / again_s)


def _cpu_ns() -> int:
    """The processor time of this process and all its descendants; 0 without /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    total = 0
    for process in parents:
        ancestor = process
        while ancestor not in (os.getpid(), 0):
            ancestor = parents.get(ancestor, 0)
        if ancestor:
            with suppress(OSError, CoveyError):
                total += cpu_ns(process)
    return total


def show(plan: SparkPlan, results: list[SparkResult]) -> None:
    show_fields(f"{plan.events:,} quotes" + (f" at {plan.master}" if plan.master else ""), results)


def prepare() -> None:
    need("python -m benchmarks spark", "pyspark", "bokeh_sampledata.stocks")
    compile_once()


spark = command(SparkPlan, measure_spark, show, prepare=prepare)

"""All metrics of runs, one plain dictionary per run, and results as Parquet folders:

- latencies: run, publisher, sequence, client, subscription, published_ns, latency_ns
- delays: run, client, subscription, version, changed_ns, delay_ns, publisher, sequence (of the answer)
- missed: run, publisher, sequence, client, subscription
- runs: a row per run, its metrics by their names in `flat`
- brokers: run, broker, events, control_messages, busy_share
- control: run, kind, messages

A call runs two queries, however many runs. If it fails or is interrupted while writing, it removes all of its
folders.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c
from covey.sim.metrics.across import flat
from covey.sim.metrics.filters import KnownFilters, known_filters
from covey.sim.metrics.numbers import (
    busy_numbers,
    control_numbers,
    delays,
    distribution,
    first_deliveries,
    latencies,
    messages_by_link,
    missed,
    named,
    tally,
    together,
    total,
)
from covey.sim.metrics.session import explained, sized, spark_session
from covey.sim.metrics.spark_jobs import cancel_jobs, interruptible, shown, watched
from covey.sim.progress import Progress, part, silent
from covey.sim.trace.finding import Traces, find_traces
from covey.sim.trace.storage import Folder
from covey.sim.trace.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from covey.sim.trace.manifest import Manifest

_GLOB = re.compile(r"[\\{}\[\]*?]")
_TYPES = {pa.int64(): "bigint", pa.bool_(): "boolean", pa.string(): "string"}


def read_table(session: SparkSession, traces: Traces, name: str) -> DataFrame:
    """The files that the manifests of all runs list, and no others."""
    schema, files = spark_schema(TABLES[name]), traces.files(name)
    if files:
        return session.read.schema(schema).parquet(*map(literal, files))
    return session.createDataFrame([], schema)


def literal(path: str) -> str:
    """A path for `DataFrameReader`, with glob characters escaped."""
    return _GLOB.sub(r"\\\g<0>", path)


def spark_schema(schema: pa.Schema) -> str:
    """The schema in Spark's form; dictionaries of words are strings."""
    types = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in zip(schema.names, types, strict=True))


_BROKERS = pa.schema(
    [
        (c.RUN, pa.string()),
        (c.BROKER, pa.string()),
        (c.EVENTS, pa.int64()),
        ("control_messages", pa.int64()),
        ("busy_share", pa.float64()),
    ]
)
_CONTROL_SCHEMA = pa.schema([(c.RUN, pa.string()), (c.KIND, pa.string()), (c.MESSAGES, pa.int64())])
_TABLES = ("latencies", "delays", "missed", "runs", "brokers", "control")


@contextmanager
def whole(out: str | None) -> Iterator[None]:
    """If the block fails, removes the tables that it writes to the folder, and the folder if it is new.
    Tables that only Spark can reach stay."""
    places: list[Folder] = []
    with suppress(OSError, pa.ArrowException):
        folder = None if out is None else Folder.at(out)
        if folder is not None:
            places = [folder / name for name in _TABLES] if folder.exists else [folder]
    try:
        yield
    except BaseException:
        for place in places:
            with suppress(OSError, pa.ArrowException):
                place.remove()
        raise


def read_or_write(
    session: SparkSession, out: str | None, tables: Mapping[str, DataFrame]
) -> Mapping[str, DataFrame]:
    """The tables; with `out` written there and read back, so that each is computed once."""
    if out is None:
        return tables
    written = {}
    for name, table in tables.items():
        place = f"{out}/{name}"
        table.write.mode("overwrite").parquet(place)
        written[name] = session.read.schema(table.schema).parquet(literal(place))
    return written


def write_summaries(session: SparkSession, out: str, summaries: Sequence[Mapping[str, Any]]) -> None:
    brokers = [
        {c.RUN: summary["run"], c.BROKER: name} | load
        for summary in summaries
        for name, load in summary["brokers"].items()
    ]
    control = [
        {c.RUN: summary["run"], c.KIND: kind, c.MESSAGES: messages}
        for summary in summaries
        for kind, messages in summary["control_by_kind"].items()
    ]
    tables = {
        "runs": pa.Table.from_pylist([{"run": summary["run"]} | flat(summary) for summary in summaries]),
        "brokers": pa.Table.from_pylist(brokers, _BROKERS),
        "control": pa.Table.from_pylist(control, _CONTROL_SCHEMA),
    }
    for name, table in tables.items():
        unknown = [field.name for field in table.schema if pa.types.is_null(field.type)]
        known = table.drop_columns(unknown)  # such as `missed` where no run is complete
        session.createDataFrame(known).coalesce(1).write.mode("overwrite").parquet(f"{out}/{name}")


_COUNTS = (
    "published",
    "delivered",
    "changes",
    "subscribers",
    "unmeasured",
    "dropped",
    "spurious",
    "expected",
    "excused",
    "duplicate",
)
_CONTROL = ("control_messages", "control_between_brokers", "control_busiest_link")
_NS_PER_S, _NS_PER_MS = 1e9, 1e6
_FILTERS_SHARE = 0.1
_ROW_BYTES = 32
"""Size of a row in Spark; compressed it may take 5."""

Numbers = Mapping[str, int]


def summarise(
    paths: Iterable[str | Path] | Traces,
    master: str | None = None,
    *,
    spark: SparkSession | None = None,
    exact: bool = False,
    out: str | Path | None = None,
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """All metrics of the runs at `paths` (see `find_traces`), one dictionary per run, in their order.

    Keys: run; scenario (its fields); choices (of a sweep: their names by dimension); complete; clock_steps;
    duration_s; published, delivered, changes, subscribers, unmeasured, dropped; throughput_events_per_s,
    throughput_per_subscriber; delay_ms and latency_ms with count, mean, p50, p99, max; spurious,
    spurious_per_s; expected, excused, missed, lost, duplicate; control_messages, control_per_change,
    control_between_brokers, control_busiest_link, control_by_kind; brokers, by name: events,
    control_messages, busy_share; busiest_share. A value that a trace cannot give is None: `missed` of an
    incomplete run, a percentile of no values. `docs/metrics.md` defines each.

    The session is `spark`, else that of this process, else one started at `master`. Percentiles are
    approximate unless `exact`. `out` is a folder, or a URI that Spark can write, for the results as tables.
    Raises `TracesError` if there is no readable trace, `SparkError` if Spark does not start.
    """
    traces = paths if isinstance(paths, Traces) else find_traces(paths)
    progress("starting Spark", 0.0)
    session = spark or spark_session(master, input_bytes=_ROW_BYTES * sum(map(traces.rows, TABLES)))
    with interruptible(partial(cancel_jobs, session)), sized(session, traces), explained():
        versions = read_table(session, traces, "versions")
        with watched(session, shown(part(progress, 0, _FILTERS_SHARE), "filters")):
            filters = known_filters(traces, versions)
        place = None if out is None else str(out)
        with whole(place):
            by_run = _numbers(session, traces, filters, exact, place, progress)
            summaries = [
                _summary(name, manifest, _Run(by_run.get(name, []))) for name, manifest in traces.runs.items()
            ]
            if place is not None:
                write_summaries(session, place, summaries)
    progress("metrics", 1.0)
    return summaries


def _numbers(
    session: SparkSession,
    traces: Traces,
    filters: KnownFilters,
    exact: bool,
    out: str | None,
    progress: Progress,
) -> dict[str, list[Any]]:
    tables = {name: read_table(session, traces, name) for name in TABLES}
    tables["versions"] = filters.numbered(session, tables["versions"])
    deliveries, events = tables["deliveries"], tables["events"]
    first = first_deliveries(deliveries)
    with watched(session, shown(part(progress, _FILTERS_SHARE, 1), "metrics")):
        results = read_or_write(
            session,
            out,
            {
                "latencies": latencies(first, events),
                "delays": delays(tables["versions"], deliveries, events, filters.evaluations),
                "missed": missed(tables["obligations"], first),
            },
        )
        rows = together(
            [
                *_tallies(tables),
                distribution(results["latencies"], c.LATENCY_NS, "latency", exact),
                distribution(results["delays"], c.DELAY_NS, "delay", exact),
                _count(results["missed"], "missed"),
                _count(first, "duplicate", f.sum(f.col(c.TIMES) - 1)),
                control_numbers(messages_by_link(tables["messages"])),
                busy_numbers(tables["work"]),
            ]
        ).collect()
    by_run = defaultdict(list)
    for run, metric, key, value in rows:
        by_run[run].append((metric, key, value))
    return by_run


def _tallies(tables: Mapping[str, DataFrame]) -> list[DataFrame]:
    changed, excused, rows = f.col(c.VERSION) > 0, f.col(c.EXCUSED), f.count(f.lit(1))
    after = changed & c.after_setup()
    of_table = {
        "events": {"published": rows},
        "deliveries": {"delivered": rows, "delivered_measured": f.count_if(c.measured())},
        "versions": {
            "changes": f.count_if(changed),
            "changes_after_setup": f.count_if(after),
            "unmeasured": f.count_if(after & f.col(c.NUMBER).isNull()),
        },
        "spurious": {
            "spurious": f.sum(c.EVENTS),
            "spurious_measured": f.sum(f.when(c.measured(), f.col(c.EVENTS))),
        },
        "obligations": {"excused": f.count_if(excused), "expected": f.count_if(~excused)},
        "history": {"dropped": f.sum(f.when(f.col(c.WHAT) == "dropped", f.col(c.NUMBER)))},
        "messages": {},
    }
    subscribers = tables["versions"].select(c.RUN, c.CLIENT).distinct()
    tallies = [tally(tables[name], **numbers) for name, numbers in of_table.items()]
    return [*tallies, _count(subscribers, "subscribers")]


def _count(table: DataFrame, metric: str, number: Column | None = None) -> DataFrame:
    number = f.count(f.lit(1)) if number is None else number
    return named(table.groupBy(c.RUN).agg(number.alias(c.VALUE)), {metric: (None, c.VALUE)})


class _Run:
    def __init__(self, rows: list[tuple[str, str | None, int]]) -> None:
        self.numbers: dict[str, int] = {}
        self.keyed: dict[str, dict[str, int]] = defaultdict(dict)
        for metric, key, value in rows:
            if key is not None:
                self.keyed[metric][key] = value
            elif metric == "first_ns":
                self.numbers[metric] = min(value, self.numbers.get(metric, value))
            else:
                self.numbers[metric] = max(value, self.numbers.get(metric, value))

    def duration_ns(self, phases: Mapping[str, int]) -> int | None:
        """From `running` to `resting` or the last row; without phases from the first row."""
        begin = phases.get(c.RUNNING, self.numbers.get("first_ns"))
        end = phases.get(c.RESTING, self.numbers.get("last_ns", begin))
        return None if begin is None or end is None else end - begin


def _summary(name: str, manifest: Manifest, run: _Run) -> dict[str, Any]:
    numbers = run.numbers
    duration_ns = run.duration_ns(manifest.phases)
    duration_s = None if duration_ns is None else duration_ns / _NS_PER_S
    counts = {each: numbers.get(each, 0) for each in (*_COUNTS, *_CONTROL)}
    rate = _ratio(numbers.get("delivered_measured", 0), duration_s)
    brokers = _brokers(run, duration_ns)
    changed = numbers.get("changes_after_setup")
    return {
        "run": name,
        "scenario": dict(manifest.scenario),
        "choices": {dimension: dict(choice) for dimension, choice in manifest.choices.items()},
        "complete": manifest.complete,
        "clock_steps": manifest.clock_steps,
        "duration_s": duration_s,
        **{each: counts[each] for each in ("published", "delivered", "changes", "subscribers")},
        **{each: counts[each] for each in ("unmeasured", "dropped")},
        "throughput_events_per_s": rate,
        "throughput_per_subscriber": _ratio(rate, counts["subscribers"]),
        "delay_ms": _distribution(numbers, "delay"),
        "latency_ms": _distribution(numbers, "latency"),
        "spurious": counts["spurious"],
        "spurious_per_s": _ratio(numbers.get("spurious_measured", 0), duration_s),
        "expected": counts["expected"],
        "excused": counts["excused"],
        "missed": numbers.get("missed", 0) if manifest.complete else None,
        "lost": None if manifest.summary is None else manifest.summary.get("lost"),
        "duplicate": counts["duplicate"],
        **{each: counts[each] for each in _CONTROL},
        "control_per_change": _ratio(counts["control_messages"], changed),
        "control_by_kind": dict(sorted(run.keyed["control_by_kind"].items())),
        "brokers": brokers,
        "busiest_share": max((each["busy_share"] or 0.0 for each in brokers.values()), default=None),
    }


def _brokers(run: _Run, duration_ns: int | None) -> dict[str, dict[str, Any]]:
    keyed = run.keyed
    names = sorted({*keyed["broker"], *keyed["broker_events"], *keyed["broker_messages"]})
    return {
        name.removeprefix(c.BROKERS): {
            "events": keyed["broker_events"].get(name, 0),
            "control_messages": keyed["broker_messages"].get(name, 0),
            "busy_share": _ratio(keyed["broker_busy_ns"].get(name), duration_ns),
        }
        for name in names
    }


def _distribution(numbers: Numbers, prefix: str) -> dict[str, Any]:
    count = numbers.get(f"{prefix}_count", 0)
    if not count:
        return {"count": 0, "mean": None, "p50": None, "p99": None, "max": None}
    rest = {name: numbers[f"{prefix}_{name}"] / _NS_PER_MS for name in ("p50", "p99", "max")}
    return {"count": count, "mean": total(numbers, prefix) / count / _NS_PER_MS, **rest}


def _ratio(amount: float | None, of: float | None) -> float | None:
    return None if amount is None or not of else amount / of

"""All metrics of runs, one plain dictionary per run: the input of tables, plots and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from covey.sim.metrics import columns as c
from covey.sim.metrics.brokers import broker_loads
from covey.sim.metrics.control import control_by_kind, control_by_place
from covey.sim.metrics.course import counts, courses
from covey.sim.metrics.delays import delays
from covey.sim.metrics.deliveries import latencies, verdicts
from covey.sim.metrics.distribution import distribution
from covey.sim.metrics.session import spark_session
from covey.sim.metrics.traces import Runs, find_runs, read_traces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_COUNTS = ("published", "delivered", "changes", "spurious", "dropped", "subscribers", "expected", "duplicate")
_CONTROL = ("control_messages", "control_between_brokers", "control_busiest_link")
_NS_PER_S = 1e9


def summarise(paths: Iterable[str | Path] | Runs, master: str | None = None) -> list[dict[str, Any]]:
    """All metrics of the runs at `paths` (see `find_runs`), one dictionary per run, in their order.

    Keys: run; scenario (its fields); complete; clock_steps; duration_s; published, delivered, changes,
    subscribers, dropped; throughput_events_per_s, throughput_per_subscriber; delay_ms and latency_ms with
    count, mean, p50, p99, max; spurious, spurious_per_s; expected, missed, duplicate; control_messages,
    control_per_change, control_between_brokers, control_busiest_link, control_by_kind; brokers, by name:
    events, control_messages, busy_share; busiest_share. A value that a trace cannot give is None: `missed` of
    an incomplete run, a percentile of no values. `docs/metrics.md` defines each.

    Raises `RunsError` if there is no readable trace, `SparkError` if Spark does not start.
    """
    runs = paths if isinstance(paths, Runs) else find_runs(paths)
    rows = read_traces(spark_session(master), runs).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        by_run = {row[c.RUN]: row for row in per_run(rows).collect()}
        kinds: dict[str, dict[str, int]] = {}
        for row in control_by_kind(rows).orderBy(c.RUN, c.MESSAGE_KIND).collect():
            kinds.setdefault(row[c.RUN], {})[row[c.MESSAGE_KIND]] = row[c.MESSAGES]
        brokers: dict[str, list[Row]] = {}
        for row in broker_loads(rows).orderBy(c.RUN, c.BROKER).collect():
            brokers.setdefault(row[c.RUN], []).append(row)
    finally:
        rows.unpersist()
    return [
        _summary(
            name, by_run[name].asDict() if name in by_run else {}, kinds.get(name, {}), brokers.get(name, [])
        )
        for name in runs.files
    ]


def per_run(rows: DataFrame) -> DataFrame:
    """One row per run: all metrics that are single numbers."""
    table = courses(rows)
    for part in (
        counts(rows),
        verdicts(rows),
        control_by_place(rows),
        distribution(delays(rows), c.DELAY_NS, "delay"),
        distribution(latencies(rows), c.LATENCY_NS, "latency"),
    ):
        table = table.join(part, on=c.RUN, how="left")
    return table


def _summary(run: str, row: dict[str, Any], kinds: dict[str, int], brokers: list[Row]) -> dict[str, Any]:
    """The dictionary of one run; `row` is empty for a trace without rows."""
    duration_ns = row.get(c.DURATION_NS)
    duration_s = None if duration_ns is None else duration_ns / _NS_PER_S
    numbers = {name: row.get(name) or 0 for name in (*_COUNTS, *_CONTROL)}
    complete = bool(row.get(c.COMPLETE))
    rate = _ratio(row.get("delivered_measured"), duration_s)
    loads = {
        each[c.BROKER].removeprefix(c.BROKERS): {
            "events": each[c.EVENTS],
            "control_messages": each[c.MESSAGES],
            "busy_share": _ratio(each[c.BUSY_NS], duration_ns),
        }
        for each in brokers
    }
    return {
        "run": run,
        "scenario": json.loads(row.get(c.SCENARIO) or "{}"),
        "complete": complete,
        "clock_steps": row.get(c.CLOCK_STEPS) or 0,
        "duration_s": duration_s,
        **{name: numbers[name] for name in ("published", "delivered", "changes", "subscribers", "dropped")},
        "throughput_events_per_s": rate,
        "throughput_per_subscriber": _ratio(rate, numbers["subscribers"]),
        "delay_ms": _distribution(row, "delay"),
        "latency_ms": _distribution(row, "latency"),
        "spurious": numbers["spurious"],
        "spurious_per_s": _ratio(row.get("spurious_measured"), duration_s),
        "expected": numbers["expected"],
        "missed": (row.get("missed") or 0) if complete else None,
        "duplicate": numbers["duplicate"],
        **{name: numbers[name] for name in _CONTROL},
        "control_per_change": _ratio(numbers["control_messages"], numbers["changes"]),
        "control_by_kind": kinds,
        "brokers": loads,
        "busiest_share": max((each["busy_share"] or 0.0 for each in loads.values()), default=None),
    }


def _distribution(row: dict[str, Any], prefix: str) -> dict[str, Any]:
    statistics = {name: row.get(f"{prefix}_{name}") for name in ("mean", "p50", "p99", "max")}
    return {"count": row.get(f"{prefix}_count") or 0, **statistics}


def _ratio(amount: float | None, of: float | None) -> float | None:
    return None if amount is None or not of else amount / of

"""The metrics of a trace by pandas and plain Python, from the definitions in docs/metrics.md.

It shares nothing with `covey.sim.metrics`. Which event answers which change is derived from published events,
filters and values in the trace, not from its rows `answered`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from covey.matcher import EventType, parse


def metrics_of(path: Path, types: Mapping[str, EventType]) -> dict[str, Any]:
    """The summary of a complete run, without its name."""
    trace = pd.read_parquet(path).sort_values("row")
    trace["time_ns"] = trace["time_ns"].cummax()
    kinds = dict(iter(trace.groupby("kind", observed=True)))

    def rows(kind: str) -> pd.DataFrame:
        return kinds.get(kind, trace.iloc[:0])

    phases = rows("phase").drop_duplicates("name").set_index("name")
    first, last = phases.loc["running", "row"], phases.loc["resting", "row"]
    duration_ns = int(phases.loc["resting", "time_ns"] - phases.loc["running", "time_ns"])
    duration_s = duration_ns / 1e9
    delivered, changes = rows("delivered"), len(rows("updated"))
    key = ["node", "subscription", "publisher", "sequence"]
    received, expected = _keys(delivered, key), _keys(rows("expected"), key) - _keys(rows("excused"), key)
    published = rows("published").set_index(["publisher", "sequence"])["time_ns"].to_dict()
    once = delivered.drop_duplicates(key)
    latencies = [
        time - published[event]
        for time, event in zip(
            once["time_ns"], zip(once["publisher"], once["sequence"], strict=True), strict=True
        )
    ]
    control = rows("control")
    control = control[control["row"] >= first]
    brokers = control["node"].str.startswith("broker/") & control["peer"].str.startswith("broker/")
    by_link = control[brokers].groupby(["peer", "node"], observed=True).size()
    in_phase = trace[(trace["row"] >= first) & (trace["row"] < last)]
    subscribers = rows("subscribed")["node"].nunique()
    rate = int((in_phase["kind"] == "delivered").sum()) / duration_s
    loads = _loads(trace, in_phase, last, duration_ns)
    return {
        "scenario": json.loads(rows("begun")["text"].iloc[0]),
        "complete": len(rows("ended")) == 1,
        "clock_steps": 0,
        "duration_s": duration_s,
        "published": len(rows("published")),
        "delivered": len(delivered),
        "changes": changes,
        "subscribers": subscribers,
        "dropped": int(rows("dropped")["count"].sum()),
        "throughput_events_per_s": rate,
        "throughput_per_subscriber": rate / subscribers if subscribers else None,
        "delay_ms": _distribution(_delays(trace, types)),
        "latency_ms": _distribution(latencies),
        "spurious": int(rows("spurious")["count"].sum()),
        "spurious_per_s": int(in_phase[in_phase["kind"] == "spurious"]["count"].sum()) / duration_s,
        "expected": len(expected),
        "missed": len(expected - received),
        "duplicate": len(delivered) - len(once),
        "control_messages": len(control),
        "control_between_brokers": int(brokers.sum()),
        "control_busiest_link": int(by_link.max()) if len(by_link) else 0,
        "control_per_change": len(control) / changes if changes else None,
        "control_by_kind": {str(k): int(v) for k, v in control["name"].value_counts().items() if v},
        "brokers": loads,
        "busiest_share": max(load["busy_share"] for load in loads.values()),
    }


def _keys(rows: pd.DataFrame, key: list[str]) -> set[tuple[Any, ...]]:
    return set(rows[key].itertuples(index=False, name=None))


def _delays(trace: pd.DataFrame, types: Mapping[str, EventType]) -> list[int]:
    """Per change: the time to the first delivery that matches its values and not the previous ones."""
    events: dict[tuple[str, int], dict[str, Any]] = {}
    filters: dict[tuple[str, int], Any] = {}
    values: dict[tuple[str, int], list[dict[str, Any]]] = {}
    waiting: dict[tuple[str, int], dict[int, int]] = {}
    delays_ns = []
    for row in trace.itertuples():
        if row.kind == "published":
            events[row.publisher, row.sequence] = json.loads(row.values)
        elif row.kind in ("subscribed", "updated"):
            key = row.node, row.subscription
            if row.kind == "subscribed":
                filters[key], values[key], waiting[key] = parse(row.text, types[row.name]), [], {}
            else:
                waiting[key][len(values[key])] = row.time_ns
            values[key].append(json.loads(row.values))
        elif row.kind == "delivered":
            key = row.node, row.subscription
            event = events[row.publisher, row.sequence]
            for number, time_ns in list(waiting[key].items()):
                old, new = values[key][number - 1], values[key][number]
                if filters[key].matches(event, new) and not filters[key].matches(event, old):
                    delays_ns.append(row.time_ns - time_ns)
                    del waiting[key][number]
    return delays_ns


def _distribution(durations_ns: list[int]) -> dict[str, Any]:
    ordered = sorted(durations_ns)
    if not ordered:
        return {"count": 0, "mean": None, "p50": None, "p99": None, "max": None}

    def at(share: Fraction) -> float:
        return ordered[math.ceil(share * len(ordered)) - 1] / 1e6

    return {
        "count": len(ordered),
        "mean": sum(ordered) / len(ordered) / 1e6,
        "p50": at(Fraction(1, 2)),
        "p99": at(Fraction(99, 100)),
        "max": ordered[-1] / 1e6,
    }


def _loads(trace: pd.DataFrame, in_phase: pd.DataFrame, last: int, duration_ns: int) -> dict[str, Any]:
    worked = trace[trace["kind"] == "worked"]
    loads = {}
    for broker in sorted(worked["node"].unique()):
        mine = worked[worked["node"] == broker]
        before = mine[mine["row"].isin(in_phase["row"])]["count"].iloc[0]
        after = mine[mine["row"] > last]["count"].iloc[0]
        arrived = in_phase[in_phase["node"] == broker]
        loads[broker.removeprefix("broker/")] = {
            "events": int(arrived[arrived["kind"] == "carried"]["count"].sum()),
            "control_messages": int((arrived["kind"] == "control").sum()),
            "busy_share": int(after - before) / duration_ns,
        }
    return loads

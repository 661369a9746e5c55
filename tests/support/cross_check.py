"""The metrics of a trace by pandas and plain Python, from the definitions in docs/metrics.md, independent of
`covey.sim.metrics`. `Filter.matches` decides which event answers which change."""

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from covey.matcher import EventType, parse
from covey.overlay.core.moving.motion import Motion, still
from covey.sim.trace.tables import TABLES

_OPEN = 256
_SETUP = ("advertising", "subscribing", "warming up")
_DELIVERY = ["client", "subscription", "publisher", "sequence"]
Tables = Mapping[str, pd.DataFrame]


def read(run: Path) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    manifest = json.loads((run / "manifest.json").read_text())
    tables = {}
    for name, schema in TABLES.items():
        parts = [
            pq.read_table(run / manifest["attempt"] / part["file"]).to_pandas()
            for part in manifest["tables"].get(name, [])
        ]
        tables[name] = pd.concat(parts) if parts else schema.empty_table().to_pandas()
    return manifest, tables


def metrics_of(run: Path, types: Mapping[str, EventType]) -> dict[str, Any]:
    """The summary of a complete run, without its name."""
    manifest, tables = read(run)
    duration_ns = manifest["phases"]["resting"] - manifest["phases"]["running"]
    duration_s = duration_ns / 1e9
    events, delivered = tables["events"], tables["deliveries"]
    versions, obligations = tables["versions"], tables["obligations"]
    changes = versions[versions["version"] > 0]
    owed = _keys(obligations[~obligations["excused"].astype(bool)])
    excused = _keys(obligations[obligations["excused"].astype(bool)])
    later = events[~events["phase"].isin(_SETUP)]
    published = later.set_index(["publisher", "sequence"])["time_ns"].to_dict()
    once = delivered.sort_values("time_ns").drop_duplicates(_DELIVERY)
    latencies = [
        time - published[event]
        for time, event in zip(
            once["time_ns"], zip(once["publisher"], once["sequence"], strict=True), strict=True
        )
        if event in published
    ]
    messages = tables["messages"]
    control = messages[~messages["kind"].isin(["Publish", "Deliver"])]
    after = control[~control["phase"].isin(_SETUP)]
    brokers = after["source"].str.startswith("broker/") & after["target"].str.startswith("broker/")
    by_link = after[brokers].groupby(["source", "target"], observed=True)["messages"].sum()
    by_kind = after.groupby("kind", observed=True)["messages"].sum()
    subscribers = versions["client"].nunique()
    rate = int((delivered["phase"] == "running").sum()) / duration_s
    loads = _loads(tables["work"], messages[messages["phase"] == "running"], duration_ns)
    spurious = tables["spurious"]
    dropped = tables["history"][tables["history"]["what"] == "dropped"]
    changed = int((~changes["phase"].isin(_SETUP)).sum())
    return {
        "scenario": manifest["scenario"],
        "choices": manifest["choices"],
        "complete": True,
        "clock_steps": 0,
        "duration_s": duration_s,
        "published": len(events),
        "delivered": len(delivered),
        "changes": len(changes),
        "subscribers": subscribers,
        "unmeasured": 0,
        "dropped": int(dropped["number"].sum()),
        "throughput_events_per_s": rate,
        "throughput_per_subscriber": rate / subscribers if subscribers else None,
        "delay_ms": _distribution(_delays(tables, types)),
        "latency_ms": _distribution(latencies),
        "spurious": int(spurious["events"].sum()),
        "spurious_per_s": int(spurious[spurious["phase"] == "running"]["events"].sum()) / duration_s,
        "expected": len(owed),
        "excused": len(excused),
        "missed": len(owed - excused - _keys(delivered)),
        "lost": manifest["summary"]["lost"],
        "duplicate": len(delivered) - len(once),
        "control_messages": int(after["messages"].sum()),
        "control_between_brokers": int(after[brokers]["messages"].sum()),
        "control_busiest_link": int(by_link.max()) if len(by_link) else 0,
        "control_per_change": int(after["messages"].sum()) / changed if changed else None,
        "control_by_kind": {str(kind): int(number) for kind, number in by_kind.items() if number},
        "brokers": loads,
        "busiest_share": max(load["busy_share"] for load in loads.values()),
    }


def _keys(rows: pd.DataFrame) -> set[tuple[Any, ...]]:
    return set(rows[_DELIVERY].itertuples(index=False, name=None))


def _delays(tables: Tables, types: Mapping[str, EventType]) -> list[int]:
    """Per change after the set-up: the time to the first delivery that matches its values and not the
    previous ones, if it is among the newest changes then."""
    events = {
        (row.publisher, row.sequence): json.loads(row.values_)
        for row in tables["events"].rename(columns={"values": "values_"}).itertuples()
    }
    versions: dict[tuple[str, int], dict[int, Any]] = {}
    for row in tables["versions"].rename(columns={"values": "values_", "filter": "text"}).itertuples():
        versions.setdefault((row.client, row.subscription), {})[row.version] = row
    delays: dict[tuple[Any, ...], int] = {}
    for row in tables["deliveries"].sort_values("time_ns", kind="stable").itertuples():
        mine, event = versions[row.client, row.subscription], events[row.publisher, row.sequence]
        for number in range(max(1, row.version - _OPEN + 1), row.version + 1):
            key = row.client, row.subscription, number
            change = mine[number]
            if key in delays or change.phase in _SETUP:
                continue
            new, old = (
                parse(each.text, types[each.event_type]).matches(event, _values(each, row.ingress_ns))
                for each in (change, mine[number - 1])
            )
            if new and not old:
                delays[key] = row.time_ns - change.time_ns
    return list(delays.values())


def _values(version: Any, at_ns: int) -> Mapping[str, Any]:
    values = json.loads(version.values_)
    moving = {name: Motion(**value) for name, value in values.items() if isinstance(value, dict)}
    return still(values | moving, at_ns)


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


def _loads(work: pd.DataFrame, arrived: pd.DataFrame, duration_ns: int) -> dict[str, Any]:
    loads = {}
    for broker in sorted(work["broker"].unique()):
        mine = work[work["broker"] == broker].set_index("phase")["busy_ns"]
        here = arrived[arrived["target"] == broker]
        control = here[~here["kind"].isin(["Publish", "Deliver"])]
        loads[broker.removeprefix("broker/")] = {
            "events": int(here["events"].sum()),
            "control_messages": int(control["messages"].sum()),
            "busy_share": int(mine["resting"] - mine["running"]) / duration_ns,
        }
    return loads

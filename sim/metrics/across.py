"""Metrics across a sweep: the means over runs that differ only in their seed, with intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.sim.metrics.flat import flat, varied
from covey.sim.reports import mean_interval
from covey.sim.scenario.systems import system_of

SYSTEM = "system"
_OPTIONS = ("engine", "poset", "routing", "resubscribe")
"""The fields of a scenario that together make a system."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs with equal parameters. `parameters` are those in which the runs of a sweep differ, `metrics` the
    mean of each over the `runs` that have it, `intervals` its 95 % interval."""

    parameters: dict[str, Any]
    runs: int
    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float, float] | None]


def parameters(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each run the fields of its scenario in which runs differ, the seed aside.

    Where the runs are of systems by name (`systems.py`), that name stands for the fields that make them.
    """
    fields = [field for field in varied(summaries) if field != "seed"]
    systems = [system_of(summary["scenario"]) for summary in summaries]
    named = sum(field in _OPTIONS for field in fields) > 1 and None not in systems
    kept = [field for field in fields if not (named and field in _OPTIONS)]
    scenarios = [summary["scenario"] for summary in summaries]
    ways = {each.get("resubscribe") for each in scenarios if each.get("routing") == "static"}
    if "routing" in kept and len(ways) == 1:  # it has no effect on the others
        kept = [field for field in kept if field != "resubscribe"]
    return [
        ({SYSTEM: system} if named else {}) | {field: summary["scenario"].get(field) for field in kept}
        for system, summary in zip(systems, summaries, strict=True)
    ]


def compare(summaries: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The groups of a sweep in the order of its runs, from the results of `summarise`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for values, summary in zip(parameters(summaries), summaries, strict=True):
        groups.setdefault(json.dumps(values), []).append(flat(summary))
    return [_group(json.loads(key), runs) for key, runs in groups.items()]


def _group(values: dict[str, Any], runs: Sequence[Mapping[str, Any]]) -> Group:
    metrics: dict[str, float | None] = {}
    intervals: dict[str, tuple[float, float] | None] = {}
    for name in runs[0]:
        if name in ("run", "complete"):
            continue
        known = [float(run[name]) for run in runs if run[name] is not None]
        mean, low, high = mean_interval(known) if known else (None, None, None)
        metrics[name] = mean
        intervals[name] = None if low is None or high is None or len(known) < 2 else (low, high)
    return Group(values, len(runs), metrics, intervals)

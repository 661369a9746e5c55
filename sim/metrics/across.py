"""Summaries of runs side by side: flat rows, and means over runs that differ in the seed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.reports import mean_interval
from covey.sim.scenario.scenario import system_of

NESTED = ("delay_ms", "latency_ms")
_LEFT_OUT = ("scenario", "choices", "brokers", "control_by_kind", *NESTED)


def flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a run by name, such as `delay_ms_p50`, without the tables by broker or kind."""
    row = {name: value for name, value in summary.items() if name not in _LEFT_OUT}
    for prefix in NESTED:
        row |= {f"{prefix}_{name}": value for name, value in summary[prefix].items()}
    return row


def varied(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields in which the runs' scenarios differ, in the scenario's order, without `name`."""
    fields = dict.fromkeys(field for summary in summaries for field in summary["scenario"])
    return [
        field
        for field in fields
        if field != "name" and len({repr(summary["scenario"].get(field)) for summary in summaries}) > 1
    ]


def write_csv(path: str | Path, summaries: Iterable[Mapping[str, Any]]) -> None:
    """Write a line per run: name, choices in a sweep (`choice.DIMENSION`), scenario (`scenario.FIELD`) and
    metrics. Raises `CoveyError` if the file cannot be written."""
    rows = []
    for summary in summaries:
        scenario = {f"scenario.{field}": value for field, value in summary["scenario"].items()}
        choices = {f"choice.{each}": choice["name"] for each, choice in summary["choices"].items()}
        rows.append({"run": summary["run"]} | choices | scenario | flat(summary))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise CoveyError(f"{path}: cannot be written: {error.strerror or error}") from None


SYSTEM = "system"
_OPTIONS = ("engine", "poset", "routing", "resubscribe")
"""The fields of a scenario that together make a system."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs with equal parameters. `metrics` are means over the runs that have a value, `intervals` the means'
    intervals (`mean_interval`). `system` is the name of their system if it has one, else how a subscription
    changes."""

    parameters: dict[str, Any]
    runs: int
    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float, float] | None]
    system: str = ""


def parameters(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each run the fields of its scenario in which runs differ, without the seed.

    A named choice of a sweep replaces the fields that it sets, the name of a system (`scenario.py`) those
    that make it.
    """
    choices = _named_choices(summaries)
    implied = _implied(summaries, choices)
    fields = [field for field in varied(summaries) if field != "seed" and field not in implied]
    systems = [system_of(summary["scenario"]) for summary in summaries]
    named = sum(field in _OPTIONS for field in fields) > 1 and None not in systems
    kept = [field for field in fields if not (named and field in _OPTIONS)]
    scenarios = [summary["scenario"] for summary in summaries]
    ways = {each.get("resubscribe") for each in scenarios if each.get("routing") == "static"}
    if "routing" in kept and len(ways) == 1:  # it has no effect on the others
        kept = [field for field in kept if field != "resubscribe"]
    return [
        chosen
        | ({SYSTEM: system} if named else {})
        | {field: summary["scenario"].get(field) for field in kept}
        for chosen, system, summary in zip(choices, systems, summaries, strict=True)
    ]


def _named_choices(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    names = [
        {dimension: choice["name"] for dimension, choice in summary.get("choices", {}).items()}
        for summary in summaries
    ]
    kept = [
        dimension
        for dimension in names[0]
        if all(dimension in each for each in names) and len({each[dimension] for each in names}) > 1
    ]
    return [{dimension: each[dimension] for dimension in kept} for each in names]


def _implied(summaries: Sequence[Mapping[str, Any]], choices: Sequence[Mapping[str, str]]) -> set[str]:
    """The fields whose values follow from the named choices."""
    implied = {
        field
        for chosen, summary in zip(choices, summaries, strict=True)
        for dimension in chosen
        for field in summary["choices"][dimension]["fields"]
    }
    first: dict[str, Mapping[str, Any]] = {}
    for chosen, summary in zip(choices, summaries, strict=True):
        scenario = summary["scenario"]
        same = first.setdefault(json.dumps(chosen), scenario)
        implied -= {field for field in implied if scenario.get(field) != same.get(field)}
    return implied


def compare(summaries: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The groups of a sweep in the order of its runs, from the results of `summarise`."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for values, summary in zip(parameters(summaries), summaries, strict=True):
        groups.setdefault(json.dumps(values), []).append(summary)
    return [_group(json.loads(key), runs) for key, runs in groups.items()]


def _group(values: dict[str, Any], summaries: Sequence[Mapping[str, Any]]) -> Group:
    runs, scenario = [flat(summary) for summary in summaries], summaries[0]["scenario"]
    metrics: dict[str, float | None] = {}
    intervals: dict[str, tuple[float, float] | None] = {}
    for name in runs[0]:
        if name in ("run", "complete"):
            continue
        known = [float(run[name]) for run in runs if run[name] is not None]
        mean, low, high = mean_interval(known) if known else (None, None, None)
        metrics[name] = mean
        intervals[name] = None if low is None or high is None or len(known) < 2 else (low, high)
    parametric = scenario.get("routing") == "parametric"
    change = "parametric" if parametric else scenario.get("resubscribe", "")
    return Group(values, len(runs), metrics, intervals, system_of(scenario) or change)

"""Metrics across a sweep: the means over runs that differ only in their seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from covey.sim.metrics import columns as c
from covey.sim.metrics.flat import flat, varied


@dataclass(frozen=True, slots=True)
class Group:
    """Runs with equal parameters. `parameters` are those in which the runs of a sweep differ, `metrics` the
    mean of each over the `runs` that have it, `least` and `most` its range."""

    parameters: dict[str, Any]
    runs: int
    metrics: dict[str, float | None]
    least: dict[str, float | None]
    most: dict[str, float | None]


def compare(summaries: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The groups of a sweep in the order of its runs, from the results of `summarise`."""
    parameters = [field for field in varied(summaries) if field != "seed"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:
        key = json.dumps({field: summary["scenario"].get(field) for field in parameters})
        groups.setdefault(key, []).append(flat(summary))

    def over(
        runs: list[dict[str, Any]], statistic: Callable[[Iterable[float]], float]
    ) -> dict[str, float | None]:
        values = {
            name: [float(run[name]) for run in runs if run[name] is not None]
            for name in runs[0]
            if name not in (c.RUN, c.COMPLETE)
        }
        return {name: statistic(known) if known else None for name, known in values.items()}

    return [
        Group(json.loads(key), len(runs), over(runs, fmean), over(runs, min), over(runs, max))
        for key, runs in groups.items()
    ]

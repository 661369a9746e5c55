"""Metrics across a sweep: the means over runs that differ only in their seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c
from covey.sim.metrics.flat import flat, varied
from covey.sim.metrics.session import spark_session

_SEED = "seed"
_RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Group:
    """Runs with equal parameters. `parameters` are those in which the runs of a sweep differ, `metrics` the
    mean of each over the `runs` that have it, `least` and `most` its range."""

    parameters: dict[str, Any]
    runs: int
    metrics: dict[str, float | None]
    least: dict[str, float | None]
    most: dict[str, float | None]


def compare(summaries: Sequence[Mapping[str, Any]], master: str = "local[*]") -> list[Group]:
    """The groups of a sweep in the order of its runs, computed by Spark from the results of `summarise`."""
    parameters = [field for field in varied(summaries) if field != _SEED]
    names = _numeric(summaries)
    keys = [json.dumps({field: each["scenario"].get(field) for field in parameters}) for each in summaries]
    schema = ", ".join(["setting string", *(f"`{name}` double" for name in names)])
    rows = [
        (key, *(None if value is None else float(value) for value in map(flat(each).get, names)))
        for key, each in zip(keys, summaries, strict=True)
    ]
    table = across(spark_session(master).createDataFrame(rows, schema), "setting", names)
    by_setting = {row["setting"]: row for row in table.collect()}
    return [
        Group(
            json.loads(key),
            by_setting[key][_RUNS],
            {name: by_setting[key][f"{name}_mean"] for name in names},
            {name: by_setting[key][f"{name}_least"] for name in names},
            {name: by_setting[key][f"{name}_most"] for name in names},
        )
        for key in dict.fromkeys(keys)
    ]


def across(runs: DataFrame, by: str, names: Sequence[str]) -> DataFrame:
    """One row per setting: the number of runs, and mean, minimum and maximum of each metric."""
    parts = [
        part
        for name in names
        for part in (
            f.avg(name).alias(f"{name}_mean"),
            f.min(name).alias(f"{name}_least"),
            f.max(name).alias(f"{name}_most"),
        )
    ]
    statistics = [f"{name}_{part}" for name in names for part in ("mean", "least", "most")]
    return runs.groupBy(by).agg(f.count(f.lit(1)).alias(_RUNS), *parts).select(by, _RUNS, *statistics)


def _numeric(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in flat(summaries[0]) if name not in (c.RUN, c.COMPLETE)]

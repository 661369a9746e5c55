"""Numbers of runs as rows (run, metric, key, value), so that one query returns all metrics.

All are whole: sums of nanoseconds are exact, and a mean is divided where it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from covey.sim.metrics import columns as c

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ACCURACY = 10_000
"""An approximate percentile lies within 1 / ACCURACY of all values of the exact rank."""
_LOW_BITS = 20


def named(table: DataFrame, numbers: Mapping[str, tuple[str | None, str]]) -> DataFrame:
    """Rows of a table's columns: by metric, the column of the key, if there is one, and that of the value.
    Without those that are null."""
    rows = [
        f.struct(
            f.lit(metric).alias(c.METRIC),
            (f.lit(None) if key is None else f.col(key)).cast("string").alias(c.KEY),
            f.col(value).cast("bigint").alias(c.VALUE),
        )
        for metric, (key, value) in numbers.items()
    ]
    return table.select(c.RUN, f.inline(f.array(*rows))).where(f.col(c.VALUE).isNotNull())


def tally(table: DataFrame, **numbers: Column) -> DataFrame:
    """These aggregates of a table of a trace per run, and the times of its first and last measured rows."""
    measured_ns = f.when(c.measured(), f.col(c.TIME_NS))
    numbers |= {"first_ns": f.min(measured_ns), "last_ns": f.max(measured_ns)}
    counted = table.groupBy(c.RUN).agg(*[number.alias(name) for name, number in numbers.items()])
    return named(counted, {name: (None, name) for name in numbers})


def count_of(condition: Column) -> Column:
    """The number of rows of which a condition is true."""
    return f.count_if(condition)


def distribution(durations: DataFrame, column: str, prefix: str, exact: bool) -> DataFrame:
    """Number, sum, median, 99th percentile and maximum of durations in nanoseconds, per run.

    A percentile is one of the durations (nearest rank), or close to it (`ACCURACY`). The sum comes in two
    numbers, since it may exceed 64 bits (`total`).
    """
    low = (1 << _LOW_BITS) - 1
    if exact:
        p50, p99 = (
            f.expr(f"percentile_disc({share}) within group (order by {column})") for share in ("0.5", "0.99")
        )
    else:
        both = f.percentile_approx(column, [0.5, 0.99], ACCURACY)
        p50, p99 = both[0], both[1]
    numbers = {
        "count": f.count(column),
        "high": f.sum(f.shiftright(f.col(column), _LOW_BITS)),
        "low": f.sum(f.col(column).bitwiseAND(low)),
        "p50": p50,
        "p99": p99,
        "max": f.max(column),
    }
    counted = durations.groupBy(c.RUN).agg(
        *[number.alias(f"{prefix}_{name}") for name, number in numbers.items()]
    )
    return named(counted, {f"{prefix}_{name}": (None, f"{prefix}_{name}") for name in numbers})


def total(numbers: Mapping[str, int], prefix: str) -> int:
    """The sum of durations, from the numbers of `distribution`."""
    return (numbers[f"{prefix}_high"] << _LOW_BITS) + numbers[f"{prefix}_low"]


def together(parts: list[DataFrame]) -> DataFrame:
    """The rows of all parts."""
    return reduce(lambda left, right: left.unionByName(right), parts)

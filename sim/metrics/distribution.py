"""Distribution of durations: number, mean, percentiles and maximum."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c

_NS_PER_MS = 1e6


def distribution(durations: DataFrame, column: str, prefix: str) -> DataFrame:
    """One row per run: the number of durations (ns), and their mean, median, 99th percentile and maximum in
    milliseconds, as `prefix_count`, `prefix_mean`, ....

    A percentile is one of the durations (nearest rank). The mean is the sum of whole nanoseconds over their
    number.
    """

    def rank(share: str) -> str:
        return f"percentile_disc({share}) within group (order by {column})"

    per_ms = f.lit(_NS_PER_MS)
    return durations.groupBy(c.RUN).agg(
        f.count(column).alias(f"{prefix}_count"),
        (f.sum(column) / f.count(column) / per_ms).alias(f"{prefix}_mean"),
        (f.expr(rank("0.5")) / per_ms).alias(f"{prefix}_p50"),
        (f.expr(rank("0.99")) / per_ms).alias(f"{prefix}_p99"),
        (f.max(column) / per_ms).alias(f"{prefix}_max"),
    )

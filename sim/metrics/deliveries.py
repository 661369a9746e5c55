"""Expected, missed and duplicate deliveries, and latency.

A delivery is expected (COVERAGE, Jayaram et al., section 3.3) if the event matches every version of the
subscription from the last one in effect on, and its publisher's advertisement was in effect. A change that
the event does not match, a client that leaves and a crash excuse it. An incomplete run has events in flight,
which are not missed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def deliveries(rows: DataFrame) -> DataFrame:
    """One row per event and subscription: whether the delivery was expected and not excused, how often the
    event was delivered, and when first."""

    def is_a(kind: str) -> Column:
        return f.col(c.KIND) == kind

    return (
        rows.where(f.col(c.KIND).isin(c.EXPECTED, c.EXCUSED, c.DELIVERED))
        .groupBy(*c.DELIVERY)
        .agg(
            (f.max(is_a(c.EXPECTED)) & ~f.max(is_a(c.EXCUSED))).alias(c.EXPECTED),
            f.count_if(is_a(c.DELIVERED)).alias(c.TIMES),
            f.min(f.when(is_a(c.DELIVERED), f.col(c.TIME_NS))).alias(c.DELIVERED_NS),
        )
    )


def verdicts(rows: DataFrame) -> DataFrame:
    """One row per run: deliveries expected, those that were missed, and repeated deliveries of an event to a
    subscription."""
    repeated = f.when(f.col(c.TIMES) > 1, f.col(c.TIMES) - 1).otherwise(0)
    return (
        deliveries(rows)
        .groupBy(c.RUN)
        .agg(
            f.count_if(f.col(c.EXPECTED)).alias("expected"),
            f.count_if(f.col(c.EXPECTED) & (f.col(c.TIMES) == 0)).alias("missed"),
            f.sum(repeated).alias("duplicate"),
        )
    )


def latencies(rows: DataFrame) -> DataFrame:
    """One row per event and subscription: the nanoseconds from publishing to the first delivery."""
    published = (
        rows.where(f.col(c.KIND) == c.PUBLISHED)
        .groupBy(c.RUN, *c.EVENT)
        .agg(f.min(c.TIME_NS).alias("published_ns"))
    )
    return (
        deliveries(rows)
        .where(f.col(c.TIMES) > 0)
        .join(published, on=[c.RUN, *c.EVENT], how="inner")
        .select(*c.DELIVERY, (f.col(c.DELIVERED_NS) - f.col("published_ns")).alias(c.LATENCY_NS))
    )

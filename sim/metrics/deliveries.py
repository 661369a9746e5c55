"""Deliveries: whether subscriptions got what they were owed, once, and how long it took.

Owed (COVERAGE, Jayaram et al., section 3.3) is an event that matches every version of a subscription from the
last one that had taken effect on, while its publisher's advertisement had taken effect as well; a change that
no longer wants it, a client that leaves and a crash excuse it. In a run that broke off events are on their
way that were not missed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def deliveries(rows: DataFrame) -> DataFrame:
    """One row per event and subscription that it was delivered or owed to: whether it was owed and not
    excused, how often it was delivered, and when first."""

    def is_a(kind: str) -> Column:
        return f.col(c.KIND) == kind

    return (
        rows.where(f.col(c.KIND).isin(c.OWED, c.EXCUSED, c.DELIVERED))
        .groupBy(*c.DELIVERY)
        .agg(
            (f.max(is_a(c.OWED)) & ~f.max(is_a(c.EXCUSED))).alias(c.OWED),
            f.count_if(is_a(c.DELIVERED)).alias(c.TIMES),
            f.min(f.when(is_a(c.DELIVERED), f.col(c.TIME_NS))).alias(c.DELIVERED_NS),
        )
        .select(*c.DELIVERY, c.OWED, c.TIMES, c.DELIVERED_NS)
    )


def verdicts(rows: DataFrame) -> DataFrame:
    """One row per run: deliveries owed, those of them that were missed, and deliveries beyond the first of an
    event to a subscription."""
    again = f.when(f.col(c.TIMES) > 1, f.col(c.TIMES) - 1).otherwise(0)
    return (
        deliveries(rows)
        .groupBy(c.RUN)
        .agg(
            f.count_if(f.col(c.OWED)).alias("owed"),
            f.count_if(f.col(c.OWED) & (f.col(c.TIMES) == 0)).alias("missed"),
            f.sum(again).alias("duplicate"),
        )
        .select(c.RUN, "owed", "missed", "duplicate")
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

"""Expected, missed and duplicate deliveries, and latency.

A delivery is expected (COVERAGE, Jayaram et al., section 3.3) if the event matches every version of the
subscription from the last one in effect on, and its publisher's advertisement was in effect. A change that
the event does not match, a client that leaves and a crash excuse it. An incomplete run has events in flight,
which are not missed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def first_deliveries(deliveries: DataFrame) -> DataFrame:
    """One row per event and subscription: when the event was first delivered, and how often."""
    return deliveries.groupBy(*c.DELIVERY).agg(
        f.min(c.TIME_NS).alias(c.DELIVERED_NS), f.count(f.lit(1)).alias(c.TIMES)
    )


def latencies(first: DataFrame, events: DataFrame) -> DataFrame:
    """One row per event that was published after the set-up and subscription that it reached: the nanoseconds
    from publishing to the first delivery, from `first_deliveries`."""
    published = events.where(c.after_setup()).select(*c.EVENT, f.col(c.TIME_NS).alias(c.PUBLISHED_NS))
    return first.join(published, on=list(c.EVENT), how="inner").select(
        *c.DELIVERY,
        c.PUBLISHED_NS,
        (f.col(c.DELIVERED_NS) - f.col(c.PUBLISHED_NS)).alias(c.LATENCY_NS),
    )


def missed(obligations: DataFrame, first: DataFrame) -> DataFrame:
    """One row per event and subscription: expected, not excused and not delivered."""
    keys = obligations.select(*c.DELIVERY, c.EXCUSED)
    excused = keys.where(f.col(c.EXCUSED)).select(*c.DELIVERY)
    return (
        keys.where(~f.col(c.EXCUSED))
        .select(*c.DELIVERY)
        .join(excused, on=list(c.DELIVERY), how="left_anti")
        .join(first.select(*c.DELIVERY), on=list(c.DELIVERY), how="left_anti")
    )

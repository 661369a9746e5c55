"""Delay of a change of a subscription (Jayaram et al., section 5.2)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def delays(rows: DataFrame) -> DataFrame:
    """One row per change: nanoseconds from the client's change of a subscription to the first delivered event
    that matches the new values and not the old ones. Changes without such an event have no row."""

    def when(kind: str) -> Column:
        return f.min(f.when(f.col(c.KIND) == kind, f.col(c.TIME_NS)))

    return (
        rows.where(f.col(c.KIND).isin(c.UPDATED, c.ANSWERED))
        .groupBy(*c.CHANGE)
        .agg((when(c.ANSWERED) - when(c.UPDATED)).alias(c.DELAY_NS))
        .where(f.col(c.DELAY_NS).isNotNull())
    )

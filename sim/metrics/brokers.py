"""What each broker has to bear: events and control messages that reach it, and the time they take it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def broker_loads(rows: DataFrame) -> DataFrame:
    """One row per run and broker: events and control messages that arrived while it was measured, and how
    long it was busy then (null where a run broke off before `resting`).

    An event counts once for each message that carries it to the broker.
    """
    at_broker = f.col(c.NODE).startswith(c.BROKERS)
    arrived = (
        rows.where(at_broker & f.col(c.KIND).isin(c.CARRIED, c.CONTROL) & f.col(c.MEASURED))
        .groupBy(c.RUN, f.col(c.NODE).alias(c.BROKER))
        .agg(
            f.coalesce(f.sum(f.when(f.col(c.KIND) == c.CARRIED, f.col(c.COUNT))), f.lit(0)).alias(c.EVENTS),
            f.count_if(f.col(c.KIND) == c.CONTROL).alias(c.MESSAGES),
        )
    )
    return (
        busy(rows)
        .join(arrived, on=[c.RUN, c.BROKER], how="full")
        .select(
            c.RUN,
            c.BROKER,
            f.coalesce(f.col(c.EVENTS), f.lit(0)).alias(c.EVENTS),
            f.coalesce(f.col(c.MESSAGES), f.lit(0)).alias(c.MESSAGES),
            c.BUSY_NS,
        )
    )


def busy(rows: DataFrame) -> DataFrame:
    """One row per run and broker: nanoseconds of work while it was measured. What a broker has worked is said
    when a phase begins; a broker that joined later had not worked before."""
    at_start = f.max(f.when(f.col(c.MEASURED), f.col(c.COUNT)))
    at_end = f.min(f.when(~f.col(c.MEASURED) & ~f.col(c.SETUP), f.col(c.COUNT)))
    return (
        rows.where(f.col(c.KIND) == c.WORKED)
        .groupBy(c.RUN, f.col(c.NODE).alias(c.BROKER))
        .agg((at_end - f.coalesce(at_start, f.lit(0))).alias(c.BUSY_NS))
        .select(c.RUN, c.BROKER, c.BUSY_NS)
    )

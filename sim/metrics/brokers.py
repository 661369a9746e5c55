"""The load of each broker: events and control messages that reach it, and its busy time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def broker_loads(rows: DataFrame) -> DataFrame:
    """One row per run and broker: events and control messages that arrived in the measured phase, and the
    busy time (null if the run ended before `resting`).

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
    """One row per run and broker: busy nanoseconds in the measured phase.

    A trace records each broker's total busy time when a phase begins; a broker that joins later starts at 0.
    """
    at_start = f.max(f.when(f.col(c.MEASURED), f.col(c.COUNT)))
    at_end = f.min(f.when(~f.col(c.MEASURED) & ~f.col(c.SETUP), f.col(c.COUNT)))
    return (
        rows.where(f.col(c.KIND) == c.WORKED)
        .groupBy(c.RUN, f.col(c.NODE).alias(c.BROKER))
        .agg((at_end - f.coalesce(at_start, f.lit(0))).alias(c.BUSY_NS))
    )

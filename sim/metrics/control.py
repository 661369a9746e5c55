"""What it takes to keep routes up to date: control messages over each link, and in each run."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def control_messages(rows: DataFrame) -> DataFrame:
    """One row per run, link, direction and sort of message: the control messages that arrived from the
    beginning of `running` on, which are those that changes caused."""
    return (
        rows.where((f.col(c.KIND) == c.CONTROL) & ~f.col(c.SETUP))
        .groupBy(
            c.RUN, f.col(c.PEER).alias(c.SOURCE), f.col(c.NODE).alias(c.TARGET), f.col(c.NAME).alias(c.SORT)
        )
        .agg(f.count(f.lit(1)).alias(c.MESSAGES))
        .select(c.RUN, c.SOURCE, c.TARGET, c.SORT, c.MESSAGES)
    )


def control_by_sort(rows: DataFrame) -> DataFrame:
    """One row per run and sort of message: control messages over all links."""
    return (
        control_messages(rows)
        .groupBy(c.RUN, c.SORT)
        .agg(f.sum(c.MESSAGES).alias(c.MESSAGES))
        .select(c.RUN, c.SORT, c.MESSAGES)
    )


def control_by_place(rows: DataFrame) -> DataFrame:
    """One row per run: control messages in all, of those between brokers, and the most of these from one
    broker to another."""
    between = f.col(c.SOURCE).startswith(c.BROKERS) & f.col(c.TARGET).startswith(c.BROKERS)
    links = control_messages(rows).groupBy(c.RUN, c.SOURCE, c.TARGET).agg(f.sum(c.MESSAGES).alias(c.MESSAGES))
    between_brokers = f.when(between, f.col(c.MESSAGES))
    return (
        links.groupBy(c.RUN)
        .agg(
            f.sum(c.MESSAGES).alias("control_messages"),
            f.coalesce(f.sum(between_brokers), f.lit(0)).alias("control_between_brokers"),
            f.coalesce(f.max(between_brokers), f.lit(0)).alias("control_busiest_link"),
        )
        .select(c.RUN, "control_messages", "control_between_brokers", "control_busiest_link")
    )

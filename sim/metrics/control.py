"""Control messages per link and per run."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def control_messages(rows: DataFrame) -> DataFrame:
    """One row per run, link, direction and kind of message: control messages since the start of `running`,
    that is, those that changes caused."""
    return (
        rows.where((f.col(c.KIND) == c.CONTROL) & ~f.col(c.SETUP))
        .groupBy(
            c.RUN,
            f.col(c.PEER).alias(c.SOURCE),
            f.col(c.NODE).alias(c.TARGET),
            f.col(c.NAME).alias(c.MESSAGE_KIND),
        )
        .agg(f.count(f.lit(1)).alias(c.MESSAGES))
    )


def control_by_kind(rows: DataFrame) -> DataFrame:
    """One row per run and kind of message: control messages over all links."""
    return control_messages(rows).groupBy(c.RUN, c.MESSAGE_KIND).agg(f.sum(c.MESSAGES).alias(c.MESSAGES))


def control_by_place(rows: DataFrame) -> DataFrame:
    """One row per run: all control messages, those between brokers, and the most in one direction of a
    link."""
    between = f.col(c.SOURCE).startswith(c.BROKERS) & f.col(c.TARGET).startswith(c.BROKERS)
    links = control_messages(rows).groupBy(c.RUN, c.SOURCE, c.TARGET).agg(f.sum(c.MESSAGES).alias(c.MESSAGES))
    between_brokers = f.when(between, f.col(c.MESSAGES))
    return links.groupBy(c.RUN).agg(
        f.sum(c.MESSAGES).alias("control_messages"),
        f.coalesce(f.sum(between_brokers), f.lit(0)).alias("control_between_brokers"),
        f.coalesce(f.max(between_brokers), f.lit(0)).alias("control_busiest_link"),
    )

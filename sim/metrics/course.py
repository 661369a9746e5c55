"""The course of a run: scenario, measured duration, completeness, and counts of events and changes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c


def courses(rows: DataFrame) -> DataFrame:
    """One row per run: its scenario as JSON, whether it is complete, the measured time, and the number of
    times the clock was set back.

    The measured time starts with `running` and ends with `resting`, or with the last row of an incomplete
    run. A run without phases is measured from its first row to its last.
    """
    measured = f.col(c.MEASURED)
    ends = f.coalesce(_start(c.RESTING), f.max(f.when(measured, f.col(c.TIME_NS))))
    begins = f.coalesce(_start(c.RUNNING), f.min(f.when(measured, f.col(c.TIME_NS))))
    return rows.groupBy(c.RUN).agg(
        f.max(f.when(f.col(c.KIND) == c.BEGUN, f.col(c.TEXT))).alias(c.SCENARIO),
        f.max(f.col(c.KIND) == c.ENDED).alias(c.COMPLETE),
        (ends - begins).alias(c.DURATION_NS),
        f.count_if(f.col(c.STEPPED)).alias(c.CLOCK_STEPS),
    )


def _start(phase: str) -> Column:
    here = (f.col(c.KIND) == c.PHASE) & (f.col(c.NAME) == phase)
    return f.min(f.when(here, f.col(c.TIME_NS)))


def counts(rows: DataFrame) -> DataFrame:
    """One row per run: events published, delivered, spurious and dropped, changes of subscriptions, and
    subscribers; for rates also the events delivered and spurious in the measured phase.

    A spurious event reached a client because of values that the client had already changed; the client's own
    evaluation discarded it (Jayaram et al., section 5.2).
    """

    def total(kind: str, *, measured: bool = False) -> Column:
        counted = f.col(c.KIND) == kind
        if measured:
            counted = counted & f.col(c.MEASURED)
        return f.coalesce(f.sum(f.when(counted, f.col(c.COUNT))), f.lit(0)).cast("long")

    def number(kind: str) -> Column:
        return f.count_if(f.col(c.KIND) == kind)

    subscriber = f.when(f.col(c.KIND) == c.SUBSCRIBED, f.col(c.NODE))
    return rows.groupBy(c.RUN).agg(
        number(c.PUBLISHED).alias("published"),
        number(c.DELIVERED).alias("delivered"),
        f.count_if((f.col(c.KIND) == c.DELIVERED) & f.col(c.MEASURED)).alias("delivered_measured"),
        number(c.UPDATED).alias("changes"),
        total(c.SPURIOUS).alias("spurious"),
        total(c.SPURIOUS, measured=True).alias("spurious_measured"),
        total(c.DROPPED).alias("dropped"),
        f.count_distinct(subscriber).alias("subscribers"),
    )

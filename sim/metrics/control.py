"""Messages per kind, link and broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from covey.sim.metrics import columns as c
from covey.sim.metrics.numbers import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MEASURED, _LINK = "measured", "link"


def messages_by_link(messages: DataFrame) -> DataFrame:
    """One row per run, direction of a link and kind of message: control messages after the set-up, and
    `measured` and events in the measured phase. An event counts once for each message that carries it."""
    is_control = ~f.col(c.KIND).isin(*c.WITH_EVENTS)

    def total(column: str, condition: Column) -> Column:
        return f.coalesce(f.sum(f.when(condition, f.col(column))), f.lit(0))

    return messages.groupBy(c.RUN, c.SOURCE, c.TARGET, c.KIND).agg(
        total(c.MESSAGES, is_control & c.after_setup()).alias(c.MESSAGES),
        total(c.MESSAGES, is_control & c.measured()).alias(_MEASURED),
        total(c.EVENTS, c.measured()).alias(c.EVENTS),
    )


def control_numbers(links: DataFrame) -> DataFrame:
    """The numbers of `messages_by_link` per run: control messages in all, by kind, between brokers and in the
    busiest direction of a link, and what each broker received in the measured phase."""
    at_broker = f.col(c.TARGET).startswith(c.BROKERS)
    between = at_broker & f.col(c.SOURCE).startswith(c.BROKERS)
    target = f.when(at_broker, f.col(c.TARGET))
    numbers = {
        "control_messages": (None, c.MESSAGES),
        "control_between_brokers": (None, "between"),
        "control_busiest_link": (_LINK, "between"),
        "control_by_kind": (c.KIND, c.MESSAGES),
        "broker_events": ("at", c.EVENTS),
        "broker_messages": ("at", _MEASURED),
    }
    rows = named(
        links.select(
            "*",
            f.concat_ws(" ", c.SOURCE, c.TARGET).alias(_LINK),
            f.when(between, f.col(c.MESSAGES)).otherwise(0).alias("between"),
            target.alias("at"),
        ),
        numbers,
    ).where(f.col(c.VALUE) > 0)
    sums = rows.groupBy(c.RUN, c.METRIC, c.KEY).agg(f.sum(c.VALUE).alias(c.VALUE))
    busiest = f.col(c.METRIC) == "control_busiest_link"
    key = f.when(~busiest, f.col(c.KEY))
    value = f.when(f.first(busiest), f.max(c.VALUE)).otherwise(f.sum(c.VALUE))
    return sums.groupBy(c.RUN, c.METRIC, key.alias(c.KEY)).agg(value.alias(c.VALUE))


def busy_numbers(work: DataFrame) -> DataFrame:
    """Per run and broker: busy nanoseconds in the measured phase, unless the run ended in it.

    A trace has each broker's busy time so far at the start of each phase and at the end; a broker that joins
    later starts at 0.
    """
    at_start = f.min(f.when(c.measured(), f.col(c.BUSY_NS)))
    at_end = f.min(f.when(~c.measured() & c.after_setup(), f.col(c.BUSY_NS)))
    busy = work.groupBy(c.RUN, c.BROKER).agg(
        f.lit(0).alias("known"), (at_end - f.coalesce(at_start, f.lit(0))).alias(c.BUSY_NS)
    )
    return named(busy, {"broker_busy_ns": (c.BROKER, c.BUSY_NS), "broker": (c.BROKER, "known")})

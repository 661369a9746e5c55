"""What runs counted, as Spark tables: rows (run, metric, key, value), so that one query returns everything.
Values are integers, so sums of nanoseconds are exact; means are divided where they are shown.

The delay of a change of a subscription (Jayaram et al., section 5.2) ends with the first delivered event that
matches the new values and not the old ones. A change waits for it across later changes: otherwise a
subscription that changes faster than the overlay would show only its fast answers. An event answers the
`OPEN` newest changes at most.

A delivery has the version that was newest at its moment, so order needs no clock. Versions form blocks of
`OPEN`, and a delivery is joined with its own block and the one before, so a long history does not end in one
task.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from covey.matcher import Filter

OPEN = 256
_BLOCK = "block"
_BLOCKED = (*c.SUBSCRIBED, _BLOCK)
_OLD, _NEW, _EVENT, _NEWEST, _FIRST = "old", "new", "event", "newest", "first"


class Evaluation(Protocol):
    filters: dict[int, Filter]

    def event(self, values: Column) -> Column: ...
    def operands(self, values: Column) -> Column: ...
    def matches(self, number: Column, event: Column, operands: Column, at_ns: Column) -> Column: ...


def delays(
    versions: DataFrame, deliveries: DataFrame, events: DataFrame, evaluations: Iterable[Evaluation]
) -> DataFrame:
    """One row per change that was answered: changed_ns, delay_ns from then to the delivery, and the event
    that answers. `versions` have the number of their filter."""
    parts = [_answers(versions, deliveries, events, evaluation) for evaluation in evaluations]
    answers = parts[0]
    for part in parts[1:]:
        answers = answers.unionByName(part)
    return (
        answers.groupBy(*_BLOCKED, c.VERSION, c.CHANGED_NS)
        .agg(f.min(f.struct(c.DELIVERED_NS, c.PUBLISHER, c.SEQUENCE)).alias(_FIRST))
        .select(
            *c.SUBSCRIBED,
            c.VERSION,
            c.CHANGED_NS,
            (f.col(_FIRST)[c.DELIVERED_NS] - f.col(c.CHANGED_NS)).alias(c.DELAY_NS),
            f.col(_FIRST)[c.PUBLISHER].alias(c.PUBLISHER),
            f.col(_FIRST)[c.SEQUENCE].alias(c.SEQUENCE),
        )
    )


def _answers(
    versions: DataFrame, deliveries: DataFrame, events: DataFrame, evaluation: Evaluation
) -> DataFrame:
    """One row per change and delivered event that matches its new values and not its old ones."""

    def matches(values: str) -> Column:
        return evaluation.matches(f.col(c.NUMBER), f.col(_EVENT), f.col(values), f.col(c.INGRESS_NS))

    open_then = (f.col(c.VERSION) <= f.col(_NEWEST)) & (f.col(c.VERSION) > f.col(_NEWEST) - OPEN)
    return (
        changes(versions.where(f.col(c.NUMBER).isin(list(evaluation.filters))), evaluation)
        .join(_delivered(deliveries, events, evaluation), on=list(_BLOCKED), how="inner")
        .where(open_then)
        .where(matches(_NEW) & ~matches(_OLD))
        .select(*_BLOCKED, c.VERSION, c.CHANGED_NS, c.DELIVERED_NS, c.PUBLISHER, c.SEQUENCE)
    )


def changes(versions: DataFrame, evaluation: Evaluation) -> DataFrame:
    """One row per change after the set-up: its block, filter number, and old and new operands.

    The last version of a block is also in the next block, as the predecessor of its first.
    """
    block = _block(c.VERSION)
    last = f.col(c.VERSION) % OPEN == OPEN - 1
    before = Window.partitionBy(*_BLOCKED).orderBy(c.VERSION)
    follows = f.lag(c.VERSION).over(before) == f.col(c.VERSION) - 1
    return (
        versions.select(
            *c.SUBSCRIBED,
            c.VERSION,
            c.NUMBER,
            f.col(c.TIME_NS).alias(c.CHANGED_NS),
            c.after_setup().alias("counts"),
            evaluation.operands(f.col(c.VALUES)).alias(_NEW),
            f.explode(f.when(last, f.array(block, block + 1)).otherwise(f.array(block))).alias(_BLOCK),
        )
        .select("*", f.lag(_NEW).over(before).alias(_OLD), follows.alias("follows"))
        .where("follows and counts")
        .drop("follows", "counts")
    )


def _delivered(deliveries: DataFrame, events: DataFrame, evaluation: Evaluation) -> DataFrame:
    """One row per delivery to a subscription that has changed, and block that it is joined with."""
    newest = _block(c.VERSION)
    blocks = f.when(newest > 0, f.array(newest - 1, newest)).otherwise(f.array(newest))
    values = events.select(*c.EVENT, evaluation.event(f.col(c.VALUES)).alias(_EVENT))
    return (
        deliveries.where(f.col(c.VERSION) >= 1)
        .join(values, on=list(c.EVENT), how="inner")
        .select(
            *c.SUBSCRIBED,
            c.PUBLISHER,
            c.SEQUENCE,
            c.INGRESS_NS,
            _EVENT,
            f.col(c.TIME_NS).alias(c.DELIVERED_NS),
            f.col(c.VERSION).alias(_NEWEST),
            f.explode(blocks).alias(_BLOCK),
        )
    )


def _block(version: str) -> Column:
    return f.floor(f.col(version) / OPEN).cast("int")


ACCURACY = 10_000
"""An approximate percentile lies within 1 / ACCURACY of all values of the exact rank."""
_LOW_BITS = 20


def named(table: DataFrame, numbers: Mapping[str, tuple[str | None, str]]) -> DataFrame:
    """Rows without nulls from columns of a table; `numbers` has by metric the columns of the key (or None)
    and of the value."""
    rows = [
        f.struct(
            f.lit(metric).alias(c.METRIC),
            (f.lit(None) if key is None else f.col(key)).cast("string").alias(c.KEY),
            f.col(value).cast("bigint").alias(c.VALUE),
        )
        for metric, (key, value) in numbers.items()
    ]
    return table.select(c.RUN, f.inline(f.array(*rows))).where(f.col(c.VALUE).isNotNull())


def tally(table: DataFrame, **numbers: Column) -> DataFrame:
    """Aggregates of a trace's table per run, and the times of its first and last measured rows."""
    measured_ns = f.when(c.measured(), f.col(c.TIME_NS))
    numbers |= {"first_ns": f.min(measured_ns), "last_ns": f.max(measured_ns)}
    counted = table.groupBy(c.RUN).agg(*[number.alias(name) for name, number in numbers.items()])
    return named(counted, {name: (None, name) for name in numbers})


def distribution(durations: DataFrame, column: str, prefix: str, exact: bool) -> DataFrame:
    """Count, sum, p50, p99 and maximum of durations in ns, per run.

    A percentile is one of the durations (nearest rank), or close to it (`ACCURACY`) unless `exact`. The sum
    is in two numbers, since it may exceed 64 bits (`total`).
    """
    low = (1 << _LOW_BITS) - 1
    if exact:
        p50, p99 = (
            f.expr(f"percentile_disc({share}) within group (order by {column})") for share in ("0.5", "0.99")
        )
    else:
        both = f.percentile_approx(column, [0.5, 0.99], ACCURACY)
        p50, p99 = both[0], both[1]
    numbers = {
        "count": f.count(column),
        "high": f.sum(f.shiftright(f.col(column), _LOW_BITS)),
        "low": f.sum(f.col(column).bitwiseAND(low)),
        "p50": p50,
        "p99": p99,
        "max": f.max(column),
    }
    counted = durations.groupBy(c.RUN).agg(
        *[number.alias(f"{prefix}_{name}") for name, number in numbers.items()]
    )
    return named(counted, {f"{prefix}_{name}": (None, f"{prefix}_{name}") for name in numbers})


def total(numbers: Mapping[str, int], prefix: str) -> int:
    return (numbers[f"{prefix}_high"] << _LOW_BITS) + numbers[f"{prefix}_low"]


def together(parts: list[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.unionByName(right), parts)


def first_deliveries(deliveries: DataFrame) -> DataFrame:
    """One row per event and subscription: time of the first delivery, and number of deliveries."""
    return deliveries.groupBy(*c.DELIVERY).agg(
        f.min(c.TIME_NS).alias(c.DELIVERED_NS), f.count(f.lit(1)).alias(c.TIMES)
    )


def latencies(first: DataFrame, events: DataFrame) -> DataFrame:
    """One row per event published after the set-up and subscription that it reached: ns from publishing to
    the first delivery."""
    published = events.where(c.after_setup()).select(*c.EVENT, f.col(c.TIME_NS).alias(c.PUBLISHED_NS))
    return first.join(published, on=list(c.EVENT), how="inner").select(
        *c.DELIVERY, c.PUBLISHED_NS, (f.col(c.DELIVERED_NS) - f.col(c.PUBLISHED_NS)).alias(c.LATENCY_NS)
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


_MEASURED, _LINK = "measured", "link"


def messages_by_link(messages: DataFrame) -> DataFrame:
    """One row per run, direction of a link and kind of message: control messages after the set-up; `measured`
    ones and events in the measured phase. An event counts once for each message that carries it."""
    is_control = ~f.col(c.KIND).isin(*c.WITH_EVENTS)

    def total(column: str, condition: Column) -> Column:
        return f.coalesce(f.sum(f.when(condition, f.col(column))), f.lit(0))

    return messages.groupBy(c.RUN, c.SOURCE, c.TARGET, c.KIND).agg(
        total(c.MESSAGES, is_control & c.after_setup()).alias(c.MESSAGES),
        total(c.MESSAGES, is_control & c.measured()).alias(_MEASURED),
        total(c.EVENTS, c.measured()).alias(c.EVENTS),
    )


def control_numbers(links: DataFrame) -> DataFrame:
    """From `messages_by_link`, per run: control messages in all, by kind, between brokers and in the busiest
    direction of a link, and what each broker received in the measured phase."""
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
    """Busy ns per run and broker in the measured phase, unless the run ended in it.

    A trace has each broker's accumulated busy time at the start of each phase and at the end; a broker that
    joins later starts at 0.
    """
    at_start = f.min(f.when(c.measured(), f.col(c.BUSY_NS)))
    at_end = f.min(f.when(~c.measured() & c.after_setup(), f.col(c.BUSY_NS)))
    busy = work.groupBy(c.RUN, c.BROKER).agg(
        f.lit(0).alias("known"), (at_end - f.coalesce(at_start, f.lit(0))).alias(c.BUSY_NS)
    )
    return named(busy, {"broker_busy_ns": (c.BROKER, c.BUSY_NS), "broker": (c.BROKER, "known")})

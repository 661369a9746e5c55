"""Delay of a change of a subscription (Jayaram et al., section 5.2): which event answers which change.

The first delivered event that matches the new values and not the old ones answers a change. A change stays
open until then, whatever changes follow: if only answers before the next change counted, a subscription that
changes faster than the overlay would show its fast answers only. An event answers none but the `OPEN` newest
changes of its subscription.

A delivery has the version that was newest at its moment, so order needs no clock. Versions form blocks of
`OPEN`, and a delivery meets those of its own block and of the block before: no subscription, however long its
history, has to be in one task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Window
from pyspark.sql import functions as f

from covey.sim.metrics import columns as c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from covey.matcher import Filter

OPEN = 256
_BLOCK = "block"
_BLOCKED = (*c.SUBSCRIBED, _BLOCK)
_OLD, _NEW, _EVENT, _NEWEST, _FIRST = "old", "new", "event", "newest", "first"


class Evaluation(Protocol):
    """Filters by number: `FilterColumns` or `FilterRows`."""

    filters: dict[int, Filter]

    def event(self, values: Column) -> Column: ...
    def operands(self, values: Column) -> Column: ...
    def matches(self, number: Column, event: Column, operands: Column, at_ns: Column) -> Column: ...


def delays(
    versions: DataFrame, deliveries: DataFrame, events: DataFrame, evaluations: Iterable[Evaluation]
) -> DataFrame:
    """One row per change that was answered: when the client changed the subscription, nanoseconds from then
    to the delivery of the event that answers, and that event. `versions` have the number of their filter.
    """
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
    """One row per change after the set-up: its block, the number of its filter, and its operands, new and
    old. The last version of a block is in the next block too, as the one before its first."""
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
    """One row per delivery to a subscription that has changed, and block that it meets."""
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

"""Attributes of events and operands of filters as Spark columns, from JSON, and their exact comparison.

A number beside an attribute is stored as the closest value of the attribute's kind (`near`) and the side on
which the number lies: 0 it is the number, 1 the number is just above it, -1 just below. So int64 is never
rounded to float64: 2.5 beside an int64 is (2, 1), and 2**53 + 1 beside a float64 is (2.0**53, 1). A number
outside int64 becomes the first or last int64, which no event has. Times are microseconds since the epoch.
NaN occurs in events alone; Spark orders it above infinity, filters do not.
"""

from __future__ import annotations

from math import nextafter
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f

from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MAX
from covey.matcher.expressions.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

_NUMBERS = (Kind.INT64, Kind.FLOAT64)
_TYPES = {Kind.INT64: "bigint", Kind.FLOAT64: "double", Kind.BOOL: "boolean"}
_MOTION = "value double, rate double, since_ns bigint"
_NS_PER_S = 1e9
_ABOVE_INT64 = 2.0**63
_LAST_BELOW = nextafter(_ABOVE_INT64, 0.0)


class Operand(NamedTuple):
    """An operand at the time of an event; the side is None for kinds that are no numbers."""

    near: Column
    side: Column | None


def attribute(text: Column, kind: Kind) -> Column:
    """An event's value of an attribute, from its JSON text; null where it is missing. Of a list the text."""
    if kind is Kind.TIMESTAMP:
        return f.unix_micros(text.try_cast("timestamp"))
    return text.try_cast(_TYPES[kind]) if kind in _TYPES else text


def operand(text: Column, kind: Kind) -> Column:
    """An operand beside an attribute of a kind, from its JSON text: a struct of `near`, and for numbers of
    `side`, and of `value`, `rate` and `since_ns`, which are null unless it moves."""
    if kind not in _NUMBERS:
        return f.struct(attribute(text, kind).alias("near"))
    motion = f.when(text.startswith("{"), f.from_json(text, _MOTION))
    whole, number = text.try_cast("bigint"), text.try_cast("double")
    near, side = _of_double(number, kind)
    if kind is Kind.INT64:
        near, side = f.coalesce(whole, near), f.when(whole.isNotNull(), 0).otherwise(side)
    else:
        back = _floor(number)  # which is the number itself where `whole` is not exact
        below = (number >= _ABOVE_INT64) | (whole < back)
        side = f.when(whole.isNull(), 0).when(below, -1).when(whole > back, 1).otherwise(0)
    columns = {"near": near, "side": side.cast("byte")}
    columns |= {name: motion.getField(name) for name in ("value", "rate", "since_ns")}
    return f.struct(*[column.alias(name) for name, column in columns.items()])


def _of_double(number: Column, kind: Kind) -> tuple[Column, Column]:
    if kind is Kind.FLOAT64:
        return number, f.lit(0)
    floor = _floor(number)
    return floor, f.when(floor.cast("double") == number, 0).otherwise(1)


def _floor(number: Column) -> Column:
    """As int64; the first or last one where the number is outside."""
    inside = f.least(f.greatest(number, f.lit(-_ABOVE_INT64)), f.lit(_LAST_BELOW))
    return f.when(number >= _ABOVE_INT64, INT64_MAX).otherwise(f.floor(inside))


def operand_at(stored: Column, kind: Kind, at_ns: Column, moves: bool) -> Operand:
    """A stored operand (`operand`) at one time, if it may move, in nanoseconds."""
    near = stored.getField("near")
    if kind not in _NUMBERS:
        return Operand(near, None)
    side = stored.getField("side")
    if not moves:
        return Operand(near, side)
    rate = stored.getField("rate")
    seconds = (at_ns - stored.getField("since_ns")).cast("double") / f.lit(_NS_PER_S)
    moved = _of_double(stored.getField("value") + rate * seconds, kind)
    return Operand(*[f.when(rate.isNull(), a).otherwise(b) for a, b in zip((near, side), moved, strict=True)])


def compared(value: Column, sign: Operator, operand: Operand) -> Column:
    """The truth of a comparison that is no `!=`; null where the value is missing."""
    near, side = operand
    if side is None:
        return _PLAIN[sign](value, near)
    same = value == near
    if sign is Operator.EQ:
        return same & (side == 0)
    if sign is Operator.LT:
        return (value < near) | (same & (side > 0))
    if sign is Operator.LE:
        return (value < near) | (same & (side >= 0))
    greater = (value > near) & ~f.isnan(value)
    return greater | (same & (side < 0 if sign is Operator.GT else side <= 0))


_PLAIN: dict[Operator, Callable[[Column, Column], Column]] = {
    Operator.EQ: lambda value, near: value == near,
    Operator.LT: lambda value, near: value < near,
    Operator.LE: lambda value, near: value <= near,
    Operator.GT: lambda value, near: value > near,
    Operator.GE: lambda value, near: value >= near,
}

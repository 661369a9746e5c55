"""The filters of traces, evaluated by Spark, by the rules of docs/filters.md.

The filters of a trace are structures, in which every operand is a variable, so few differ. Each is compiled
to a column (`FilterColumns`); filters with calls of named operators, or over the limits, are evaluated in
Python (`FilterRows`).

An operand is stored as `near`, the closest value of the attribute's kind, and `side`: 0 if equal, 1 if the
operand is just above `near`, -1 just below. So int64 is never rounded to float64: 2.5 for an int64 is (2, 1),
and 2**53 + 1 for a float64 is (2.0**53, 1). An operand outside int64 becomes the first or last int64, which
no event has. Times are microseconds since the epoch. NaN occurs in events alone; Spark orders it above
infinity, filters do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as f

from covey.matcher import EventType, Filter, parse
from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MAX
from covey.matcher.expressions.expression import And, Expression, Or, Predicate, Variable
from covey.matcher.expressions.operators import SPECS, Operator
from covey.matcher.expressions.rewriting import attributes_of
from covey.matcher.expressions.values import FAMILY, Family
from covey.overlay.core.moving.motion import Motion, still
from covey.sim.checkers.columns import predicates
from covey.sim.metrics import columns as c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from covey.matcher import Kind
    from covey.sim.metrics.numbers import Evaluation
    from covey.sim.trace.finding import Traces

_NUMBERS = (Kind.INT64, Kind.FLOAT64)
_TYPES = {Kind.INT64: "bigint", Kind.FLOAT64: "double", Kind.BOOL: "boolean"}
_MOTION = "value double, rate double, since_ns bigint"
_NS_PER_S = 1e9
_ABOVE_INT64 = 2.0**63
_LAST_BELOW = nextafter(_ABOVE_INT64, 0.0)


class Operand(NamedTuple):
    """An operand at the time of an event; `side` is None for kinds that are not numbers."""

    near: Column
    side: Column | None


def attribute(text: Column, kind: Kind) -> Column:
    """An event's value of an attribute, from its JSON text; null where it is missing. A list stays text."""
    if kind is Kind.TIMESTAMP:
        return f.unix_micros(text.try_cast("timestamp"))
    return text.try_cast(_TYPES[kind]) if kind in _TYPES else text


def operand(text: Column, kind: Kind) -> Column:
    """An operand from its JSON text, as a struct: `near`, and for numbers `side`, `value`, `rate` and
    `since_ns`; the last three are null unless it moves."""
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
    """An operand from the struct that `operand` returns, at `at_ns` if it may move."""
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
    """The truth of a comparison other than `!=`; null where the value is missing."""
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


VARIABLE_LIMIT = 64
"""A filter with more operands is not compiled."""
FILTER_LIMIT = 500

_JSON = "map<string,string>"
_TEXT: dict[Operator, Callable[[Column, Column], Column]] = {
    Operator.PREFIX: lambda value, text: value.startswith(text),
    Operator.SUFFIX: lambda value, text: value.endswith(text),
    Operator.CONTAINS: lambda value, text: value.contains(text),
}


class FilterColumns:
    """Compiled filters by number."""

    def __init__(self, filters: Mapping[int, Filter]) -> None:
        compiled = [number for number, filter in filters.items() if compiles(filter)][:FILTER_LIMIT]
        self.filters = {number: filters[number] for number in compiled}
        self._attributes: dict[tuple[str, Kind], str] = {}
        """The fields of events; one name may have another kind in another event type."""
        self._operands: dict[tuple[str, Kind], str] = {}
        """The fields of operands, by variable and the kind of the attribute that it is compared with."""
        for filter in self.filters.values():
            for predicate in predicates(filter.expression):
                kind = filter.event_type.attributes[predicate.attribute]
                self._attributes.setdefault((predicate.attribute, kind), f"a{len(self._attributes)}")
                for each in predicate.operands:
                    assert isinstance(each, Variable)
                    self._operands.setdefault((each.name, kind), f"o{len(self._operands)}")

    def event(self, values: Column) -> Column:
        """A struct of the attributes that the filters test, from the JSON of an event."""
        text = f.from_json(values, _JSON)
        fields = [
            attribute(text[name], kind).alias(field) for (name, kind), field in self._attributes.items()
        ]
        return f.struct(f.lit(0).alias("event"), *fields)

    def operands(self, values: Column) -> Column:
        """A struct of the filters' operands, from the JSON of a version's values."""
        text = f.from_json(values, _JSON)
        fields = [operand(text[name], kind).alias(field) for (name, kind), field in self._operands.items()]
        return f.struct(f.lit(0).alias("version"), *fields)

    def matches(self, number: Column, event: Column, operands: Column, at_ns: Column) -> Column:
        """Whether an event (`event`) with the ingress time `at_ns` matches the filter of a number with these
        operands (`operands`). False for a filter without a column."""
        truth = f.when(f.lit(False), f.lit(False))
        for each, filter in self.filters.items():
            kinds = filter.event_type.attributes
            truth = truth.when(number == each, self._truth(filter.expression, kinds, event, operands, at_ns))
        return f.coalesce(truth, f.lit(False))

    def _truth(
        self,
        expression: Expression,
        kinds: Mapping[str, Kind],
        event: Column,
        operands: Column,
        at_ns: Column,
    ) -> Column:
        """Null counts as false, which is right since no `not` stands above a predicate."""
        if isinstance(expression, And | Or):
            parts = [self._truth(part, kinds, event, operands, at_ns) for part in expression.parts]
            if isinstance(expression, And):
                return reduce(lambda left, right: left & right, parts, f.lit(True))
            return reduce(lambda left, right: left | right, parts, f.lit(False))
        assert isinstance(expression, Predicate)
        kind = kinds[expression.attribute]
        value = event.getField(self._attributes[expression.attribute, kind])
        sign, spec = expression.operator, SPECS[expression.operator]
        if spec.presence is not None:
            return value.isNotNull() if spec.presence else value.isNull()
        if spec.outside:  # of its complement, and so true for NaN
            inner = Predicate(expression.attribute, sign.complement, expression.operands)
            return value.isNotNull() & ~f.coalesce(
                self._truth(inner, kinds, event, operands, at_ns), f.lit(False)
            )
        known = [
            operand_at(
                operands.getField(self._operands[each.name, kind]), kind, at_ns, place in spec.widening
            )
            for place, each in enumerate(expression.operands)
            if isinstance(each, Variable)
        ]
        if sign is Operator.IN:
            parts = [compared(value, Operator.EQ, each) for each in known]
            return reduce(lambda left, right: left | right, parts, f.lit(False))
        if sign is Operator.BETWEEN:
            return compared(value, Operator.GE, known[0]) & compared(value, Operator.LE, known[1])
        if sign is Operator.NOT_BETWEEN:
            return compared(value, Operator.LT, known[0]) | compared(value, Operator.GT, known[1])
        if sign in _TEXT:
            return _TEXT[sign](value, known[0].near)
        return compared(value, sign, known[0])


def compiles(filter: Filter) -> bool:
    """Whether a filter has a column: no calls, and all operands variables, `VARIABLE_LIMIT` at the most."""
    if filter.calls:
        return False
    operands = [each for predicate in predicates(filter.expression) for each in predicate.operands]
    plain = all(isinstance(each, Variable) and each == Variable(each.name) for each in operands)
    return plain and len(operands) <= VARIABLE_LIMIT


class FilterRows:
    def __init__(self, filters: Mapping[int, Filter]) -> None:
        self.filters = dict(filters)

    def event(self, values: Column) -> Column:
        return values

    def operands(self, values: Column) -> Column:
        return values

    def matches(self, number: Column, event: Column, operands: Column, at_ns: Column) -> Column:
        filters = self.filters
        matches = f.udf(lambda number, *row: _matches(filters[number], *row), "boolean")
        return matches(number, event, operands, at_ns)


def _matches(filter: Filter, event: str, values: str, at_ns: int) -> bool:
    known: dict[str, Any] = {
        name: Motion(**value) if isinstance(value, dict) else _number(value, filter.family(name))
        for name, value in json.loads(values).items()
    }
    kinds = filter.event_type.attributes
    row = {
        name: _number(value, FAMILY.get(kinds[name])) if name in kinds else value
        for name, value in json.loads(event).items()
    }
    try:
        return filter.matches(row, still(known, at_ns))
    except Exception:  # of an operator, which is a function that Covey does not know
        return False


def _number(value: Any, family: Family | None) -> Any:
    """JSON lacks numbers such as infinity, which are stored as text (`sim/trace/tables.py`)."""
    return float(value) if isinstance(value, str) and family is Family.NUMBER else value


_Key = tuple[str, tuple[tuple[str, str], ...]]
_SCHEMA = pa.schema(
    [(c.RUN, pa.string()), (c.EVENT_TYPE, pa.string()), (c.FILTER, pa.string()), (c.NUMBER, pa.int32())]
)


@dataclass(slots=True)
class KnownFilters:
    """Filters by number: one for equal texts over attributes of equal kinds, whatever their event type."""

    filters: dict[int, Filter] = field(default_factory=dict)
    rows: list[tuple[str, str, str, int | None]] = field(default_factory=list)
    """Run, event type, text and number; None if the filter calls an operator that is not installed, or the
    trace lacks its event type."""

    @property
    def evaluations(self) -> list[Evaluation]:
        compiled = FilterColumns(self.filters)
        rest = {number: each for number, each in self.filters.items() if number not in compiled.filters}
        return [compiled, FilterRows(rest)] if rest else [compiled]

    def numbered(self, session: SparkSession, versions: DataFrame) -> DataFrame:
        """The versions with a column for the number of their filter, null if it cannot be evaluated."""
        rows = [dict(zip(_SCHEMA.names, row, strict=True)) for row in self.rows]
        table = pa.Table.from_pylist(rows, _SCHEMA)
        numbers = f.broadcast(session.createDataFrame(table))
        return versions.join(numbers, on=[c.RUN, c.EVENT_TYPE, c.FILTER], how="left")


def known_filters(traces: Traces, versions: DataFrame) -> KnownFilters:
    """The filters of the versions of all traces. Cost: one query."""
    rows = versions.select(c.RUN, c.EVENT_TYPE, c.FILTER).distinct().collect()
    return number_filters(traces, sorted(tuple(row) for row in rows))


def number_filters(traces: Traces, texts: Iterable[tuple[str, str, str]]) -> KnownFilters:
    known = KnownFilters()
    numbers: dict[_Key, int] = {}
    for run, type_name, text in texts:
        kinds = traces.runs[run].event_types.get(type_name)
        try:
            filter = parse(text, EventType(type_name, kinds or {}))
        except CoveyError:
            known.rows.append((run, type_name, text, None))
            continue
        attributes = filter.event_type.attributes
        used = tuple((name, str(attributes[name])) for name in sorted(attributes_of(filter.expression)))
        number = numbers.setdefault((text, used), len(numbers))
        known.filters.setdefault(number, filter)
        known.rows.append((run, type_name, text, number))
    return known

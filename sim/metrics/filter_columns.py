"""Filters compiled to Spark columns, so that Spark decides which event matches which version of a filter.

The rules of truth are those of docs/filters.md, and `Filter.matches` is the oracle of the tests. The filters
of a trace are structures, in which every operand is a variable, so there are few different ones. What has no
column is evaluated in Python (`filter_rows.py`): filters that call named operators, and what exceeds the
bounds below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from covey.matcher.expressions.expression import And, Expression, Or, Predicate, Variable
from covey.matcher.expressions.operators import SPECS, Operator
from covey.sim.metrics.operands import attribute, compared, operand, operand_at

if TYPE_CHECKING:
    from pyspark.sql import Column

    from covey.matcher import Filter, Kind

VARIABLE_LIMIT = 64
"""The most operands of a filter that is compiled."""
FILTER_LIMIT = 500
"""The most filters that are compiled for one query."""

_JSON = "map<string,string>"
_TEXT: dict[Operator, Callable[[Column, Column], Column]] = {
    Operator.PREFIX: lambda value, text: value.startswith(text),
    Operator.SUFFIX: lambda value, text: value.endswith(text),
    Operator.CONTAINS: lambda value, text: value.contains(text),
}


class FilterColumns:
    """The columns of filters, which have numbers."""

    def __init__(self, filters: Mapping[int, Filter]) -> None:
        compiled = [number for number, filter in filters.items() if compiles(filter)][:FILTER_LIMIT]
        self.filters = {number: filters[number] for number in compiled}
        """Those that have a column."""
        self._attributes: dict[tuple[str, Kind], str] = {}
        """The fields of events, by attribute; one name has another kind in another event type."""
        self._operands: dict[tuple[str, Kind], str] = {}
        """The fields of operands, by variable and the kind of the attribute beside it."""
        for filter in self.filters.values():
            for predicate in _predicates(filter.expression):
                kind = filter.event_type.attributes[predicate.attribute]
                self._attributes.setdefault((predicate.attribute, kind), f"a{len(self._attributes)}")
                for each in predicate.operands:
                    assert isinstance(each, Variable)
                    self._operands.setdefault((each.name, kind), f"o{len(self._operands)}")

    def event(self, values: Column) -> Column:
        """The attributes that the filters test, from the JSON of an event: a struct."""
        text = f.from_json(values, _JSON)
        fields = [
            attribute(text[name], kind).alias(field) for (name, kind), field in self._attributes.items()
        ]
        return f.struct(f.lit(0).alias("event"), *fields)

    def operands(self, values: Column) -> Column:
        """The operands of the filters, from the JSON of a version's values: a struct."""
        text = f.from_json(values, _JSON)
        fields = [operand(text[name], kind).alias(field) for (name, kind), field in self._operands.items()]
        return f.struct(f.lit(0).alias("version"), *fields)

    def matches(self, number: Column, event: Column, operands: Column, at_ns: Column) -> Column:
        """Whether an event (`event`) that entered the overlay at `at_ns` matches the filter of a number with
        these operands (`operands`). False for a filter without a column."""
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
        """Null counts as false: `and` and `or` keep it so, and there is no `not` above a predicate."""
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
    """Whether a filter has a column: without calls, and all its operands variables, `VARIABLE_LIMIT` at the
    most."""
    if filter.calls:
        return False
    operands = [each for predicate in _predicates(filter.expression) for each in predicate.operands]
    plain = all(isinstance(each, Variable) and each == Variable(each.name) for each in operands)
    return plain and len(operands) <= VARIABLE_LIMIT


def _predicates(expression: Expression) -> list[Predicate]:
    if isinstance(expression, Predicate):
        return [expression]
    parts = expression.parts if isinstance(expression, And | Or) else ()
    return [predicate for part in parts for predicate in _predicates(part)]

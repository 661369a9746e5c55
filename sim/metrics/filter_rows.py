"""Filters without a column, evaluated in Python row by row: by `Filter.matches`, on machines that have Covey.

It has the methods of `FilterColumns`. An event about which an operator fails does not match: its truth is
unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from covey.matcher.expressions.values import FAMILY, Family
from covey.overlay.core.moving.motion import Motion, still

if TYPE_CHECKING:
    from pyspark.sql import Column

    from covey.matcher import Filter


class FilterRows:
    """The filters by number."""

    def __init__(self, filters: Mapping[int, Filter]) -> None:
        self.filters = dict(filters)

    def event(self, values: Column) -> Column:
        return values

    def operands(self, values: Column) -> Column:
        return values

    def matches(self, number: Column, event: Column, operands: Column, at_ns: Column) -> Column:
        """As `FilterColumns.matches`."""
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
    """A number that JSON lacks, such as an infinity, from its text (`sim/trace/values.py`)."""
    return float(value) if isinstance(value, str) and family is Family.NUMBER else value

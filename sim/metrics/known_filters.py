"""The different filters of all traces, and which of them are compiled, evaluated in Python, or unreadable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from covey.matcher import EventType, Filter, parse
from covey.matcher.errors import CoveyError
from covey.matcher.expressions.rewriting import attributes_of
from covey.sim.metrics import columns as c
from covey.sim.metrics.filter_columns import FilterColumns
from covey.sim.metrics.filter_rows import FilterRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from covey.sim.metrics.delays import Evaluation
    from covey.sim.trace.finding import Traces

_Key = tuple[str, tuple[tuple[str, str], ...]]
_SCHEMA = pa.schema(
    [(c.RUN, pa.string()), (c.EVENT_TYPE, pa.string()), (c.FILTER, pa.string()), (c.NUMBER, pa.int32())]
)


@dataclass(slots=True)
class KnownFilters:
    """Filters by number. Equal texts over attributes of equal kinds have one number, whatever their type."""

    filters: dict[int, Filter] = field(default_factory=dict)
    rows: list[tuple[str, str, str, int | None]] = field(default_factory=list)
    """Run, event type, text and number; None for a filter that this installation of Covey cannot evaluate:
    it calls an operator that is not installed, or the trace lacks its event type."""

    @property
    def evaluations(self) -> list[Evaluation]:
        """All filters, each in the first way that evaluates it."""
        compiled = FilterColumns(self.filters)
        rest = {number: each for number, each in self.filters.items() if number not in compiled.filters}
        return [compiled, FilterRows(rest)] if rest else [compiled]

    def numbered(self, session: SparkSession, versions: DataFrame) -> DataFrame:
        """The versions, with the number of their filter, null for one that cannot be evaluated."""
        rows = [dict(zip(_SCHEMA.names, row, strict=True)) for row in self.rows]
        table = pa.Table.from_pylist(rows, _SCHEMA)
        numbers = f.broadcast(session.createDataFrame(table))
        return versions.join(numbers, on=[c.RUN, c.EVENT_TYPE, c.FILTER], how="left")


def known_filters(traces: Traces, versions: DataFrame) -> KnownFilters:
    """The filters of the versions of all traces. Cost: one query."""
    rows = versions.select(c.RUN, c.EVENT_TYPE, c.FILTER).distinct().collect()
    return number_filters(traces, sorted(tuple(row) for row in rows))


def number_filters(traces: Traces, texts: Iterable[tuple[str, str, str]]) -> KnownFilters:
    """Numbers for filters, given as run, event type and text."""
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

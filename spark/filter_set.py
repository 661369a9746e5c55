"""The filters of `match`, in any form, as one snapshot of `Matcher`.

    {7: 'firm == "IBM"', 8: "price < 3"}                       ids and texts
    "price < $limit", values=table                             one text, a column per variable, and `id`
    a table with the columns `filter`, `id` and variables      of pandas, Polars, Arrow or Spark
    a `Matcher`                                                as it is

The snapshot is a file with columns of filters and values: shipped once, and loaded at a million subscriptions
per second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher import EventType, Matcher
from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import RESERVED
from covey.matcher.expressions.rewriting import attributes_of
from covey.spark.options import SourceError
from covey.spark.schemas import parsed

FilterTable = Any
Filters = Matcher | Mapping[int, str] | Mapping[str, str] | str | FilterTable


@dataclass(frozen=True)
class FilterSet:
    """A matcher, the attributes of its filters, and the names of its ids where these are text."""

    matcher: Matcher
    event_type: EventType
    labels: pa.StringArray | None

    def save(self, folder: Path) -> tuple[str, Path]:
        """Write a snapshot; returns its digest and its file, which is named after the digest."""
        beside = folder / f"{get_ident()}.arrow"
        self.matcher.save(beside)
        with beside.open("rb") as file:
            digest = sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        place = folder / f"covey-{digest.hexdigest()[:32]}.arrow"
        beside.replace(place)
        return digest.hexdigest(), place


def filter_set(filters: Filters, values: FilterTable | None, event_type: EventType) -> FilterSet:
    """A matcher of filters in any form over events of a type. `SourceError` for filters or values that do not
    fit."""
    if isinstance(filters, Matcher):
        return _of_matcher(filters, event_type)
    if isinstance(filters, str):
        table = _table("values", values) if values is not None else None
        ids, columns = _ids(table, 1)
        return _built([filters], np.zeros(len(ids), np.int64), ids, columns, event_type)
    if values is not None:
        raise SourceError("values are given: expected filters to be one text with variables")
    if isinstance(filters, Mapping):
        texts = _array("filters", [*filters.values()], "text")
        columns = {}
        ids = _keys([*filters])
    else:
        table = _table("filters", filters)
        if "filter" not in table.column_names:
            raise SourceError(f"filters have the columns {', '.join(table.column_names)}: expected 'filter'")
        texts = _column(table, "filter")
        ids, columns = _ids(table.drop_columns(["filter"]), len(texts))
    if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type) and len(texts):
        raise SourceError(f"filters of type {texts.type}: expected text")
    if texts.null_count:
        raise SourceError(f"{texts.null_count:,} of {len(texts):,} filters are null: expected text")
    coded = pc.dictionary_encode(texts)
    return _built(coded.dictionary.to_pylist(), coded.indices.to_numpy(), ids, columns, event_type)


def _array(what: str, items: Sequence[Any], expected: str) -> pa.Array:
    try:
        return pa.array(items)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise SourceError(f"{what} are {kinds}: expected {expected}") from None


def _check_different(labels: pa.StringArray) -> None:
    counts = pc.value_counts(labels)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        again = repeated.field("values")[0].as_py()
        raise SourceError(f"an id of filters is {again!r} more than once: expected each id once")


def _keys(keys: Sequence[Any]) -> pa.Array:
    for key in keys:
        if isinstance(key, int) and not -(1 << 63) <= key < 1 << 63:
            raise SourceError(_outside(key))
    return _array("ids of filters", keys, "all integers, or all text")


def _outside(key: int) -> str:
    return f"an id of filters is {key}: expected an int64, from -2^63 to 2^63 - 1"


def _of_matcher(matcher: Matcher, event_type: EventType) -> FilterSet:
    for known in matcher.event_types:
        if known.name == event_type.name:
            if not known.agrees(event_type):
                raise SourceError(f"columns are {event_type!r}: expected those of the matcher, {known!r}")
            return FilterSet(matcher, event_type, None)
    known_names = ", ".join(each.name for each in matcher.event_types) or "none"
    raise SourceError(f"event type {event_type.name!r}: expected one of the matcher, {known_names}")


def _built(
    texts: Sequence[str], numbers: Any, ids: pa.Array, columns: dict[str, Any], event_type: EventType
) -> FilterSet:
    compiled = [parsed("filter", text, event_type) for text in texts]
    labels = None
    if ids.null_count:
        raise SourceError(f"{ids.null_count:,} of {len(ids):,} ids of filters are null: expected one each")
    if pa.types.is_integer(ids.type):
        try:
            plain = ids.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            raise SourceError(_outside(pc.max(ids).as_py())) from None
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or not len(ids):
        labels, plain = ids.cast(pa.string()), np.arange(len(ids))
        _check_different(labels)
    else:
        raise SourceError(f"ids of filters are {ids.type}: expected integers or text")
    matcher = Matcher(event_type)
    try:
        matcher.add_all(plain, compiled, columns, numbers=numbers)
    except CoveyError as error:
        raise SourceError(f"filters: {error}") from None
    named: set[str] = set().union(*(attributes_of(each.expression) for each in compiled))
    used = {name: kind for name, kind in event_type.attributes.items() if name in named}
    used = used or {event_type.names[0]: event_type.kinds[0]}
    return FilterSet(matcher, EventType(event_type.name, used), labels)


def _ids(table: pa.Table | None, count: int) -> tuple[pa.Array, dict[str, Any]]:
    """The ids, by default from 0 on, and the table's other columns."""
    if table is None:
        return pa.array(np.arange(count)), {}
    columns = {name: _column(table, name) for name in table.column_names}
    ids = columns.pop("id", None)
    return pa.array(np.arange(table.num_rows)) if ids is None else ids, columns


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _table(what: str, given: FilterTable) -> pa.Table:
    if hasattr(given, "toArrow"):  # of Spark
        return given.toArrow()
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, Mapping):
        return pa.table(dict(given))
    if hasattr(given, "to_arrow"):  # of Polars
        return given.to_arrow()
    if hasattr(given, "iloc"):
        return pa.Table.from_pandas(given, preserve_index=False)
    raise SourceError(
        f"{what} are {type(given).__name__}: expected a table of Spark, pandas, Polars or Arrow"
    )


def usable(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name not in RESERVED

"""Events as Python mappings and as DataFrames, to and from the Arrow columns of a batch.

pandas is optional, and imported by `data_frame_of` only. It has one mark for missing values and NaN: a
float64 column turns both into NaN, and back into None. Everything else survives a round trip, int64 with
missing values included."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from covey.matcher.errors import CoveyError, EventError
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import FIRST, LAST
from covey.matcher.events.packed_columns import MOST_PACKED, PackedColumns
from covey.matcher.events.times import FIRST_US, LAST_US, microseconds, moment_of

_ACCEPTED: dict[Kind, tuple[type, ...]] = {
    Kind.INT64: (int, np.integer),
    Kind.FLOAT64: (float, int, np.floating, np.integer),
    Kind.STRING: (str,),
    Kind.BOOL: (bool, np.bool_),
    Kind.TIMESTAMP: (datetime, str, np.datetime64),
    Kind.STRINGS: (list, tuple, np.ndarray),
}
_EXPECTED = {
    Kind.INT64: "an integer from -2**63 + 1 to 2**63 - 2",
    Kind.FLOAT64: "a number that a float64 holds exactly",
    Kind.STRING: "a string of valid Unicode",
    Kind.BOOL: "true or false",
    Kind.TIMESTAMP: "a datetime in whole microseconds or an ISO 8601 string, in the years 1 to 9999",
    Kind.STRINGS: "a list of strings of valid Unicode",
}


def events_of_rows(
    event_type: EventType, rows: Sequence[Mapping[str, object]]
) -> pa.RecordBatch | PackedColumns:
    """Events from mappings: few in packed columns, more in a record batch. A missing key means None."""
    rows = rows if isinstance(rows, list) else list(rows)
    _check_keys(event_type, rows)
    is_few = 0 < len(rows) <= MOST_PACKED and not event_type.has_lists
    packed = PackedColumns.of_rows(event_type, rows) if is_few else None
    if packed is not None:
        return packed
    arrays = [
        column_of([row.get(name) for row in rows], event_type, name, kind)
        for name, kind in event_type.attributes.items()
    ]
    records = pa.RecordBatch.from_arrays(arrays, schema=event_type.arrow_schema)
    return PackedColumns.of_records(event_type, records) if is_few else records


def rows_of(event_type: EventType, records: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [
        [None if v is None else moment_of(v) for v in column.cast(pa.int64()).to_pylist()]
        if kind is Kind.TIMESTAMP
        else column.to_pylist()
        for column, kind in zip(records.columns, event_type.kinds, strict=True)
    ]
    return [dict(zip(event_type.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _check_keys(event_type: EventType, rows: list[Mapping[str, object]]) -> None:
    try:
        keys = set(chain.from_iterable(rows))
    except TypeError:
        keys = {""}
    if keys <= event_type.attributes.keys() and all(issubclass(t, Mapping) for t in set(map(type, rows))):
        return
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise EventError(
                f"event {position} of {event_type.name}: expected a mapping from attribute to value, "
                f"got {type(row).__name__}"
            )
        for key in row:
            if key not in event_type.attributes:
                raise EventError(
                    f"event {position} of {event_type.name}: unknown attribute {key!r} (value {row[key]!r}), "
                    f"expected one of {', '.join(event_type.names)}"
                )


def column_of(values: list[object], event_type: EventType, name: str, kind: Kind) -> pa.Array:
    """One attribute's values as an Arrow column; `EventError` names the event and the value."""
    types = set(map(type, values))
    types.discard(type(None))
    accepted = _ACCEPTED[kind]
    plain = all(issubclass(t, accepted) for t in types)
    if kind is not Kind.BOOL:
        plain = plain and bool not in types
    if kind is Kind.TIMESTAMP and plain and types - {datetime}:
        values = [_timestamp_us(value, event_type, name, i) for i, value in enumerate(values)]
    if kind is Kind.STRINGS and plain:
        plain = all(value is None or _has_strings(value) for value in values)
    if plain and kind is Kind.INT64:
        numbers: list[Any] = [value for value in values if value is not None]
        plain = not numbers or (min(numbers) >= FIRST and max(numbers) <= LAST)
    if plain:
        try:
            return pa.array(values, type=kind.arrow, from_pandas=False)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
    for position, value in enumerate(values):
        _check_value(value, event_type, name, kind, position)
    return pa.array([_arrow_value(value, kind) for value in values], type=kind.arrow, from_pandas=False)


def _arrow_value(value: object, kind: Kind) -> object:
    """A value for Arrow: for float64, an integer over 2**53 becomes the float that it equals, if any."""
    if kind is not Kind.FLOAT64 or not isinstance(value, int | np.integer):
        return value
    try:
        nearest = float(value)
    except OverflowError:
        return value
    return nearest if int(nearest) == int(value) else value


def _check_value(value: object, event_type: EventType, name: str, kind: Kind, position: int) -> None:
    if value is None:
        return
    fits = kind is not Kind.STRINGS or _has_strings(value)
    if isinstance(value, _ACCEPTED[kind]) and (kind is Kind.BOOL or not isinstance(value, bool)) and fits:
        try:
            pa.array([_arrow_value(value, kind)], type=kind.arrow, from_pandas=False)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
        else:
            if kind is not Kind.INT64 or FIRST <= value <= LAST:  # type: ignore[operator]
                return
    raise _value_error(value, event_type, name, kind, position)


def _has_strings(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and all(isinstance(text, str) for text in value)


def _value_error(value: object, event_type: EventType, name: str, kind: Kind, position: int) -> EventError:
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return EventError(
        f"event {position} of {event_type.name}: attribute {name} is {kind}, got {shown} "
        f"({type(value).__name__}); expected {_EXPECTED[kind]}"
    )


def _timestamp_us(value: object, event_type: EventType, name: str, position: int) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, np.datetime64):
            exact = value.astype("datetime64[us]")
            if exact != value or np.isnat(exact):
                raise ValueError("finer than a microsecond")
            count = int(exact.astype(np.int64))
            if not FIRST_US <= count <= LAST_US:
                raise ValueError("out of range")
            return count
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        assert isinstance(moment, datetime)
        if getattr(moment, "nanosecond", 0):  # of a pandas.Timestamp
            raise ValueError("finer than a microsecond")
        return microseconds(moment)
    except (ValueError, OverflowError):
        raise _value_error(value, event_type, name, Kind.TIMESTAMP, position) from None


def is_data_frame(value: object) -> bool:
    """Whether a value is a pandas DataFrame, without loading pandas."""
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)  # None while another thread imports pandas
    return frame is not None and isinstance(value, frame)


def data_frame_of(records: pa.RecordBatch) -> Any:
    """A DataFrame with nullable `Int64` and `boolean` columns, float64, strings and `datetime64[us, UTC]`."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise CoveyError("EventBatch.to_pandas needs pandas: `pip install pandas`") from None
    nullable = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return records.to_pandas(types_mapper=nullable.get)


def records_of_frame(event_type: EventType, frame: Any) -> pa.RecordBatch:
    """The columns of a DataFrame, without its index, as an Arrow record batch of similar types."""
    if not is_data_frame(frame):
        raise EventError(f"{event_type.name}: expected a pandas DataFrame, got {type(frame).__name__}")
    names = [str(name) for name in frame.columns]
    arrays = [
        _column(event_type, name, event_type.attributes.get(name), frame.iloc[:, position])
        for position, name in enumerate(names)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _column(event_type: EventType, name: str, kind: Kind | None, series: Any) -> pa.Array:
    is_text = series.dtype.kind == "O" and series.dtype.name != "category"
    if is_text and kind is not None and kind is not Kind.STRING:
        values = series.astype(object)
        return column_of(values.where(values.notna(), None).tolist(), event_type, name, kind)
    try:
        array = pa.Array.from_pandas(series)
        if kind is Kind.INT64 and pa.types.is_floating(array.type):
            array = array.cast(pa.int64())  # pandas makes floats of integers where some are missing
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise EventError(f"{event_type.name}: column {name!r} does not fit {kind}: {error}") from None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array

"""Batches as DataFrames. pandas is optional, and imported by `to_pandas` only.

pandas has one mark for a missing value and for NaN: a float64 column turns both into NaN, and back into None.
Everything else survives the way there and back exactly, int64 with missing values included.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from covey.matcher.errors import CoveyError, EventError
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.python_rows import column_of


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
    """The columns of a DataFrame, without its index, as an Arrow record batch of much the same types."""
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

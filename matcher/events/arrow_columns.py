"""Arrow columns of other types, widened to the schema of an event type; received Arrow IPC messages with
record batches; and checks of their values.

Invariant: record batches from messages are valid, and take no more memory than the message, so their buffers
must not be compressed: 500 bytes would become gigabytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher.errors import EventError
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import FIRST, LAST
from covey.matcher.events.times import FIRST_US, LAST_US
from covey.matcher.events.value_columns import is_text


def _lossless(arrow_type: pa.DataType, kind: Kind) -> bool:
    """Whether every value of an Arrow type has one of this kind; the cast checks the range."""
    is_ = pa.types
    if is_.is_null(arrow_type):
        return True
    if is_.is_dictionary(arrow_type):
        return _lossless(arrow_type.value_type, kind)
    if kind is Kind.INT64:
        return bool(is_.is_integer(arrow_type))
    if kind is Kind.FLOAT64:
        return bool(is_.is_floating(arrow_type) or is_.is_integer(arrow_type))
    if kind is Kind.STRING:
        return is_text(arrow_type)
    if kind is Kind.STRINGS:
        is_list = is_.is_list(arrow_type) or is_.is_large_list(arrow_type)
        return bool(is_list and _lossless(arrow_type.value_type, Kind.STRING))
    if kind is Kind.BOOL:
        return bool(is_.is_boolean(arrow_type))
    return bool(is_.is_timestamp(arrow_type) or is_.is_date(arrow_type))


def conform(event_type: EventType, records: pa.RecordBatch) -> pa.RecordBatch:
    names = records.schema.names
    for column in names:
        if column not in event_type.attributes:
            raise EventError(
                f"{event_type.name}: unknown column {column!r}, expected only {', '.join(event_type.names)}"
            )
        if names.count(column) > 1:
            raise EventError(
                f"{event_type.name}: column {column!r} appears {names.count(column)} times, expected once"
            )
    arrays = []
    for name, kind in event_type.attributes.items():
        if name not in names:
            arrays.append(pa.nulls(records.num_rows, type=kind.arrow))
            continue
        array = records.column(name)
        if array.type != kind.arrow:
            if not _lossless(array.type, kind):
                raise EventError(
                    f"{event_type.name}: column {name!r} has Arrow type {array.type}, expected {kind.arrow} "
                    "or a type that widens to it without loss"
                )
            try:
                if kind is Kind.TIMESTAMP and pa.types.is_date(array.type):
                    array = array.cast(pa.timestamp("us"))
                array = array.cast(kind.arrow)
            except pa.ArrowException as error:
                raise EventError(f"{event_type.name}: column {name!r} does not fit {kind}: {error}") from None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=event_type.arrow_schema)


def imported(event_type: EventType, columns: Any) -> pa.RecordBatch | pa.Table:
    """An object with Arrow columns as pyarrow's; `EventError` for any other."""
    if isinstance(columns, pa.RecordBatch | pa.Table):
        return columns
    try:
        if hasattr(columns, "__arrow_c_stream__"):
            return pa.table(columns)
        if hasattr(columns, "__arrow_c_array__"):
            return pa.record_batch(columns)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kind = type(columns).__name__
        raise EventError(f"{event_type.name}: the columns of a {kind} cannot be read: {error}") from None
    raise EventError(
        f"{event_type.name}: expected an Arrow record batch or table, or what has `__arrow_c_stream__`, "
        f"got {type(columns).__name__}"
    )


def one_batch(table: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(table, pa.RecordBatch):
        return table
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    raise EventError(
        f"a table of {table.num_rows} rows does not fit one batch: expected fewer events at a time"
    )


RANGES = {
    Kind.INT64: (FIRST, LAST, "", "an integer from -2**63 + 1 to 2**63 - 2"),
    Kind.TIMESTAMP: (
        FIRST_US,
        LAST_US,
        " microseconds since 1970",
        "a timestamp in the years 1 to 9999",
    ),
}


def check_ranges(event_type: EventType, records: pa.RecordBatch) -> None:
    """`EventError` for integers and timestamps outside their attributes' ranges, and for lists with nulls."""
    if event_type.has_lists:
        _check_lists(event_type, records)
    for name, kind in event_type.attributes.items():
        if kind not in RANGES or records.num_rows == 0:
            continue
        first, last, _, _ = RANGES[kind]
        column = records.column(name)
        raw = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
        if raw.min() >= first and raw.max() <= last:
            continue
        extremes = pc.min_max(column.cast(pa.int64()))  # again, without the values of nulls
        low, high = extremes["min"].as_py(), extremes["max"].as_py()
        if low is not None:
            check_range(event_type, name, kind, low, high)


def _check_lists(event_type: EventType, records: pa.RecordBatch) -> None:
    for name, kind in event_type.attributes.items():
        if kind is Kind.STRINGS and records.column(name).flatten().null_count:
            raise EventError(f"{event_type.name}: column {name!r} holds a list with a null, expected strings")


def check_range(event_type: EventType, name: str, kind: Kind, low: int, high: int) -> None:
    """`EventError` if the least or the greatest integer or timestamp of an attribute is out of its range."""
    first, last, unit, expected = RANGES[kind]
    if low < first or high > last:
        raise EventError(
            f"{event_type.name}: column {name!r} holds {low if low < first else high}{unit}, "
            f"expected {expected}"
        )


MALFORMED = (pa.ArrowException, OSError, ValueError, EOFError, MemoryError, IndexError, TypeError)
"""What pyarrow raises for bytes that are no message."""

_HEADER, _COMPRESSION = 2, 3
"""The fields `header` of the table Message, and `compression` of RecordBatch, in Arrow's Message.fbs."""


def read_record_batch(message: pa.ipc.Message, schema: pa.Schema, subject: str) -> pa.RecordBatch:
    """The record batch of a message; `EventError`, which begins with `subject`, for any other message."""
    try:
        if message.type != "record batch":
            raise EventError(f"{subject}: expected an Arrow record batch message, got {message.type}")
        if _is_compressed(message.metadata.to_pybytes()):
            raise EventError(f"{subject}: a compressed record batch, expected an uncompressed one")
        records = pa.ipc.read_record_batch(message, schema)
        records.validate(full=True)
    except EventError:
        raise
    except (*MALFORMED, struct.error) as error:
        raise EventError(f"{subject}: malformed record batch: {error}") from None
    return records


def _is_compressed(metadata: bytes) -> bool:
    (root,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, root, _HEADER)
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _field(metadata, header + offset, _COMPRESSION) > 0


def _field(data: bytes, table: int, number: int) -> int:
    """The offset of a field of a flatbuffer's table; 0 if it is absent."""
    virtual = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * number
    if entry + 2 > struct.unpack_from("<H", data, virtual)[0]:
        return 0
    (offset,) = struct.unpack_from("<H", data, virtual + entry)
    return table + offset if offset else 0

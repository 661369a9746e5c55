"""Single events as rows, before they gather in a batch: the values of all attributes in the order of the
schema, each as in packed columns (`packed_columns.py`).

Values of exactly the Python type of their attributes are checked and converted here; otherwise a batch of the
one event is built, which decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import FIRST, LAST
from covey.matcher.events.packed_columns import MOST_PACKED, PackedColumns
from covey.matcher.events.times import FIRST_US, LAST_US, microseconds

Row: TypeAlias = Sequence[Any]

_EXACT = 1 << 53  # integers up to here are exact in a float64
_TYPES = {Kind.INT64: int, Kind.FLOAT64: float, Kind.STRING: str, Kind.BOOL: bool, Kind.TIMESTAMP: datetime}


class PlainRows:
    __slots__ = ("_empty_bytes", "_fields", "event_type")

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self._fields = [(name, _TYPES.get(kind)) for name, kind in event_type.attributes.items()]
        self._empty_bytes = int(EventBatch.from_pylist(event_type, [{}]).event_bytes()[0])

    def row(self, values: Mapping[str, object]) -> tuple[Row, int]:
        """An event, and its bytes as brokers count them; `EventError` if it does not fit its type."""
        row: list[Any] = []
        size, present = self._empty_bytes, 0
        for name, expected in self._fields:
            value: Any = values.get(name)
            if value is not None:
                present += 1
                of = value.__class__
                if of is not expected:
                    if expected is not float or of is not int or not -_EXACT <= value <= _EXACT:
                        return self._precise(values)
                    value = float(value)
                elif of is str:
                    if value.isascii():
                        size += len(value)
                    else:
                        try:
                            size += len(value.encode())
                        except UnicodeEncodeError:
                            return self._precise(values)
                elif of is int:
                    if not FIRST <= value <= LAST:
                        return self._precise(values)
                elif of is datetime:
                    value = microseconds(value)
                    if not FIRST_US <= value <= LAST_US:
                        return self._precise(values)
            row.append(value)
        if present != len(values) and not values.keys() <= self.event_type.attributes.keys():
            return self._precise(values)
        return row, size

    def _precise(self, values: Mapping[str, object]) -> tuple[Row, int]:
        batch = EventBatch.from_pylist(self.event_type, [values])
        columns = batch.columns or PackedColumns.of_records(self.event_type, batch.record_batch)
        return [column[0] for column in columns.columns], int(batch.event_bytes()[0])

    def batch(self, rows: Sequence[Row]) -> EventBatch:
        event_type = self.event_type
        columns = [*map(list, zip(*rows, strict=True))]
        if len(rows) <= MOST_PACKED and not event_type.has_lists:
            return EventBatch(event_type, PackedColumns(event_type, columns, len(rows)))
        arrays = [
            pa.array(column, type=kind.arrow) for column, kind in zip(columns, event_type.kinds, strict=True)
        ]
        return EventBatch(event_type, pa.RecordBatch.from_arrays(arrays, schema=event_type.arrow_schema))

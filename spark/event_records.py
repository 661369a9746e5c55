"""Held events as Arrow record batches in the schema of a stream, metadata included where it is in that."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from covey.matcher import EventBatch, EventType
from covey.matcher.events.event_type import Kind
from covey.overlay.core.messages import Gap
from covey.spark.schemas import arrow_schema

METADATA = (
    ("_publisher", Kind.STRING),
    ("_sequence", Kind.INT64),
    ("_ingress", Kind.TIMESTAMP),
    ("_broker", Kind.STRING),
)
"""`_publisher` and `_sequence` identify an event, whichever broker it comes from."""
GAPS = (("_missed", Kind.INT64), ("_until", Kind.TIMESTAMP))
"""Of a row that stands for dropped events: how many, and when the last of them entered the overlay;
`_ingress` is when the first did, and all attributes are null."""


class EventRecords:
    """Builds record batches with the columns of `schema`."""

    def __init__(self, event_type: EventType, schema: StructType) -> None:
        self.event_type = event_type
        self._target = arrow_schema(schema)

    def build(self, broker: str, contents: Iterable[EventBatch | Gap]) -> list[pa.RecordBatch]:
        """A record batch per publisher, its events in their order, and one per gap."""
        batches: dict[str, list[EventBatch]] = {}
        records = []
        for content in contents:
            if isinstance(content, Gap):
                records.append(self._of_gap(broker, content))
            else:
                batches.setdefault(content.publisher, []).append(content)
        return [self._of_events(broker, each) for each in batches.values()] + records

    def _of_events(self, broker: str, batches: list[EventBatch]) -> pa.RecordBatch:
        joined = EventBatch.concat(batches).with_schema(self.event_type)
        count = len(joined)
        ingress_us = np.repeat([batch.ingress_ns // 1_000 for batch in batches], [len(b) for b in batches])
        columns = {
            **dict(zip(self.event_type.names, joined.record_batch.columns, strict=True)),
            "_publisher": pa.repeat(pa.scalar(joined.publisher), count),
            "_sequence": pa.array(joined.sequences()),
            "_ingress": pa.array(ingress_us, pa.int64()),
            "_broker": pa.repeat(pa.scalar(broker), count),
        }
        return self._columns(columns, count)

    def _of_gap(self, broker: str, gap: Gap) -> pa.RecordBatch:
        columns = {
            "_ingress": pa.array([gap.first_ns // 1_000]),
            "_broker": pa.array([broker]),
            "_missed": pa.array([gap.count]),
            "_until": pa.array([gap.last_ns // 1_000]),
        }
        return self._columns(columns, 1)

    def _columns(self, columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
        arrays = []
        for field in self._target:
            array = columns.get(field.name)
            if array is None:
                array = pa.nulls(count, field.type)
            elif array.type != field.type:
                array = array.cast(field.type)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)

"""The reader of a stream: offsets per broker, and micro-batches that can be read again until committed.

Spark asks one process on the driver's machine for offsets and partitions, and reads partitions in workers
anywhere. Only that process has the events, so a partition contains its rows, as an Arrow stream. An offset
names the session besides the row, since a session's rows end with its process. Methods have the signatures of
Spark 4.0, which later versions accept.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from covey.matcher import EventBatch, EventType, Filter
from covey.matcher.events.event_type import Kind
from covey.overlay.core.messages import Gap
from covey.spark.options import SourceError, StreamOptions
from covey.spark.receiver import Receiver, first_error
from covey.spark.schemas import arrow_schema

METADATA = (
    ("_publisher", Kind.STRING),
    ("_sequence", Kind.INT64),
    ("_ingress", Kind.TIMESTAMP),
    ("_broker", Kind.STRING),
)
"""`_publisher` and `_sequence` identify an event, whichever broker delivers it."""
GAPS = (("_missed", Kind.INT64), ("_until", Kind.TIMESTAMP))
"""Of a gap's row: the number of dropped events, and the ingress time of the last; `_ingress` is that of the
first, and all attributes are null."""


class EventRecords:
    def __init__(self, event_type: EventType, schema: StructType) -> None:
        self.event_type = event_type
        self._target = arrow_schema(schema)

    def build(self, broker: str, contents: Iterable[EventBatch | Gap]) -> list[pa.RecordBatch]:
        """A record batch per publisher, in order, and one per gap."""
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


log = logging.getLogger("covey.spark")

PARTITION_BYTES = 768 << 10
"""Spark ships a partition with its task, and warns of tasks above 1,000 KiB."""

Offsets = dict[str, dict[str, Any]]
"""By broker: the session, the rows read in it (`events`), and the events that the broker dropped
(`missed`)."""


class EventPartition(InputPartition):
    def __init__(self, rows: bytes) -> None:
        self.rows = rows


class EventStreamReader(DataSourceStreamReader):
    """Its sessions open at the first call that needs them, since Spark also makes readers to ship them."""

    def __init__(
        self, options: StreamOptions, event_type: EventType, filter: Filter, schema: StructType
    ) -> None:
        self._options = options
        self._event_type = event_type
        self._filter = filter
        self._schema = schema
        self._receiver: Receiver | None = None
        self._records: EventRecords | None = None
        self._offered: dict[str, int] = {}
        self._planned: dict[str, int] = {}
        self._before: Any = None

    def _opened(self) -> Receiver:
        if self._receiver is None:
            self._before = _stop_on_sigterm()
            try:
                self._receiver = Receiver(self._options, self._event_type, self._filter)
            except BaseExceptionGroup as group:
                raise first_error(group) from None
            self._records = EventRecords(self._event_type, self._schema)
            self._offered = dict.fromkeys(self._receiver.held, 0)
        if self._receiver.error is not None:
            raise self._receiver.error.with_traceback(None)
        return self._receiver

    def initialOffset(self) -> Offsets:  # noqa: N802
        return self._offsets(self._opened())

    def latestOffset(self) -> Offsets:  # type: ignore[override]  # noqa: N802
        """The end of the next micro-batch. Spark asks once the planned batch is done."""
        receiver = self._opened()
        for address, stop in self._planned.items():
            receiver.finish(address, stop)
        for address, held in receiver.held.items():
            offered = self._offered[address]
            self._offered[address] = min(held.stop, offered + self._options.batch_events)
        return self._offsets(receiver)

    def _offsets(self, receiver: Receiver) -> Offsets:
        return {
            address: {"session": receiver.session, "events": self._offered[address], "missed": held.missed}
            for address, held in receiver.held.items()
        }

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        receiver = self._opened()
        assert self._records is not None
        found: list[InputPartition] = []
        for address, last in end.items():
            first = start.get(address, {})
            if last["session"] != receiver.session or address not in receiver.held:
                self._report_loss(address, first, last)
                continue
            if first and first["session"] != receiver.session:
                log.warning("%s: events of %s between two runs of the query are lost", self._name, address)
            row = first["events"] if first.get("session") == receiver.session else 0
            self._planned[address] = last["events"]
            records = self._records.build(address, receiver.held[address].rows(row, last["events"]))
            found += [EventPartition(rows) for rows in _divided(records)]
        return found

    @property
    def _name(self) -> str:
        return self._options.name

    def _report_loss(self, address: str, first: dict[str, Any], last: dict[str, Any]) -> None:
        count = last["events"] - (first["events"] if first.get("session") == last["session"] else 0)
        what = f"{count} events of {address}, which an earlier run of the query had read and not committed"
        if self._options.on_loss == "fail" and count:
            raise SourceError(
                f"option on_loss is 'fail': {what}, are gone with its process; expected 'report' to go on "
                "without them"
            )
        log.warning("%s: %s, are lost", self._name, what)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EventPartition)
        with pa.ipc.open_stream(partition.rows) as rows:
            yield from rows

    def commit(self, end: Offsets) -> None:
        receiver = self._receiver
        if receiver is not None:
            for address, last in end.items():
                if last["session"] == receiver.session and address in receiver.held:
                    receiver.commit(address, last["events"])

    def stop(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            if self._before is not None:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            receiver.close()
            if self._before is not None:
                signal.signal(signal.SIGTERM, self._before)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None, "_records": None, "_before": None}


def _divided(records: list[pa.RecordBatch]) -> Iterator[bytes]:
    """Record batches as Arrow streams of about `PARTITION_BYTES`, with rows in order."""
    sink = pa.BufferOutputStream()
    writer = None
    for batch in records:
        share = max(1, batch.num_rows * PARTITION_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, share):
            if writer is None:
                sink = pa.BufferOutputStream()
                writer = pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch.slice(start, share))
            if sink.tell() >= PARTITION_BYTES // 2:
                writer.close()
                writer = None
                yield sink.getvalue().to_pybytes()
    if writer is not None:
        writer.close()
        yield sink.getvalue().to_pybytes()


def _stop_on_sigterm() -> Any:
    """Have SIGTERM, by which Spark ends the source's process, call `stop`, so that sessions end at brokers.
    Spark may close the connection first, and repeat the signal: repetitions are ignored."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    return signal.signal(signal.SIGTERM, end)

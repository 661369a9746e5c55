"""The sink: each task publishes its rows by a client of its own, and waits until they are accepted. Publisher
and sequence numbers come from the query or write, the partition and the micro-batch, not from the attempt, so
a repeated task repeats its events and readers drop them (`overlay/core/watermarks.py`). That needs rows in
the same order each time; readers that have connected since get them once more."""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from covey.matcher import EventBatch
from covey.matcher.errors import CoveyError
from covey.overlay.client import Client, ConnectError
from covey.overlay.client.blocking import LoopThread
from covey.overlay.core.client.session import ClientSession
from covey.spark.options import SinkOptions, SourceError
from covey.spark.schemas import check_columns, event_type_of, find_event_type_or_none, unreachable

log = logging.getLogger("covey.spark")

_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
"""Spark 4.0 passes rows to the writers of streams, later versions Arrow."""
_ROWS = 8_192
_BATCH, _QUERY = "streaming.sql.batchId", "sql.streaming.queryId"
_EVENTS_PER_BATCH = 1 << 32


@dataclass
class Published(WriterCommitMessage):
    partition: int
    events: int


class EventSink:
    """A writer of batches or streams. `SourceError` if the columns do not fit the type."""

    _of_query = False
    """Whether events have the identity of query and micro-batch. `foreachBatch` may write a micro-batch
    several times, so there it is the write's."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._address = options.address
        self._job = secrets.token_hex(6)
        known = find_event_type_or_none(options)
        if known is None:
            self._event_type = event_type_of(options.type, schema, widened=True)
        else:
            check_columns(known, schema, widened=True)
            self._event_type = known

    def write(self, iterator: Iterator[Any]) -> Published:
        """Publish the rows of one task; returns when the broker has accepted them all."""
        task = TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        batch = query = None
        if task is not None and self._of_query:
            batch, query = task.getLocalProperty(_BATCH), task.getLocalProperty(_QUERY)
        attempt = 0 if task is None else task.taskAttemptId()
        records = iter(self._records(iterator))
        first = next(records, None)
        if first is None:
            return Published(partition, 0)
        job = self._job if batch is None else query or self._job
        thread = LoopThread(f"covey sink {job}/{partition}").start()
        try:
            options = self._options
            base = thread.run(options.client_name() if batch is None else options.owned(options.publisher))
            publisher = f"{base}/{job}/{partition}"
            session = ClientSession(publisher, first_sequence=int(batch or 0) * _EVENTS_PER_BATCH + 1)
            client = thread.run(self._open(f"{publisher}-{attempt}", session))
            try:
                count = 0
                for each in itertools.chain([first], records):
                    events = EventBatch.from_arrow(self._event_type, each)
                    thread.run(client.publish_batch(self._event_type.name, events))
                    count += len(events)
                thread.run(client.flush())
            finally:
                thread.run(client.close(grace=0.0))
        except CoveyError as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"partition {partition}, for {self._address}: {error}") from None
        finally:
            thread.stop()
        return Published(partition, count)

    async def _open(self, name: str, session: ClientSession) -> Client:
        options = self._options
        client = Client(
            self._address,
            name,
            session=session,
            connect_timeout=options.timeout_s,
            tls=options.tls,
            token=options.bearer,
        )
        try:
            await client.open()
        except ConnectError as error:
            raise unreachable(self._address, error) from None
        try:
            await client.advertise(self._event_type, timeout=options.timeout_s)
        except BaseException:
            await client.close(grace=0.0)
            raise
        return client

    def _records(self, iterator: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        for first in iterator:
            if isinstance(first, pa.RecordBatch):
                if first.num_rows:
                    yield first
                continue
            rows = [first, *itertools.islice(iterator, _ROWS - 1)]  # Spark 4.0
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=self._schema.names)

    def _report_abort(self, messages: Sequence[Any], what: str) -> None:
        done = [message for message in messages if isinstance(message, Published) and message.events]
        if done:
            log.warning(
                "%s failed after %d events of %d partitions were published; they stay published",
                what,
                sum(message.events for message in done),
                len(done),
            )


class BatchWriter(EventSink, DataSourceArrowWriter):
    def abort(self, messages: list[Any]) -> None:
        self._report_abort(messages, "the write")


class StreamWriter(EventSink, _StreamWriter):  # type: ignore[misc]
    _of_query = True

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._report_abort(messages, f"micro-batch {batchId}")

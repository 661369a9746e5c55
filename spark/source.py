"""The format `covey` of Spark: live events of brokers, traces of runs, and a sink of events.

    spark.dataSource.register(CoveySource)
    spark.readStream.format("covey").option("broker", "127.0.0.1:7500").option("type", "Quote").load()

Options and schemas are checked on the driver before anything runs. A table of traces has a partition per
file; manifests name the files (`sim/trace/finding.py`), and an unfinished run's are read as far as they go.
Spark's Python sources have no projection, so a declared schema selects columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from covey.matcher import EventType, Filter
from covey.matcher.errors import CoveyError, closest_of
from covey.matcher.events.event_type import Kind
from covey.overlay.core.moving.motion import check_values
from covey.sim.trace.finding import find_traces
from covey.sim.trace.storage import Folder
from covey.sim.trace.tables import TABLES
from covey.spark.options import HistoryOptions, SinkOptions, SourceError, StreamOptions, read_options
from covey.spark.schemas import arrow_schema, find_event_type, parsed, spark_schema
from covey.spark.sink import BatchWriter, StreamWriter
from covey.spark.stream_reader import GAPS, METADATA, EventStreamReader

log = logging.getLogger("covey.spark")

_ROWS = 1 << 16


class FilePartition(InputPartition):
    """A Parquet file: a path, or a URI of `pyarrow.fs`."""

    def __init__(self, file: str) -> None:
        self.file = file


def history_schema(given: Mapping[str, str]) -> StructType:
    """The columns of the table that options name; words are strings."""
    columns = TABLES[_options(given).table]
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in columns
    ]
    return from_arrow_schema(pa.schema(plain))


def _options(given: Mapping[str, str]) -> HistoryOptions:
    options = read_options(HistoryOptions, given)
    if options.table not in TABLES:
        raise SourceError(f"option table is {options.table!r}{closest_of(options.table, TABLES)}")
    return options


class HistoryReader(DataSourceReader):
    """Reads one table of all traces at the option `path`. `SourceError` for an unknown column."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = _options(given)
        known = history_schema(given)
        for field in schema.fields:
            if field.name not in known.names or known[field.name].dataType != field.dataType:
                raise SourceError(
                    f"schema column {field.name!r} is {field.dataType.simpleString()}: table {options.table} "
                    f"has {', '.join(f'{each.name} {each.dataType.simpleString()}' for each in known.fields)}"
                )
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        try:
            traces = find_traces([self._options.path])
        except CoveyError as error:
            raise SourceError(f"option path is {self._options.path!r}: {error}") from None
        for name, reason in traces.broken.items():
            log.warning("trace %s is left out: %s", name, reason)
        return [FilePartition(file) for file in traces.files(self._options.table)] or [FilePartition("")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePartition)
        if not partition.file:
            return
        target = arrow_schema(self._schema)
        place = Folder.at(partition.file)
        with place.system.open_input_file(place.path) as file:
            for records in pq.ParquetFile(file).iter_batches(_ROWS, columns=target.names):
                arrays = [records.column(field.name).cast(field.type) for field in target]
                yield pa.RecordBatch.from_arrays(arrays, schema=target)


_EXTRA = {name for name, _ in (*METADATA, *GAPS)}


class CoveySource(DataSource):
    """Register it by `spark.dataSource.register`. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "covey"

    def schema(self) -> StructType:
        if "path" in self.options:
            return history_schema(self.options)
        options = read_options(StreamOptions, self.options)
        event_type = find_event_type(options)
        _parsed(options, event_type)
        return spark_schema(event_type, _extra(options))

    def reader(self, schema: StructType) -> HistoryReader:
        return HistoryReader(self.options, schema)

    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: N802
        options = read_options(StreamOptions, self.options)
        declared = StructType([field for field in schema.fields if field.name not in _EXTRA])
        event_type = find_event_type(options, declared)
        return EventStreamReader(options, event_type, _parsed(options, event_type), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        _check_mode(overwrite)
        return BatchWriter(read_options(SinkOptions, self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        _check_mode(overwrite)
        return StreamWriter(read_options(SinkOptions, self.options), schema)


def _extra(options: StreamOptions) -> list[tuple[str, Kind]]:
    rows = options.gaps == "rows"
    return [*(METADATA if options.metadata or rows else ()), *(GAPS if rows else ())]


def _parsed(options: StreamOptions, event_type: EventType) -> Filter:
    """The filter; `SourceError` if it or the values of its variables do not fit."""
    filter = parsed("option filter is", options.filter, event_type)
    try:
        check_values(filter, options.variables)
    except CoveyError as error:
        raise SourceError(f"option values is {options.values!r}: {error}") from None
    return filter


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise SourceError("mode is 'overwrite': expected 'append', since published events stay published")

"""The format `covey` of Spark: live events of brokers, traces of runs, and a sink of events.

    spark.dataSource.register(CoveySource)
    spark.readStream.format("covey").option("broker", "127.0.0.1:7500").option("type", "Quote").load()

Every option and schema is checked on the driver before anything runs.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from covey.matcher import EventType, Filter, parse
from covey.matcher.errors import CoveyError, FilterSyntaxError
from covey.matcher.events.event_type import Kind
from covey.overlay.core.moving.motion import check_values
from covey.spark.event_records import GAPS, METADATA
from covey.spark.history import HistoryReader, history_schema
from covey.spark.options import SinkOptions, SourceError, StreamOptions, read_options
from covey.spark.schemas import find_event_type, spark_schema
from covey.spark.sink import BatchWriter, StreamWriter
from covey.spark.stream_reader import EventStreamReader

_EXTRA = {name for name, _ in (*METADATA, *GAPS)}


class CoveySource(DataSource):
    """To be registered with `spark.dataSource.register`. docs/spark.md has the options."""

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
    """The filter, after a check of its variables' values."""
    try:
        filter = parse(options.filter, event_type)
    except FilterSyntaxError as error:
        raise SourceError(
            f"option filter is {options.filter!r}: {error.message}, at column {error.column + 1}"
        ) from None
    except CoveyError as error:
        raise SourceError(f"option filter is {options.filter!r}: {error}") from None
    try:
        check_values(filter, options.variables)
    except CoveyError as error:
        raise SourceError(f"option values is {options.values!r}: {error}") from None
    return filter


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise SourceError("mode is 'overwrite': expected 'append', since published events stay published")

"""A table of traces as a DataFrame: one partition per file, its columns those of the schema alone.

Which files count, the manifests say (`sim/trace/finding.py`); a trace whose run goes on is read as far as it
is. Spark's Python sources know no projection, so a declared schema is how to read some of the columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from covey.matcher.errors import CoveyError
from covey.sim.trace.finding import find_traces
from covey.sim.trace.storage import Folder
from covey.sim.trace.tables import TABLES
from covey.spark.options import HistoryOptions, SourceError, read_options
from covey.spark.schemas import arrow_schema

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
        close = get_close_matches(options.table, TABLES, n=1)
        meant = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(TABLES)}"
        raise SourceError(f"option table is {options.table!r}: {meant}")
    return options


class HistoryReader(DataSourceReader):
    """Reads one table of all traces at the option `path`. `SourceError` for a column that it has not."""

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

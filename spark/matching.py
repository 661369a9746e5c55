"""A DataFrame of events against many filters, by the brokers' engine. Each Python worker loads the filters
once, from a file that Spark ships to each machine once, and keeps them across batches and tasks. It loads the
kernels before the first batch; on a machine without cached ones, one worker compiles and the others wait."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from covey.matcher import EventBatch, EventType, Matcher
from covey.matcher.errors import CoveyError
from covey.matcher.jit.kernel_loader import KernelState, loader
from covey.sim.metrics.session import is_remote
from covey.spark.filter_set import Filters, FilterTable, filter_set, usable
from covey.spark.options import SourceError
from covey.spark.schemas import arrow_schema, check_columns, event_type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTPUTS = ("ids", "rows", "counts")
_MOST_MATCHERS = 2
"""Loaded in a worker at a time."""
_MOST_IDS = 1 << 21
"""The expected number of ids per search, which bounds the memory of filters that match much."""
_FIRST_EVENTS = 256

_folder: tempfile.TemporaryDirectory[str] | None = None


def match(
    events: DataFrame,
    filters: Filters,
    *,
    values: FilterTable | None = None,
    event_type: EventType | None = None,
    output: str = "ids",
    column: str | None = None,
) -> DataFrame:
    """Match up to a million filters against each row of a DataFrame.

    `filters` maps ids, integers or text, to filters; or is one filter with variables, whose `values` are a
    table with a column each, and `id` (by default from 0 on); or is a table with the columns `filter`, `id`
    and those of variables; or a `Matcher`. Tables are of Spark, pandas, Polars or Arrow.

    `output` "ids" adds an array of ids to each row (`column`, default "filters"); "rows" has a row per event
    and matching filter, with its id (`column`, default "filter"); "counts" is a table of `filter` and
    `events`, without filters that match nothing. Columns are attributes by name, only those of `event_type`
    if it is given: integers, floats, text, booleans, times, dates and lists of text.

    `SourceError` for filters, values or columns that do not fit. Cost per Python worker: as `Matcher`; the
    file of filters (75 bytes each) stays until the application ends.
    """
    twice = [name for name, count in Counter(events.columns).items() if count > 1]
    if twice:
        raise SourceError(f"events have several columns {twice[0]!r}: expected each name once")
    if output not in OUTPUTS:
        raise SourceError(f"output is {output!r}: expected one of {', '.join(OUTPUTS)}")
    chosen = filter_set(filters, values, _event_type(events, filters, event_type))
    digest, file = chosen.save(_files())
    _ship(events, file)
    id_type: DataType = LongType() if chosen.labels is None else StringType()
    name = column or ("filters" if output == "ids" else "filter")
    if output == "counts":
        schema = StructType([StructField(name, id_type), StructField("events", LongType())])
    elif name in events.columns:
        raise SourceError(f"column is {name!r}: events have a column of that name, expected another")
    else:
        added = StructField(name, ArrayType(id_type) if output == "ids" else id_type)
        schema = StructType([*events.schema.fields, added])
    matching = _Matching(digest, file.name, chosen.event_type, chosen.labels, output, schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return matching.run(batches)

    matched = events.mapInArrow(run, schema)
    return matched if output != "counts" else matched.groupBy(name).sum("events").toDF(name, "events")


def _event_type(events: DataFrame, filters: Filters, given: EventType | None) -> EventType:
    if given is None and isinstance(filters, Matcher) and len(filters.event_types) == 1:
        given = filters.event_types[0]
    if given is not None:
        own = StructType([field for field in events.schema.fields if field.name in given.attributes])
        if not own.fields:
            raise SourceError(f"events have no column of {given!r}")
        check_columns(given, own, widened=True)
        return given
    fields = [field for field in events.schema.fields if usable(field.name)]
    return event_type_of("Event", StructType(fields), widened=True, complete=False)


def _files() -> Path:
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="covey-filters-")
    return Path(_folder.name)


def _ship(events: DataFrame, file: Path) -> None:
    session = events.sparkSession
    if is_remote(session):
        session.addArtifacts(str(file), file=True)
        return
    context = session.sparkContext
    if not any(str(each).endswith(file.name) for each in context.listFiles):
        context.addFile(str(file))


# --- in a worker --------------------------------------------------------------------------------------------

_matchers: OrderedDict[str, Matcher] = OrderedDict()
_loading = threading.Lock()


def load_matcher(digest: str, file: str) -> Matcher:
    """The matcher of a shipped file, cached in this process."""
    with _loading:
        matcher = _matchers.get(digest)
        if matcher is None:
            _wait_for_kernels()
            while len(_matchers) >= _MOST_MATCHERS:
                _matchers.popitem(last=False)
            matcher = _matchers[digest] = Matcher.load(SparkFiles.get(file))
        _matchers.move_to_end(digest)
        return matcher


def _wait_for_kernels() -> None:
    done = threading.Event()

    def changed(state: KernelState) -> None:
        if state in (KernelState.READY, KernelState.FAILED):
            done.set()

    loader.load()
    loader.add_listener(changed)
    done.wait()
    loader.remove_listener(changed)
    if loader.state is KernelState.FAILED:
        raise CoveyError("the matching kernels cannot be loaded: see the log of the worker")


@dataclass
class _Matching:
    digest: str
    file: str
    event_type: EventType
    labels: pa.StringArray | None
    output: str
    schema: StructType

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = load_matcher(self.digest, self.file)
        target = arrow_schema(self.schema)
        counts: dict[int, int] = {}
        for records in batches:
            for part, offsets, ids in self._searched(matcher, records):
                if self.output == "counts":
                    distinct, times = np.unique(ids, return_counts=True)
                    for each, count in zip(distinct.tolist(), times.tolist(), strict=True):
                        counts[each] = counts.get(each, 0) + count
                else:
                    yield self._answered(target, part, offsets, ids)
        if counts:
            keys = self._named(np.fromiter(counts, np.int64, len(counts)))
            yield pa.RecordBatch.from_arrays([keys, pa.array(counts.values(), pa.int64())], schema=target)

    def _searched(
        self, matcher: Matcher, records: pa.RecordBatch
    ) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Parts of a batch; the filters that match row i of one have `ids[offsets[i]:offsets[i + 1]]`."""
        names = [name for name in self.event_type.names if name in records.schema.names]
        columns = pa.RecordBatch.from_arrays([records.column(name) for name in names], names=names)
        start, size = 0, max(1, min(_FIRST_EVENTS, _MOST_IDS // max(len(matcher), 1)))
        while start < records.num_rows:
            batch = EventBatch.from_arrow(self.event_type, columns.slice(start, size))
            offsets, ids = matcher.match(batch).ids()
            yield records.slice(start, size), offsets, ids
            start += size
            size = max(1, min(records.num_rows, size * _MOST_IDS // max(len(ids), size)))

    def _answered(
        self, target: pa.Schema, part: pa.RecordBatch, offsets: npt.NDArray[np.int64], ids: Any
    ) -> pa.RecordBatch:
        named = self._named(ids)
        if self.output == "ids":
            added = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), named)
        else:
            part = part.take(pa.array(np.repeat(np.arange(part.num_rows), np.diff(offsets))))
            added = named
        arrays = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip([*part.columns, added], target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    def _named(self, ids: npt.NDArray[np.int64]) -> pa.Array:
        numbers = pa.array(ids)
        return numbers if self.labels is None else self.labels.take(numbers)

"""Batches of events: an Arrow record batch, its publisher, and the sequence number of each event.

A batch of a few events from Python values or packed columns keeps these (`packed_columns.py`), and creates
its record batch on demand. Invariants: the columns are exactly `event_type.arrow_schema`, their contents are
valid (UTF-8 included), and event i has the identity (publisher, sequences()[i]). A batch never changes,
except that results of operators accumulate; forwarding it reuses the bytes in which it arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher.errors import EventError
from covey.matcher.events.arrow_columns import (
    MALFORMED,
    check_ranges,
    conform,
    imported,
    one_batch,
    read_record_batch,
)
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.packed_columns import MOST_PACKED, PackedColumns, joined, records_of
from covey.matcher.events.python_rows import data_frame_of, events_of_rows, records_of_frame, rows_of
from covey.matcher.events.results import Results, joined_results
from covey.matcher.events.trace_contexts import TraceContexts, shifted

_MAX_OFFSET = 2**32 - 1
_LENGTH_BYTES = 4  # of the length of a string or list
_SPARE_BYTES = 4096
_FIXED_BYTES = {Kind.INT64: 8, Kind.FLOAT64: 8, Kind.TIMESTAMP: 8, Kind.BOOL: 1}


class Stamp(TypedDict, total=False):
    """What a batch has beside its events; see `EventBatch`."""

    publisher: str
    first_sequence: int
    ingress_ns: int


class NumberedStamp(Stamp, total=False):
    """A `Stamp` of a batch whose sequence numbers may have gaps."""

    sequence_offsets: npt.NDArray[np.uint32] | None


class EventBatch:
    """Events of one type from one publisher, in columns.

    `first_sequence` and `sequence_offsets` (uint32, one per event, or None for 0, 1, 2, ...) give each
    event's sequence number; `ingress_ns` is when the batch entered the overlay, in nanoseconds since the
    epoch. `columns` are the packed columns, None if it has Arrow's. `results` are the answers of operators
    about these events, or None; views of the same events share them. `contexts` are the trace contexts of the
    traced events. The constructor trusts its arguments: use `from_pylist`, `from_arrow`, `deserialize` or
    `unpack`."""

    __slots__ = (
        "_records",
        "_serialized",
        "columns",
        "contexts",
        "count",
        "event_type",
        "first_sequence",
        "ingress_ns",
        "publisher",
        "results",
        "sequence_offsets",
    )

    def __init__(
        self,
        event_type: EventType,
        events: pa.RecordBatch | PackedColumns,
        *,
        publisher: str = "",
        first_sequence: int = 0,
        sequence_offsets: npt.NDArray[np.uint32] | None = None,
        ingress_ns: int = 0,
        serialized: bytes | None = None,
        results: Results | None = None,
        contexts: TraceContexts = (),
    ) -> None:
        self.event_type = event_type
        self._records: pa.RecordBatch | None
        self.columns: PackedColumns | None
        self.count: int
        if events.__class__ is PackedColumns:
            self.columns, self._records, self.count = events, None, events.count
        else:
            self.columns, self._records, self.count = None, events, events.num_rows  # type: ignore[union-attr]
        self.publisher = publisher
        self.first_sequence = first_sequence
        self.sequence_offsets = sequence_offsets
        self.ingress_ns = ingress_ns
        self._serialized = serialized
        self.results = results
        self.contexts = contexts

    # --- constructors -------------------------------------------------------------------------------

    @classmethod
    def from_pylist(
        cls, event_type: EventType, rows: Sequence[Mapping[str, object]], **stamp: Unpack[Stamp]
    ) -> EventBatch:
        """A batch of events from mappings of attributes to values; a missing key is absent, as None.
        Timestamps are datetimes (UTC without a zone) or ISO 8601 strings. Raises `EventError` naming the
        event (counted from 0), the attribute and the value."""
        return cls(event_type, events_of_rows(event_type, rows), **stamp)

    @classmethod
    def from_arrow(
        cls, event_type: EventType, records: pa.RecordBatch | pa.Table | Any, **stamp: Unpack[NumberedStamp]
    ) -> EventBatch:
        """A batch from Arrow columns in any order; absent columns become null, narrower types are widened.

        `records` is a record batch or table, or any object with `__arrow_c_stream__` or `__arrow_c_array__`,
        such as a DataFrame of Polars or a relation of DuckDB; it is read whole. Zero-copy if its schema is
        `event_type.arrow_schema`. Raises `EventError` naming a column that is unknown, of another kind, or
        has a value that its attribute cannot hold exactly."""
        records = one_batch(imported(event_type, records))
        if not records.schema.equals(event_type.arrow_schema):
            records = conform(event_type, records)
        try:
            records.validate(full=True)
        except pa.ArrowInvalid as error:
            raise EventError(f"{event_type.name}: invalid Arrow data: {error}") from None
        check_ranges(event_type, records)
        _check_offsets(stamp.get("sequence_offsets"), records.num_rows)
        return cls(event_type, records, **stamp)

    @classmethod
    def from_pandas(cls, event_type: EventType, frame: Any, **stamp: Unpack[Stamp]) -> EventBatch:
        """A batch from a pandas DataFrame with one column per attribute, in any order; its index is ignored.

        None, NaN, NaT and a missing column mean absent. A float64 column of integers is accepted for an int64
        attribute, since pandas stores integers so if some are missing. Raises `EventError` as `from_pylist`
        and `from_arrow` do."""
        return cls.from_arrow(event_type, records_of_frame(event_type, frame), **stamp)

    @classmethod
    def deserialize(
        cls,
        event_type: EventType,
        buffer: bytes,
        *,
        checked: bool = False,
        **stamp: Unpack[NumberedStamp],
    ) -> EventBatch:
        """A batch from the bytes of `serialized`, zero-copy, with all values checked. `checked` means that a
        broker has already checked the values: only memory safety is checked. `EventError` for any bytes that
        are no record batch of this type."""
        try:
            message = pa.ipc.read_message(pa.py_buffer(buffer))
        except MALFORMED as error:
            raise EventError(f"{event_type.name}: malformed record batch: {error}") from None
        records = read_record_batch(message, event_type.arrow_schema, event_type.name)
        if not checked:
            check_ranges(event_type, records)
        _check_offsets(stamp.get("sequence_offsets"), records.num_rows)
        serialized = buffer if isinstance(buffer, bytes) else None
        return cls(event_type, records, serialized=serialized, **stamp)

    @classmethod
    def unpack(
        cls,
        event_type: EventType,
        buffer: bytes,
        count: int,
        *,
        checked: bool = False,
        **stamp: Unpack[NumberedStamp],
    ) -> EventBatch:
        """A batch of `count` events from the bytes of packed columns; otherwise as `deserialize`."""
        columns = PackedColumns.unpack(event_type, buffer, count, checked=checked)
        _check_offsets(stamp.get("sequence_offsets"), count)
        return cls(event_type, columns, **stamp)

    @classmethod
    def concat(cls, batches: Sequence[EventBatch]) -> EventBatch:
        """The events of several batches of one type and publisher, in order; ingress is the earliest. Raises
        `EventError` if type or publisher differ, or sequence numbers are more than 2**32 - 1 apart."""
        if not batches:
            raise EventError("concat of no batches: expected at least one")
        first = batches[0]
        if len(batches) == 1:
            return first
        for other in batches:
            is_alike = other.event_type is first.event_type or other.event_type == first.event_type
            if not is_alike or other.publisher != first.publisher:
                raise EventError(
                    f"concat of {first.event_type.name} from {first.publisher!r} and {other.event_type.name} "
                    f"from {other.publisher!r}: expected one type and one publisher"
                )
        events = _concatenated(batches)
        start, offsets = _joint_sequences(batches)
        return cls(
            first.event_type,
            events,
            publisher=first.publisher,
            first_sequence=start,
            sequence_offsets=offsets,
            ingress_ns=min(b.ingress_ns for b in batches),
            results=joined_results([(b.results, b.count) for b in batches]),
            contexts=_joined_contexts(batches),
        )

    @classmethod
    def stacked(cls, batches: Sequence[EventBatch]) -> EventBatch:
        """The events of one or more batches of one type, in order, without publisher, numbers and results."""
        return cls(batches[0].event_type, _concatenated(batches))

    # --- parts -----------------------------------------------------------------------------

    def take(self, indices: npt.ArrayLike) -> EventBatch:
        """The events at these positions, in that order."""
        positions = np.asarray(indices, dtype=np.int64)
        count = self.count
        if len(positions) == count and (count == 0 or _is_run(positions, 0)):
            return self
        if len(positions) and _is_run(positions, int(positions[0])):
            return self.slice(int(positions[0]), len(positions))
        offsets = (
            positions.astype(np.uint32) if self.sequence_offsets is None else self.sequence_offsets[positions]
        )
        results = None if self.results is None else self.results.take(positions)
        if self.columns is not None and 0 < len(positions) <= MOST_PACKED:
            return self._with(self.columns.take(positions.tolist()), self.first_sequence, offsets, results)
        return self._with(self.record_batch.take(pa.array(positions)), self.first_sequence, offsets, results)

    def filter(self, mask: npt.NDArray[np.bool_]) -> EventBatch:
        """The events where `mask`, one bool per event, is true."""
        return self.take(np.flatnonzero(mask))

    def with_schema(self, event_type: EventType, *, other_kinds: bool = False) -> EventBatch:
        """These events under another schema of their type, zero-copy: attributes that it lacks are dropped,
        new ones are absent. `EventError` if the schemas do not agree, unless `other_kinds` makes attributes
        of another kind absent, too."""
        if event_type is self.event_type or event_type == self.event_type:
            return self
        if event_type.name != self.event_type.name:
            raise EventError(f"batch of {self.event_type.name}: expected one of {event_type.name}")
        if not other_kinds and not event_type.agrees(self.event_type):
            raise EventError(f"batch of {self.event_type!r}: expected one of {event_type!r}")
        events: pa.RecordBatch | PackedColumns
        if self.columns is not None and not event_type.has_lists:
            events = self.columns.with_schema(event_type)
        else:
            own, columns, count = self.event_type.attributes, self.record_batch, len(self)
            arrays = [
                columns.column(name) if own.get(name) is kind else pa.nulls(count, kind.arrow)
                for name, kind in event_type.attributes.items()
            ]
            events = pa.RecordBatch.from_arrays(arrays, schema=event_type.arrow_schema)
        return self._with(events, self.first_sequence, self.sequence_offsets, self.results, event_type)

    def slice(self, start: int, length: int | None = None) -> EventBatch:
        """`length` events from position `start` on (by default all that follow), zero-copy."""
        count = self.count
        start = min(max(start, 0), count)
        length = count - start if length is None else min(max(length, 0), count - start)
        if start == 0 and length == count:
            return self
        records: pa.RecordBatch | PackedColumns
        if self.columns is not None and length:
            records = self.columns.take(range(start, start + length))
        else:
            records = self.record_batch.slice(start, length)
        results = None if self.results is None else self.results.take(np.arange(start, start + length))
        if self.sequence_offsets is None:
            return self._with(records, self.first_sequence + start, None, results)
        offsets = self.sequence_offsets[start : start + length]
        return self._with(records, self.first_sequence, offsets, results)

    def _with(
        self,
        events: pa.RecordBatch | PackedColumns,
        first_sequence: int,
        offsets: npt.NDArray[np.uint32] | None,
        results: Results | None,
        event_type: EventType | None = None,
    ) -> EventBatch:
        return EventBatch(
            event_type or self.event_type,
            events,
            publisher=self.publisher,
            first_sequence=first_sequence,
            sequence_offsets=offsets,
            ingress_ns=self.ingress_ns,
            results=results,
            contexts=self.contexts,
        )

    def stamped(
        self,
        *,
        publisher: str | None = None,
        first_sequence: int | None = None,
        ingress_ns: int | None = None,
    ) -> EventBatch:
        """The same events under another publisher, first sequence number or ingress time; keeps the bytes."""
        view = EventBatch.__new__(EventBatch)
        view.event_type = self.event_type
        view.columns, view._serialized, view.count = self.columns, self._serialized, self.count
        view._records = self.record_batch if self.columns is None else None
        view.publisher = self.publisher if publisher is None else publisher
        view.first_sequence = self.first_sequence if first_sequence is None else first_sequence
        view.sequence_offsets = self.sequence_offsets
        view.ingress_ns = self.ingress_ns if ingress_ns is None else ingress_ns
        view.results = self.results
        view.contexts = self.contexts
        if view.contexts and first_sequence is not None:
            view.contexts = shifted(view.contexts, first_sequence - self.first_sequence)
        return view

    def consecutive(self) -> EventBatch:
        """The same events, numbered without gaps from the first on; trace contexts are lost if there were
        gaps."""
        if self.sequence_offsets is None:
            return self
        return self._with(self.events, self.first_sequence, None, self.results).with_contexts(())

    def with_results(self, results: Results | None) -> EventBatch:
        """The same events with other results, bytes kept."""
        view = self.stamped()
        view.results = results
        return view

    def with_contexts(self, contexts: TraceContexts) -> EventBatch:
        """The same events in other traces, bytes kept."""
        view = self.stamped()
        view.contexts = contexts
        return view

    def shared_results(self) -> Results:
        """The results, created if there are none; views made afterwards share them."""
        if self.results is None:
            self.results = Results()
        return self.results

    # --- contents ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.count

    @property
    def events(self) -> pa.RecordBatch | PackedColumns:
        """The columns in the form that this batch has."""
        return self.record_batch if self.columns is None else self.columns

    @property
    def record_batch(self) -> pa.RecordBatch:
        """The events as Arrow columns."""
        if self._records is None and self.columns is not None:
            self._records = self.columns.records()
        elif self._records is None:
            assert self._serialized is not None
            message = pa.ipc.read_message(pa.py_buffer(self._serialized))
            self._records = read_record_batch(message, self.event_type.arrow_schema, self.event_type.name)
        return self._records

    def values(self, attribute: str) -> list[Any]:
        """The values of one attribute, None where absent; timestamps are datetimes in UTC."""
        if self.columns is not None:
            return self.columns.values(self.event_type.index(attribute))
        values: list[Any] = self.record_batch.column(attribute).to_pylist()
        return values

    def sequences(self) -> npt.NDArray[np.int64]:
        """The sequence number of every event, int64[n_events]."""
        if self.sequence_offsets is None:
            return np.arange(self.first_sequence, self.first_sequence + len(self), dtype=np.int64)
        return self.sequence_offsets.astype(np.int64) + self.first_sequence

    def sequence_numbers(self) -> Sequence[int]:
        """As `sequences`, as Python numbers: cheaper for a few events."""
        if self.sequence_offsets is None:
            return range(self.first_sequence, self.first_sequence + self.count)
        return [self.first_sequence + offset for offset in self.sequence_offsets.tolist()]

    def to_pylist(self) -> list[dict[str, Any]]:
        """The events as dicts with every attribute; absent ones are None, timestamps are datetimes in UTC."""
        return rows_of(self.event_type, self.record_batch) if self.columns is None else self.columns.rows()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The events for readers of Arrow's C streams, such as `polars.DataFrame(batch)`."""
        return self.record_batch.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """The events as a pandas DataFrame: `Int64` and `boolean` (nullable), float64, strings and
        `datetime64[us, UTC]`. An absent float64 is NaN there. Raises `CoveyError` if pandas is not installed.
        """
        return data_frame_of(self.record_batch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def serialized(self) -> bytes:
        """The Arrow IPC record batch message (without schema), cached; or the bytes in which the batch
        arrived."""
        if self._serialized is None:
            self._serialized = self.record_batch.serialize().to_pybytes()
            if self.columns is None:
                self._records = None  # they are in these bytes: no batch has its events twice
        return self._serialized

    def compact(self) -> None:
        """Release a larger batch of which these events are a small part, before they are stored."""
        records = None if self.columns is not None else self._records
        if records is not None and records.get_total_buffer_size() > 2 * self.nbytes + _SPARE_BYTES:
            self.serialized()

    @property
    def nbytes(self) -> int:
        """Bytes of the events and their results on the wire: packed, or else serialised, without serialising.
        """
        columns, results = self.columns, self.results
        size = 0 if results is None else results.nbytes
        if columns is not None:
            return size + (columns.nbytes or len(columns.packed()))
        if self._serialized is not None:
            return size + len(self._serialized)
        return size + int(pa.ipc.get_record_batch_size(self.record_batch))

    def event_bytes(self) -> npt.NDArray[np.int64]:
        """The size of every event in bytes, int64[n_events]: values at fixed width, strings as UTF-8."""
        if self.columns is not None:
            return np.array(self.columns.event_bytes(), dtype=np.int64)
        fixed = sum(_FIXED_BYTES.get(kind, _LENGTH_BYTES) for kind in self.event_type.kinds)
        total = np.full(len(self), fixed, dtype=np.int64)
        for column, kind in zip(self.record_batch.columns, self.event_type.kinds, strict=True):
            if kind is Kind.STRING:
                total += _lengths(pc.binary_length(column))
            elif kind is Kind.STRINGS:
                sizes = _lengths(pc.binary_length(column.flatten())) + _LENGTH_BYTES
                ends = np.cumsum(_lengths(pc.list_value_length(column)))
                total += np.diff(np.append(0, np.cumsum(sizes))[np.append(0, ends)])
        return total

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventBatch):
            return NotImplemented
        return (
            self.event_type == other.event_type
            and self.publisher == other.publisher
            and self.ingress_ns == other.ingress_ns
            and np.array_equal(self.sequences(), other.sequences())
            and bool(self.record_batch.equals(other.record_batch))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"EventBatch({self.event_type.name}, {len(self)} events from {self.publisher!r}, "
            f"first sequence {self.first_sequence})"
        )


def _lengths(lengths: pa.Array) -> npt.NDArray[np.int64]:
    column: npt.NDArray[np.int64] = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return column


def _concatenated(batches: Sequence[EventBatch]) -> pa.RecordBatch | PackedColumns:
    if sum(map(len, batches)) <= MOST_PACKED and all(b.columns is not None for b in batches):
        packed = [b.columns for b in batches if b.columns is not None]
        columns = joined(packed)
        return PackedColumns(packed[0].event_type, columns, len(columns[0]))
    records: list[pa.RecordBatch] = []
    for is_packed, run in groupby(batches, lambda b: b.columns is not None):
        if is_packed:
            records.append(records_of([b.columns for b in run if b.columns is not None]))
        else:
            records += [b.record_batch for b in run]
    return records[0] if len(records) == 1 else one_batch(pa.Table.from_batches(records))


def _joined_contexts(batches: Sequence[EventBatch]) -> TraceContexts:
    """The trace contexts of several batches, each once: parts of one batch share theirs."""
    if not any(b.contexts for b in batches):
        return ()
    return tuple(dict.fromkeys(context for b in batches for context in b.contexts))


def _joint_sequences(batches: Sequence[EventBatch]) -> tuple[int, npt.NDArray[np.uint32] | None]:
    start = following = batches[0].first_sequence
    for batch in batches:
        if batch.sequence_offsets is not None or batch.first_sequence != following:
            break
        following += len(batch)
    else:
        return start, None
    sequences = np.concatenate([b.sequences() for b in batches])
    if not len(sequences):
        return start, None
    start = int(sequences.min())
    relative = sequences - start
    if np.array_equal(relative, np.arange(len(sequences))):
        return start, None
    if int(relative.max()) > _MAX_OFFSET:
        raise EventError(
            f"concat of {batches[0].event_type.name}: sequence numbers {start} and {int(sequences.max())} "
            "are more than 2**32 - 1 apart"
        )
    return start, relative.astype(np.uint32)


def _check_offsets(offsets: npt.NDArray[np.uint32] | None, count: int) -> None:
    if offsets is not None and (offsets.dtype != np.uint32 or offsets.shape != (count,)):
        raise EventError(
            f"sequence offsets of type {offsets.dtype} and shape {offsets.shape}: "
            f"expected uint32 of shape ({count},)"
        )


def _is_run(indices: npt.NDArray[np.int64], start: int) -> bool:
    return int(indices[-1]) - start == len(indices) - 1 and bool(
        np.array_equal(indices, np.arange(start, start + len(indices)))
    )


def check_batch(batch: object) -> None:
    """`EventError` for an object that is no `EventBatch`."""
    if not isinstance(batch, EventBatch):
        raise EventError(
            f"batch of type {type(batch).__name__}: expected an EventBatch, as `EventBatch.from_pylist` and "
            "`from_arrow` return"
        )

"""Subscriptions in a file: an Arrow IPC file, which any Arrow library reads.

    id          int64
    event_type  dictionary<string>       the name
    filter      dictionary<string>       its text (docs/filters.md)
    values      list<dense_union<...>>   of the filter's variables, in the order of their first appearance:
                                         integer: int64, float: float64, boolean: bool,
                                         time: timestamp[us, UTC], text: string
    interface   uint16

The schema's metadata has `covey.snapshot`, the version of the format; `covey.event_types`, JSON of the name,
attributes and key, if any, of each event type; and `covey.subscriptions`, their number. A file is written
beside its place and then moved there, so a reader finds the old one or the new one, whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.embedded.value_table import SubscriptionTable, layout_of
from covey.matcher.embedded.words import BOOLEAN, FLOAT, INTEGER, TEXT, TIME, Texts, Types, Words, column_of
from covey.matcher.engine import IdArray
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.errors import CoveyError, SnapshotError
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter, parse

VERSION = 1
_VERSION, _EVENT_TYPES, _COUNT = b"covey.snapshot", b"covey.event_types", b"covey.subscriptions"
_BATCH = 1 << 18  # subscriptions written or read at a time
_FIELDS = {
    INTEGER: pa.field("integer", pa.int64()),
    FLOAT: pa.field("float", pa.float64()),
    BOOLEAN: pa.field("boolean", pa.bool_()),
    TIME: pa.field("time", pa.timestamp("us", "UTC")),
    TEXT: pa.field("text", pa.string()),
}
_VALUE = pa.dense_union(list(_FIELDS.values()))
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("event_type", pa.dictionary(pa.int32(), pa.string())),
        ("filter", pa.dictionary(pa.int32(), pa.string())),
        ("values", pa.list_(_VALUE)),
        ("interface", pa.uint16()),
    ]
)


@dataclass(frozen=True, slots=True)
class Chunk:
    ids: IdArray
    filters: Sequence[Filter]
    numbers: Numbers
    values: dict[str, Any]
    interfaces: npt.NDArray[np.uint16]


# --- writing ------------------------------------------------------------------------------------------


def write_snapshot(
    path: str | os.PathLike[str], event_types: Sequence[EventType], table: SubscriptionTable
) -> None:
    """Write all subscriptions of a table to a file, replaced as a whole; its permissions stay."""
    described = [
        [each.name, dict(each.attributes), *(() if each.key is None else (each.key,))] for each in event_types
    ]
    metadata = {
        _VERSION: str(VERSION),
        _EVENT_TYPES: json.dumps(described, ensure_ascii=False),
        _COUNT: str(len(table)),
    }
    place = Path(os.path.realpath(path))  # a link stays one
    beside = place.with_name(f".{place.name}.{os.getpid()}.{get_ident()}.tmp")
    try:
        with open(beside, "wb") as file:
            with suppress(FileNotFoundError):
                shutil.copymode(place, beside)
            with pa.ipc.new_file(file, _SCHEMA.with_metadata(metadata)) as writer:
                for records in _records(event_types, table):
                    writer.write_batch(records)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except OSError as error:
        if error.filename == str(beside):
            error.filename, error.filename2 = str(place), None
        raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)


def _records(event_types: Sequence[EventType], table: SubscriptionTable) -> Iterator[pa.RecordBatch]:
    filters = table.filters()
    names = pa.array([event_type.name for event_type in event_types], pa.string())
    type_numbers = {event_type.name: number for number, event_type in enumerate(event_types)}
    type_of = np.array(
        [0 if filter is None else type_numbers[filter.event_type.name] for filter in filters], dtype=np.int32
    )
    texts = pa.array(["" if filter is None else str(filter) for filter in filters], pa.string())
    for entries in table.entries(_BATCH):
        ids, numbers, interfaces = table.fields(entries)
        words, types, offsets = table.values(entries)
        values = _union(words, types, table.texts)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(ids),
                pa.DictionaryArray.from_arrays(pa.array(type_of[numbers]), names),
                pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), texts),
                pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values),
                pa.array(interfaces),
            ],
            schema=_SCHEMA,
        )


def _union(words: Words, types: Types, texts: Texts) -> pa.UnionArray:
    offsets = np.zeros(len(words), dtype=np.int32)
    children = []
    for kind, field in _FIELDS.items():
        chosen = types == kind
        mine = words[chosen]
        offsets[chosen] = np.arange(len(mine), dtype=np.int32)
        if kind == FLOAT:
            children.append(pa.array(mine.view(np.float64)))
        elif kind == TEXT:
            children.append(pa.array([texts[number] for number in mine.tolist()], pa.string()))
        else:
            children.append(pa.array(mine != 0 if kind == BOOLEAN else mine).cast(field.type))
    names = [field.name for field in _FIELDS.values()]
    return pa.UnionArray.from_dense(pa.array(types.astype(np.int8)), pa.array(offsets), children, names)


# --- reading ------------------------------------------------------------------------------------------


def read_snapshot(path: str | os.PathLike[str]) -> tuple[list[EventType], Iterator[Chunk]]:
    """The event types of a file, and its subscriptions; `SnapshotError` unless it is a whole snapshot of this
    version."""
    file = pa.memory_map(os.fspath(path))
    try:
        reader = pa.ipc.open_file(file)
    except (pa.ArrowException, OSError) as error:
        raise SnapshotError(f"{path}: no snapshot, or a truncated one: {error}") from None
    metadata = reader.schema.metadata or {}
    version = metadata.get(_VERSION, b"").decode(errors="replace")
    if not version:
        raise SnapshotError(f"{path}: an Arrow file that is no snapshot of a matcher")
    if version != str(VERSION):
        raise SnapshotError(f"{path}: a snapshot of version {version}, expected version {VERSION}")
    if not reader.schema.equals(_SCHEMA):
        raise SnapshotError(f"{path}: expected the columns {', '.join(map(str, _SCHEMA))}")
    try:
        described = json.loads(metadata[_EVENT_TYPES])
        event_types = [EventType(*each) for each in described]
        count = int(metadata[_COUNT])
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError, CoveyError) as error:
        raise SnapshotError(f"{path}: event types that cannot be read: {error}") from None
    return event_types, _chunks(path, reader, {each.name: each for each in event_types}, count)


def _chunks(
    path: str | os.PathLike[str], reader: Any, event_types: dict[str, EventType], count: int
) -> Iterator[Chunk]:
    found = 0
    filters: dict[tuple[str, str], Filter] = {}
    for number in range(reader.num_record_batches):
        try:
            records = reader.get_batch(number)
            records.validate(full=True)
            found += len(records)
            yield from _read_batch(records, event_types, filters)
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, CoveyError) as error:
            raise SnapshotError(f"{path}: damaged subscriptions in batch {number}: {error}") from None
    if found != count:
        raise SnapshotError(f"{path}: {found:,} subscriptions, expected {count:,}")


def _read_batch(
    records: pa.RecordBatch, event_types: dict[str, EventType], filters: dict[tuple[str, str], Filter]
) -> Iterator[Chunk]:
    """The subscriptions of a batch, grouped by the variables of their filters."""
    if any(column.null_count for column in records.columns):
        raise ValueError("nulls")
    ids = records.column("id").to_numpy()
    interfaces = records.column("interface").to_numpy()
    names, texts = records.column("event_type"), records.column("filter")
    pairs = names.indices.to_numpy().astype(np.int64) * len(texts.dictionary) + texts.indices.to_numpy()
    distinct, numbers = np.unique(pairs, return_inverse=True)
    named, written = names.dictionary.to_pylist(), texts.dictionary.to_pylist()
    chosen: list[Filter] = []
    for pair in distinct.tolist():
        key = named[pair // len(written)], written[pair % len(written)]
        if key not in filters:
            filters[key] = parse(key[1], event_types[key[0]])
        chosen.append(filters[key])
    by_layout: dict[tuple[EventType, tuple[Any, ...]], list[int]] = {}
    for number, filter in enumerate(chosen):
        by_layout.setdefault((filter.event_type, layout_of(filter)), []).append(number)
    words, types, offsets, strings = _words(records.column("values"))
    for (_, layout), members in by_layout.items():
        renumbered = np.full(len(chosen), -1, dtype=np.int64)
        renumbered[members] = np.arange(len(members))
        mine = renumbered[numbers]
        positions = np.flatnonzero(mine >= 0)
        if (offsets[positions + 1] - offsets[positions] != len(layout)).any():
            raise ValueError(f"a filter with {len(layout)} variables has another number of values")
        values = {}
        for at, (name, _) in enumerate(layout):
            places = offsets[positions] + at
            values[name] = column_of(words[places], types[places], strings)
        yield Chunk(
            ids[positions], [chosen[m] for m in members], mine[positions], values, interfaces[positions]
        )


def _words(values: pa.ListArray) -> tuple[Words, Types, Numbers, list[str]]:
    """Values as words and types, the offsets by subscription, and the strings by number."""
    union, offsets = values.values, values.offsets.to_numpy().astype(np.int64)
    if not len(union):  # whose buffers are null pointers
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint8), offsets, []
    types: Types = union.type_codes.to_numpy().astype(np.uint8)
    places = union.offsets.to_numpy()
    words = np.zeros(len(union), dtype=np.int64)
    for kind in _FIELDS:
        chosen, child = types == kind, union.field(kind)
        if child.null_count:
            raise ValueError("null values")
        if kind == TEXT:
            words[chosen] = places[chosen]
        else:
            plain = child.cast(pa.int64()) if kind in (BOOLEAN, TIME) else child
            words[chosen] = plain.to_numpy().view(np.int64)[places[chosen]]
    return words, types, offsets, union.field(TEXT).to_pylist()

"""Packed columns: the values of a few events as Python values and as plain bytes, without Arrow.

    absent   a bit per value, attribute by attribute, from the lowest bit of the first byte on: 1 for none
    values   attribute by attribute, little-endian: int64, timestamps and float64 in 8 bytes, a bool in one,
             of a string its length in bytes as uint32; 0 for a value that is absent
    text     the strings, in UTF-8, in the order of their lengths

Arrow costs a few events 20 µs to create, 3 µs to read, and some more for every encoded column; this costs 1
µs and 0.1 µs per value. Invariant: accepted bytes have values within their attributes' ranges, and strings of
valid Unicode. Types with lists have no packed columns."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from covey.matcher.errors import EventError
from covey.matcher.events.arrow_columns import RANGES, check_range
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, INT64_MIN, LAST, MISSING, NAN_KEY
from covey.matcher.events.times import FIRST_US, LAST_US, microseconds, moment_of

MOST_PACKED = 16  # more events are faster in Arrow columns

Values = list[Any]
"""Of one attribute: int, float, str, bool; for a timestamp its microseconds since 1970; None where absent."""

_FORMATS = {Kind.INT64: "q", Kind.TIMESTAMP: "q", Kind.FLOAT64: "d", Kind.STRING: "I", Kind.BOOL: "?"}
_EXACT = 2**53


class _Layout:
    __slots__ = (
        "absent_bytes",
        "empty",
        "integers",
        "pack",
        "places",
        "present",
        "size",
        "strings",
        "texts",
        "unpack_from",
    )

    def __init__(self, event_type: EventType, count: int) -> None:
        kinds = event_type.kinds
        self.absent_bytes = (len(kinds) * count + 7) // 8
        values = "".join(f"{count}{_FORMATS[kind]}" for kind in kinds)
        layout = struct.Struct(f"<{self.absent_bytes}s{values}")
        self.pack, self.unpack_from, self.size = layout.pack, layout.unpack_from, layout.size
        self.present = bytes(self.absent_bytes)  # bits where no value is absent
        self.strings = [place for place, kind in enumerate(kinds) if kind is Kind.STRING]
        self.texts = [place * count + event for place in self.strings for event in range(count)]
        """Places of strings in all columns' values, and the substitutes of absent values."""
        self.empty = ["" if kind is Kind.STRING else 0 for kind in kinds for _ in range(count)]
        self.places = [slice(first, first + count) for first in range(1, 1 + len(kinds) * count, count)]
        """Of the columns among the unpacked values."""
        self.integers = [
            (place, name, kind, *RANGES[kind][:2])
            for place, (name, kind) in enumerate(event_type.attributes.items())
            if kind in RANGES
        ]
        """Integers and timestamps: place, name, kind, the least and the greatest value."""


def _layout_of(event_type: EventType, count: int) -> _Layout:
    layout = event_type.cache[count] = _Layout(event_type, count)
    return layout


class PackedColumns:
    """The values of 1 to `MOST_PACKED` events, by attribute in the order of the schema. Immutable."""

    __slots__ = ("_keys", "_strings", "columns", "count", "data", "event_type", "nbytes")

    def __init__(self, event_type: EventType, columns: list[Values], count: int) -> None:
        self.event_type = event_type
        self.columns = columns
        self.count = count
        self.data: bytes | None = None
        self.nbytes = 0  # of `data`
        self._keys: dict[int, list[int]] = {}
        self._strings: dict[int, pa.StringArray] = {}

    # --- from and to other forms ------------------------------------------------------------------

    @classmethod
    def of_rows(cls, event_type: EventType, rows: Sequence[Mapping[str, object]]) -> PackedColumns | None:
        """Events from mappings with attributes as keys; None if a value needs the rules of `python_rows.py`.
        """
        columns: list[Values] = []
        for name, kind in event_type.attributes.items():
            values = [row.get(name) for row in rows]
            plain = _plain(values, kind)
            if plain is None:
                return None
            columns.append(plain)
        return cls(event_type, columns, len(rows))

    @classmethod
    def of_records(cls, event_type: EventType, records: pa.RecordBatch) -> PackedColumns:
        columns = [
            (column.cast(pa.int64()) if kind is Kind.TIMESTAMP else column).to_pylist()
            for column, kind in zip(records.columns, event_type.kinds, strict=True)
        ]
        return cls(event_type, columns, records.num_rows)

    @classmethod
    def unpack(
        cls, event_type: EventType, data: bytes, count: int, *, checked: bool = False
    ) -> PackedColumns:
        """The events of these bytes; `EventError` if they are no packed columns of `count` events of this
        type. `checked` means that a broker has already checked the ranges of the values."""
        if not 0 < count <= MOST_PACKED:
            raise EventError(
                f"{event_type.name}: packed columns of {count} events, expected 1 to {MOST_PACKED}"
            )
        if event_type.has_lists:
            raise EventError(f"{event_type.name}: packed columns, expected Arrow columns with lists")
        layout = event_type.cache.get(count) or _layout_of(event_type, count)
        end = layout.size
        try:
            values = layout.unpack_from(data)
            columns: list[Values] = [*map(list, map(values.__getitem__, layout.places))]
            for place in layout.strings:
                column = columns[place]
                for event, length in enumerate(column):
                    start, end = end, end + length
                    column[event] = data[start:end].decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise EventError(f"{event_type.name}: malformed packed columns: {error}") from None
        if end != len(data):
            raise EventError(
                f"{event_type.name}: malformed packed columns: {len(data)} bytes, expected {end}"
            )
        if values[0] != layout.present:
            absent = int.from_bytes(values[0], "little")
            for place, column in enumerate(columns):
                for event in range(count):
                    if absent >> (place * count + event) & 1:
                        column[event] = None
        if not checked:
            for place, name, kind, first, last in layout.integers:
                for value in columns[place]:
                    if value is not None and not first <= value <= last:
                        check_range(event_type, name, kind, value, value)
        packed = cls(event_type, columns, count)
        packed.data, packed.nbytes = data, end
        return packed

    def packed(self) -> bytes:
        """The bytes of these events, cached."""
        if self.data is None:
            layout = self.event_type.cache.get(self.count) or _layout_of(self.event_type, self.count)
            values: list[Any] = [*chain.from_iterable(self.columns)]
            absent = layout.present
            if None in values:
                bits = sum(1 << place for place, value in enumerate(values) if value is None)
                absent = bits.to_bytes(layout.absent_bytes, "little")
                values = [
                    empty if value is None else value
                    for value, empty in zip(values, layout.empty, strict=True)
                ]
            texts: list[bytes] = []
            for place in layout.texts:
                text = values[place].encode()
                texts.append(text)
                values[place] = len(text)
            self.data = b"".join([layout.pack(absent, *values), *texts])
            self.nbytes = len(self.data)
        return self.data

    def records(self) -> pa.RecordBatch:
        return records_of([self])

    def rows(self) -> list[dict[str, Any]]:
        """The events as dicts with every attribute; timestamps are datetimes."""
        return [self.row(event) for event in range(self.count)]

    def row(self, event: int) -> dict[str, Any]:
        row = dict(zip(self.event_type.names, [column[event] for column in self.columns], strict=True))
        for name in self.event_type.times:
            if row[name] is not None:
                row[name] = moment_of(row[name])
        return row

    # --- parts ------------------------------------------------------------------------------------

    def take(self, positions: Sequence[int]) -> PackedColumns:
        """The events at these positions, 1 to `MOST_PACKED` of them."""
        columns = [[column[position] for position in positions] for column in self.columns]
        return PackedColumns(self.event_type, columns, len(positions))

    def with_schema(self, event_type: EventType) -> PackedColumns:
        """These events under another schema of their type; new attributes and other kinds are absent."""
        own = dict(zip(self.event_type.names, self.columns, strict=True))
        kinds = self.event_type.attributes
        columns = [
            own[name] if kinds.get(name) is kind else [None] * self.count
            for name, kind in event_type.attributes.items()
        ]
        return PackedColumns(event_type, columns, self.count)

    # --- values -----------------------------------------------------------------------------------

    def values(self, attribute: int) -> Values:
        """The values of an attribute, by its number; timestamps are datetimes."""
        column = self.columns[attribute]
        if self.event_type.kinds[attribute] is Kind.TIMESTAMP:
            return [None if value is None else moment_of(value) for value in column]
        return column

    def keys(self, attribute: int) -> list[int]:
        """The keys (`encoding/keys.py`) of the values of an attribute without strings."""
        keys = self._keys.get(attribute)
        if keys is None:
            column, kind = self.columns[attribute], self.event_type.kinds[attribute]
            if kind is Kind.FLOAT64:
                keys = [MISSING if value is None else _float_key(value) for value in column]
            else:
                keys = [MISSING if value is None else _integer_key(value) for value in column]
            self._keys[attribute] = keys
        return keys

    def strings(self, attribute: int) -> pa.StringArray:
        column = self._strings.get(attribute)
        if column is None:
            column = self._strings[attribute] = pa.array(self.columns[attribute], type=pa.string())
        return column

    def event_bytes(self) -> list[int]:
        """The size of every event: values at fixed width, strings as UTF-8."""
        fixed = struct.calcsize("<" + "".join(_FORMATS[kind] for kind in self.event_type.kinds))
        sizes = [fixed] * self.count
        for kind, column in zip(self.event_type.kinds, self.columns, strict=True):
            if kind is Kind.STRING:
                sizes = [
                    size + (0 if text is None else len(text.encode()))
                    for size, text in zip(sizes, column, strict=True)
                ]
        return sizes


def joined(parts: Sequence[PackedColumns]) -> list[Values]:
    return [list(chain.from_iterable(columns)) for columns in zip(*(p.columns for p in parts), strict=True)]


def records_of(parts: Sequence[PackedColumns]) -> pa.RecordBatch:
    """The events of several parts of one schema, in order, as Arrow columns."""
    event_type = parts[0].event_type
    columns = parts[0].columns if len(parts) == 1 else joined(parts)
    arrays = [
        pa.array(column, type=kind.arrow) for column, kind in zip(columns, event_type.kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=event_type.arrow_schema)


def _plain(values: Values, kind: Kind) -> Values | None:
    """The values in the form of `PackedColumns`; None if one is of another type or out of range."""
    plain: Values = []
    for value in values:
        of = value.__class__
        if value is None:
            pass
        elif kind is Kind.STRING:
            if of is not str or not (value.isascii() or _is_unicode(value)):
                return None
        elif kind is Kind.FLOAT64:
            if of is int and -_EXACT <= value <= _EXACT:
                value = float(value)
            elif of is not float:
                return None
        elif kind is Kind.INT64:
            if of is not int or not FIRST <= value <= LAST:
                return None
        elif kind is Kind.BOOL:
            if of is not bool:
                return None
        else:
            if of is not datetime:
                return None
            value = microseconds(value)
            if not FIRST_US <= value <= LAST_US:
                return None
        plain.append(value)
    return plain


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_DOUBLE = struct.Struct("<d").pack
_BITS = struct.Struct("<q").unpack


def _float_key(value: float) -> int:
    key: int = _BITS(_DOUBLE(value))[0]
    if key < 0:
        key = INT64_MIN - key  # 0 for -0.0
    return key if -INFINITY_KEY <= key <= INFINITY_KEY else NAN_KEY


def _integer_key(value: int) -> int:
    """Values that no batch has get the outermost keys."""
    return FIRST if value < FIRST else LAST if value > LAST else int(value)

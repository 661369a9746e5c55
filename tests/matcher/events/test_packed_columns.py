"""Packed columns: operations on a few events equal those on Arrow columns; others are refused."""

import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events

from covey.matcher import EventBatch, EventError, EventType
from covey.matcher.events.packed_columns import MOST_PACKED

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "time": "timestamp"}
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"firm": "IBM\u20ac", "price": -0.0, "volume": 2**63 - 2, "open": True, "time": NOON},
    {},
    {"firm": "", "price": float("nan"), "volume": -5, "open": False},
]
BATCH = EventBatch.from_pylist(QUOTE, ROWS)


def arrow(batch: EventBatch) -> EventBatch:
    return EventBatch.from_arrow(
        batch.event_type,
        batch.record_batch,
        publisher=batch.publisher,
        first_sequence=batch.first_sequence,
        sequence_offsets=batch.sequence_offsets,
        ingress_ns=batch.ingress_ns,
    )


def packed_bytes(batch: EventBatch) -> bytes:
    return batch.columns.packed()


def shown(batch: EventBatch) -> tuple[str, list[int], str]:
    """A batch's whole content; NaN differs from itself."""
    return repr(batch.to_pylist()), batch.sequences().tolist(), repr(batch)


@st.composite
def batches(draw: st.DrawFn) -> EventBatch:
    event_type = draw(event_types(lists=False))
    rows = draw(st.lists(events(event_type), min_size=1, max_size=MOST_PACKED))
    return EventBatch.from_pylist(event_type, rows, publisher="p", first_sequence=draw(st.integers(0, 99)))


def test_few_events_are_packed_and_more_are_not() -> None:
    assert EventBatch.from_pylist(QUOTE, [{}] * MOST_PACKED).columns is not None
    for count in (0, MOST_PACKED + 1):
        assert EventBatch.from_pylist(QUOTE, [{}] * count).columns is None
    assert EventBatch.from_arrow(QUOTE, BATCH.record_batch).columns is None


@given(batches())
def test_bytes_round_trip(batch: EventBatch) -> None:
    data = packed_bytes(batch)
    again = EventBatch.unpack(
        batch.event_type, data, len(batch), publisher="p", first_sequence=batch.first_sequence
    )
    assert packed_bytes(again) is data
    assert shown(again) == shown(batch) == shown(arrow(batch))
    assert again.nbytes == batch.nbytes == len(data)
    assert again.event_bytes().tolist() == arrow(batch).event_bytes().tolist()
    for name in batch.event_type.names:
        assert list(map(str, batch.values(name))) == list(map(str, arrow(batch).values(name)))


@given(batches(), st.data())
def test_parts_are_those_of_arrow_columns(batch: EventBatch, data: st.DataObject) -> None:
    plain = arrow(batch)
    positions = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=MOST_PACKED + 3))
    start, length = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    for part, other in (
        (batch.take(positions), plain.take(positions)),
        (batch.slice(start, length), plain.slice(start, length)),
        (batch.take(positions).consecutive(), plain.take(positions).consecutive()),
        (batch.stamped(publisher="q", first_sequence=3), plain.stamped(publisher="q", first_sequence=3)),
    ):
        assert shown(part) == shown(other)
        assert (part.columns is not None) == (0 < len(part) <= MOST_PACKED)


@given(batches(), event_types())
def test_another_schema_drops_and_adds_the_attributes_that_arrow_columns_do(
    batch: EventBatch, schema: EventType
) -> None:
    widened = EventType("T", {**batch.event_type.attributes, "more": "float64", "text": "string"})
    for other in (widened, schema):
        assert shown(batch.with_schema(other, other_kinds=True)) == shown(
            arrow(batch).with_schema(other, other_kinds=True)
        )


@given(st.lists(st.tuples(st.integers(0, MOST_PACKED), st.booleans()), min_size=1, max_size=6))
def test_joined_batches_have_the_events_of_all_whatever_their_columns(parts: list[tuple[int, bool]]) -> None:
    batches, rows = [], []
    for number, (count, is_arrow) in enumerate(parts):
        given_rows = [ROWS[0] | {"volume": 100 * number + i} for i in range(count)]
        rows += given_rows
        batch = EventBatch.from_pylist(QUOTE, given_rows, first_sequence=100 * number)
        batches.append(arrow(batch) if is_arrow else batch)
    joined = EventBatch.concat(batches)
    assert [event["volume"] for event in joined] == [row["volume"] for row in rows]
    assert joined.record_batch.num_rows == len(joined) == len(rows)
    assert joined.record_batch.equals(EventBatch.from_pylist(QUOTE, rows).record_batch)
    if len(parts) > 1:
        every = all(batch.columns is not None for batch in batches)
        assert (joined.columns is not None) == (every and len(rows) <= MOST_PACKED)


@pytest.mark.parametrize(
    ("given_value", "value"),
    [
        ({"price": 3}, {"price": 3.0}),
        ({"price": 2**60}, {"price": float(2**60)}),
        ({"volume": np.int32(3)}, {"volume": 3}),
        ({"open": np.bool_(True)}, {"open": True}),
        ({"price": np.float32(1.5)}, {"price": 1.5}),
        ({"time": "2026-01-31T12:00:00"}, {"time": NOON}),
        ({"time": "2026-01-31T12:00:00Z"}, {"time": NOON}),
        ({"time": "2026-01-31T13:00:00+01:00"}, {"time": NOON}),
        ({"time": np.datetime64("2026-01-31T12:00:00")}, {"time": NOON}),
        ({"time": NOON.replace(tzinfo=None)}, {"time": NOON}),
        ({"time": NOON.astimezone(timezone(timedelta(hours=5)))}, {"time": NOON}),
        ({"firm": np.str_("IBM")}, {"firm": "IBM"}),
    ],
)
def test_values_of_other_types_are_packed_as_their_attribute_has_them(
    given_value: dict[str, Any], value: dict[str, Any]
) -> None:
    batch = EventBatch.from_pylist(QUOTE, [given_value])
    assert batch.columns is not None
    assert batch.to_pylist() == EventBatch.from_pylist(QUOTE, [value]).to_pylist()
    assert packed_bytes(batch) == packed_bytes(EventBatch.from_pylist(QUOTE, [value]))


def test_bytes_are_laid_out_as_documented() -> None:
    two = EventType("T", {"s": "string", "n": "int64"})
    batch = EventBatch.from_pylist(two, [{"s": "ab", "n": 7}, {"n": None, "s": "\u20ac"}])
    assert packed_bytes(batch) == b"\x08" + struct.pack("<IIqq", 2, 3, 7, 0) + "ab\u20ac".encode()


NUMBER = EventType("N", {"n": "int64"})
TEXT = EventType("S", {"s": "string"})
TIME = EventType("At", {"t": "timestamp"})


@pytest.mark.parametrize(
    ("event_type", "data", "count", "complaint"),
    [
        (NUMBER, b"", 1, "malformed packed columns"),
        (NUMBER, bytes(8), 1, "malformed packed columns"),
        (NUMBER, bytes(10), 1, "10 bytes, expected 9"),
        (NUMBER, bytes(9), 2, "malformed packed columns"),
        (NUMBER, bytes(9), 0, "packed columns of 0 events, expected 1 to 16"),
        (NUMBER, bytes(1000), 17, "packed columns of 17 events, expected 1 to 16"),
        (NUMBER, b"\0" + struct.pack("<q", -(2**63)), 1, "column 'n' holds -9223372036854775808, expected"),
        (NUMBER, b"\0" + struct.pack("<q", 2**63 - 1), 1, "column 'n' holds 9223372036854775807, expected"),
        (TIME, b"\0" + struct.pack("<q", 2**62), 1, "column 't' holds .* expected a timestamp in the years"),
        (TEXT, b"\0" + struct.pack("<I", 2) + b"a", 1, "6 bytes, expected 7"),
        (TEXT, b"\0" + struct.pack("<I", 2**32 - 1) + b"a", 1, "6 bytes, expected 4294967300"),
        (TEXT, b"\0" + struct.pack("<I", 1) + b"\xff", 1, "malformed packed columns: 'utf-8' codec"),
        (TEXT, b"\0" + struct.pack("<II", 1, 1) + "é".encode(), 2, "malformed packed columns: 'utf-8' codec"),
    ],
)
def test_bytes_that_are_no_packed_columns_are_refused(
    event_type: EventType, data: bytes, count: int, complaint: str
) -> None:
    with pytest.raises(EventError, match=complaint):
        EventBatch.unpack(event_type, data, count)


def test_absent_values_are_in_every_range() -> None:
    data = b"\1" + struct.pack("<q", -(2**63))
    assert EventBatch.unpack(NUMBER, data, 1).to_pylist() == [{"n": None}]


@examples(500)
@given(st.binary(max_size=6), st.integers(0, 200), st.integers(0, 200), st.integers(0, 18))
def test_damaged_bytes_give_valid_columns_or_an_error(patch: bytes, at: int, end: int, count: int) -> None:
    data = bytearray(packed_bytes(BATCH))
    data[at : at + len(patch)] = patch
    with suppress(EventError):
        batch = EventBatch.unpack(QUOTE, bytes(data[:end]), count)
        batch.record_batch.validate(full=True)
        assert EventBatch.from_arrow(QUOTE, batch.record_batch).record_batch.num_rows == len(batch) == count

"""Event batches: round trips, refusals that name the mismatch, and damaged bytes."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events

from covey.matcher import EventBatch, EventError, EventType

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "time": "timestamp"}
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FULL = {"firm": "IBM", "price": 9.5, "volume": 100, "open": True, "time": NOON}
NONE = dict.fromkeys(QUOTE.names)


def some(count: int, **options: Any) -> EventBatch:
    return EventBatch.from_pylist(QUOTE, [FULL | {"volume": i} for i in range(count)], **options)


def volumes(batch: EventBatch) -> list[int]:
    return [event["volume"] for event in batch]


@given(st.data())
def test_events_round_trip_through_python_arrow_and_bytes(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    drawn = data.draw(st.lists(events(event_type), max_size=9))
    rows = [{name: event[name] for name in event_type.names} for event in drawn]
    batch = EventBatch.from_pylist(event_type, drawn)
    again = EventBatch.deserialize(event_type, batch.serialized())
    for other in (batch, again, EventBatch.from_arrow(event_type, batch.record_batch)):
        assert len(other) == len(rows)
        assert repr(other.to_pylist()) == repr(rows)  # repr, since NaN differs from itself
    assert again.serialized() is again.serialized()
    assert again.nbytes == len(batch.serialized())


def test_received_bytes_are_forwarded_unchanged() -> None:
    data = some(3).serialized()
    assert EventBatch.deserialize(QUOTE, data).serialized() is data


def test_a_missing_key_is_an_absent_attribute() -> None:
    assert EventBatch.from_pylist(QUOTE, [{}, {"firm": "IBM"}]).to_pylist() == [NONE, NONE | {"firm": "IBM"}]


def test_times_finer_than_a_microsecond_are_refused() -> None:
    moment = pd.Timestamp("2026-01-31T12:00:00.000001001")
    for finer in (moment, moment.to_datetime64()):
        with pytest.raises(EventError, match=r"attribute time is timestamp, got .*expected .*microseconds"):
            EventBatch.from_pylist(QUOTE, [{"time": finer}])
    assert EventBatch.from_pylist(QUOTE, [{"time": moment.floor("us")}]).to_pylist()[0]["time"] == (
        NOON + timedelta(microseconds=1)
    )


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ({"prize": 3}, ["event 1", "prize", "3", "firm, price"]),
        ({"price": "x"}, ["event 1", "price", "float64", "'x'"]),
        ({"price": True}, ["price", "True", "bool"]),
        ({"price": 2**53 + 1}, ["price", str(2**53 + 1)]),
        ({"price": 10**400}, ["price"]),
        ({"volume": 1.5}, ["volume", "int64", "1.5"]),
        ({"volume": True}, ["volume", "True"]),
        ({"volume": 2**63}, ["volume", str(2**63)]),
        ({"volume": 2**63 - 1}, ["volume", str(2**63 - 1), "-2**63 + 1 to 2**63 - 2"]),
        ({"volume": -(2**63)}, ["volume", str(-(2**63)), "-2**63 + 1 to 2**63 - 2"]),
        ({"open": 1}, ["open", "bool", "1"]),
        ({"firm": 1}, ["firm", "string", "1"]),
        ({"firm": b"x"}, ["firm", "string"]),
        ({"firm": "\ud800"}, ["firm", "Unicode"]),
        ({"time": 3}, ["time", "timestamp", "3"]),
        ({"time": "yesterday"}, ["time", "yesterday", "ISO 8601"]),
        ({"time": np.datetime64("NaT")}, ["time"]),
        ({"time": np.datetime64("20000-01-01")}, ["time"]),
        (["IBM"], ["event 1", "mapping", "list"]),
    ],
)
def test_errors_name_the_event_that_does_not_fit(row: Any, names: list[str]) -> None:
    with pytest.raises(EventError) as caught:
        EventBatch.from_pylist(QUOTE, [FULL, row])
    for name in names:
        assert name in str(caught.value)


def test_arrow_columns_are_reordered_widened_and_filled() -> None:
    table = pa.table(
        {
            "volume": pa.array([1, 2], pa.int32()),
            "firm": pa.array(["IBM", None]).dictionary_encode(),
            "time": pa.array([1_769_860_800_000, None], pa.timestamp("ms")),
            "price": pa.array([1.5, 2.5], pa.float32()),
        }
    )
    batch = EventBatch.from_arrow(QUOTE, table)
    assert batch.record_batch.schema == QUOTE.arrow_schema
    assert batch.to_pylist() == [
        NONE | {"firm": "IBM", "price": 1.5, "volume": 1, "time": NOON},
        NONE | {"price": 2.5, "volume": 2},
    ]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"prize": [1]}, ["prize", "firm, price"]),
        ({"volume": [1.5]}, ["volume", "double", "int64"]),
        ({"volume": pa.array([2**63], pa.uint64())}, ["volume", "int64"]),
        ({"volume": [1, None, 2**63 - 1]}, ["volume", str(2**63 - 1), "2**63 - 2"]),
        ({"volume": [-(2**63)]}, ["volume", str(-(2**63)), "-2**63 + 1"]),
        ({"price": [2**53 + 1]}, ["price"]),
        ({"price": ["s"]}, ["price", "string", "double"]),
        ({"firm": [1]}, ["firm", "string"]),
        ({"time": pa.array([1], pa.timestamp("ns"))}, ["time"]),
        ({"time": pa.array([2**62], pa.timestamp("us", tz="UTC"))}, ["time", "9999"]),
    ],
)
def test_errors_name_the_column_that_does_not_fit(columns: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(EventError) as caught:
        EventBatch.from_arrow(QUOTE, pa.table(columns))
    for name in names:
        assert name in str(caught.value)


def test_a_repeated_column_is_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["volume", "volume"])
    with pytest.raises(EventError, match="'volume' appears 2 times"):
        EventBatch.from_arrow(QUOTE, twice)


def test_only_arrow_data_is_accepted_as_arrow() -> None:
    with pytest.raises(EventError, match="got list"):
        EventBatch.from_arrow(QUOTE, [1])


def test_invalid_utf8_is_refused_on_entry() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(EventError, match=r"invalid Arrow data.*UTF8"):
        EventBatch.from_arrow(QUOTE, pa.RecordBatch.from_arrays([broken], names=["firm"]))


def test_parts_keep_their_sequence_numbers() -> None:
    batch = some(10, publisher="p", first_sequence=100, ingress_ns=7)
    assert batch.sequences().tolist() == list(range(100, 110))
    part = batch.slice(2, 5)
    assert (volumes(part), part.first_sequence, part.sequence_offsets) == ([2, 3, 4, 5, 6], 102, None)
    taken = part.take([4, 0, 2])
    assert (volumes(taken), taken.sequences().tolist()) == ([6, 2, 4], [106, 102, 104])
    assert taken.slice(1).sequences().tolist() == [102, 104]
    assert taken.take([2, 0]).sequences().tolist() == [104, 106]
    assert volumes(batch.filter(np.arange(10) % 3 == 0)) == [0, 3, 6, 9]
    assert (taken.publisher, taken.ingress_ns) == ("p", 7)
    again = EventBatch.deserialize(
        QUOTE, taken.serialized(), publisher="p", first_sequence=102,
        sequence_offsets=np.array([4, 0, 2], np.uint32), ingress_ns=7,
    )  # fmt: skip
    assert again == taken
    assert again != taken.stamped(publisher="q")


def test_take_of_all_events_returns_the_same_batch_and_of_none_an_empty_one() -> None:
    batch = some(4)
    assert batch.take([0, 1, 2, 3]) is batch
    assert batch.slice(0) is batch
    assert batch.take([1, 2]).sequence_offsets is None
    assert (len(batch.take([])), len(batch.slice(9)), len(some(0).take([]))) == (0, 0, 0)


def test_a_new_stamp_keeps_the_bytes() -> None:
    batch = some(3)
    stamped = batch.stamped(publisher="p", first_sequence=5, ingress_ns=9)
    assert stamped.serialized() is not None
    assert (stamped.publisher, stamped.sequences().tolist(), stamped.ingress_ns) == ("p", [5, 6, 7], 9)
    batch.serialized()
    assert batch.stamped(publisher="q").serialized() is batch.serialized()


def test_concat_joins_runs_and_keeps_gaps() -> None:
    batch = some(10, publisher="p", first_sequence=50, ingress_ns=3)
    joined = EventBatch.concat([batch.slice(0, 2), batch.slice(2, 3)])
    assert (volumes(joined), joined.first_sequence, joined.sequence_offsets) == ([0, 1, 2, 3, 4], 50, None)
    gaps = EventBatch.concat([batch.slice(5, 2), batch.slice(0, 1).stamped(ingress_ns=1)])
    assert (gaps.sequences().tolist(), gaps.ingress_ns) == ([55, 56, 50], 1)
    assert EventBatch.concat([batch]) is batch
    assert len(EventBatch.concat([some(0), some(0)])) == 0
    for wrong in (
        [],
        [batch, some(1, publisher="q")],
        [some(1, first_sequence=0), some(1, first_sequence=2**33)],
    ):
        with pytest.raises(EventError):
            EventBatch.concat(wrong)


def test_sequence_offsets_must_fit_the_events() -> None:
    data = some(3).serialized()
    for offsets in (np.zeros(2, np.uint32), np.zeros(3, np.int64)):
        with pytest.raises(EventError, match=r"sequence offsets.*uint32 of shape \(3,\)"):
            EventBatch.deserialize(QUOTE, data, sequence_offsets=offsets)


def test_event_bytes_includes_the_length_of_strings() -> None:
    sizes = EventBatch.from_pylist(QUOTE, [{}, {"firm": "abc"}, {"firm": "é"}]).event_bytes()
    assert (sizes - sizes[0]).tolist() == [0, 3, 2]


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\0" * 100, b"\xff" * 8, b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 9]
)
def test_bytes_that_are_no_batch_are_refused(data: bytes) -> None:
    with pytest.raises(EventError, match="Quote"):
        EventBatch.deserialize(QUOTE, data)


def test_a_batch_of_another_type_is_refused_or_harmless() -> None:
    other = EventType("Quote", {"firm": "int64"})
    with pytest.raises(EventError):
        EventBatch.deserialize(QUOTE, EventBatch.from_pylist(other, [{"firm": 1}]).serialized())


def test_damaged_bytes_are_refused_or_decode_without_a_crash() -> None:
    """An accepted batch must be readable whole; a crash would end the process."""
    data = some(40).serialized()
    choose = random.Random(7)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(data[: choose.randrange(len(data))] if choose.random() < 0.1 else data)
        for _ in range(choose.choice([1, 1, 2, 5])):
            if damaged:
                reach = min(len(damaged), choose.choice([600, len(damaged)]))
                damaged[choose.randrange(reach)] = choose.choice([0, 1, 127, 128, 255])
        try:
            found = EventBatch.deserialize(QUOTE, bytes(damaged))
            if len(found) < 1000:
                found.to_pylist()
        except EventError:
            refused += 1
    assert 0 < refused < 3000


def test_a_float64_attribute_takes_every_integer_that_float64_represents() -> None:
    values = [2**63, -(2**63), 2**53 + 2, 10**22, 2**1023, 1.5, None]
    batch = EventBatch.from_pylist(QUOTE, [{"price": value} for value in values])
    assert [event["price"] for event in batch] == values
    for value in (2**63 + 1, 2**2000):
        with pytest.raises(EventError, match="a number that a float64 holds exactly"):
            EventBatch.from_pylist(QUOTE, [{"price": 1.0}, {"price": value}])

"""Events have equal keys in packed and in Arrow columns."""

from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.events.packed_columns import MOST_PACKED

TRADE = EventType(
    "T", {"s": "string", "x": "float64", "n": "int64", "b": "bool", "t": "timestamp", "z": "string"}
)
WIDER = EventType("T", {**TRADE.attributes, "more": "string", "m": "int64"})


def keys(engine: Any, batch: EventBatch) -> list[list[int]]:
    encoded = engine.columns.encode(batch.with_schema(engine.event_type))
    assert encoded.dtype == np.int64
    assert encoded.flags.c_contiguous
    rows: list[list[int]] = encoded.tolist()
    return rows


def same(engine: Any, batch: EventBatch) -> None:
    assert batch.columns is not None
    plain = EventBatch.from_arrow(batch.event_type, batch.record_batch)
    assert keys(engine, batch) == keys(engine, plain)
    for few, all_ in zip(engine.match(batch).ordered(), engine.match(plain).ordered(), strict=True):
        assert few.tolist() == all_.tolist()


@examples(300)
@given(st.data())
def test_keys_of_packed_events_are_those_of_arrow_columns(data: st.DataObject) -> None:
    event_type = data.draw(event_types(lists=False))
    engine = create_engine("cluster", event_type)
    for number in range(data.draw(st.integers(0, 4))):
        chosen = data.draw(filters(event_type))
        engine.add(number, chosen, data.draw(values_of(chosen.variables)))
    rows = data.draw(st.lists(events(event_type), min_size=1, max_size=MOST_PACKED))
    same(engine, EventBatch.from_pylist(event_type, rows))


@pytest.mark.parametrize("count", [1, 3, MOST_PACKED])
def test_derived_columns_and_widened_schemas(count: int) -> None:
    engine = create_engine("cluster", TRADE)
    texts = [
        "s == 'ab' and x < 1.5", "s contains 'b'", "not s suffix 'c'", "s suffix 'bc'", "s prefix 'a'",
        "s in ('a', 'ab', 'abc', 'b', 'c', 'd', 'e', 'f', 'g', 'h')", "n in (1, 2, 3, 4, 5, 6, 7, 8, 9)",
        "n not in (1, 2, 3, 4, 5, 6, 7, 8, 9)", "z >= 'b' and b == true", "s != 'ab'", "t > '2026-01-01'",
    ]  # fmt: skip
    for number, text in enumerate(texts):
        engine.add(number, parse(text, TRADE))
    rows: list[dict[str, Any]] = [
        {"s": text, "z": text, "x": x, "n": n, "b": n == 1}
        for text, x, n in zip(
            ["ab", None, "", "abc", "é", "b"] * 3, [1.0, None, -0.0] * 6, range(18), strict=True
        )
    ]
    same(engine, EventBatch.from_pylist(TRADE, rows[:count]))
    engine.widen(WIDER)
    engine.add(99, parse("more prefix 'x' or m < 3", WIDER))
    same(engine, EventBatch.from_pylist(TRADE, rows[:count]))
    same(engine, EventBatch.from_pylist(WIDER, [{"more": "xy", "m": 2, **row} for row in rows[:count]]))


def test_many_columns() -> None:
    engine = create_engine("cluster", TRADE)
    for number in range(100):
        engine.add(number, parse(f"s contains 'a{number}'", TRADE))
    same(engine, EventBatch.from_pylist(TRADE, [{"s": "xa7 a99"}]))


def test_integers_that_no_batch_has_get_the_outermost_keys() -> None:
    engine = create_engine("cluster", EventType("N", {"n": "int64"}))
    engine.add(1, parse("n >= 0", engine.event_type))
    data = b"\0" + (2**63 - 1).to_bytes(8, "little")
    batch = EventBatch.unpack(engine.event_type, data, 1, checked=True)
    plain = EventBatch(engine.event_type, batch.record_batch)
    assert keys(engine, batch) == keys(engine, plain) == [[2**63 - 2]]

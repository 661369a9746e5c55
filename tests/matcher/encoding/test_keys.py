"""Keys keep the order of every kind, and bounds are exact between kinds."""

from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_filters import EVENT_POOLS, FLOATS, INTEGERS, TIMES

from covey.matcher import EventBatch, EventType, Kind
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import (
    bound_keys,
    float_keys,
    float_of_key,
    largest_key,
    lower_key,
    upper_key,
)
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, LAST, MISSING, NAN_KEY
from covey.matcher.expressions.operators import Operator

integers = st.one_of(st.sampled_from(INTEGERS), st.integers(-(2**63), 2**63 - 1))
event_integers = integers.filter(lambda value: FIRST <= value <= LAST)
floats = st.one_of(st.sampled_from(FLOATS), st.floats(allow_nan=False))
numbers = st.one_of(integers, floats)


def keys_of(kind: Kind, values: list[Any]) -> list[int]:
    event_type = EventType("T", {"x": kind})
    columns = Columns(event_type)
    columns.test([0])
    keys = columns.encode(EventBatch.from_pylist(event_type, [{"x": v} for v in values]))
    return [int(key) for key in keys[:, 0]]


def test_missing_and_nan_have_reserved_keys() -> None:
    assert keys_of(Kind.FLOAT64, [None, nan, -nan, inf, -0.0, 0.0]) == [
        MISSING, NAN_KEY, NAN_KEY, INFINITY_KEY, 0, 0,
    ]  # fmt: skip
    assert keys_of(Kind.INT64, [None, 0, -(2**63) + 1, 2**63 - 2]) == [MISSING, 0, FIRST, LAST]
    assert keys_of(Kind.BOOL, [None, False, True] * 5) == [MISSING, 0, 1] * 5
    assert keys_of(Kind.TIMESTAMP, [None, TIMES[1]]) == [MISSING, 0]


@given(st.lists(floats, min_size=2, max_size=20))
def test_float_keys_keep_order_and_equality(values: list[float]) -> None:
    keys = keys_of(Kind.FLOAT64, values)
    assert keys == [lower_key(Kind.FLOAT64, value, False) for value in values]
    assert keys == float_keys(np.array(values)).tolist()
    assert [float_of_key(key) for key in keys] == values
    for a, key_a in zip(values, keys, strict=True):
        for b, key_b in zip(values, keys, strict=True):
            assert (a < b, a == b) == (key_a < key_b, key_a == key_b)


@given(
    st.one_of(event_integers.map(lambda v: (Kind.INT64, v)), floats.map(lambda v: (Kind.FLOAT64, v))),
    numbers,
    st.booleans(),
)
def test_keys_of_bounds_decide_comparisons(value: tuple[Kind, Any], bound: int | float, strict: bool) -> None:
    kind, x = value
    key = keys_of(kind, [x])[0]
    above, below = (x > bound, x < bound) if strict else (x >= bound, x <= bound)
    low, high = lower_key(kind, bound, strict), upper_key(kind, bound, strict)
    assert (low <= key <= largest_key(kind)) == above
    assert (key <= high) == below


@given(st.lists(numbers, min_size=1, max_size=8), st.booleans(), st.sampled_from([Kind.INT64, Kind.FLOAT64]))
def test_columns_of_bounds_equal_single_bounds(bounds: list[Any], strict: bool, kind: Kind) -> None:
    same = len(set(map(type, bounds))) == 1
    column = np.array(bounds) if same else np.array(bounds, dtype=object)
    for one, lower in ((lower_key, True), (upper_key, False)):
        keys = bound_keys(kind, column, strict, lower=lower)
        assert keys.tolist() == [one(kind, bound, strict) for bound in bounds]


def test_nan_and_missing_lie_outside_every_bound() -> None:
    for bound in (-inf, 0.0, inf):
        assert largest_key(Kind.FLOAT64) < NAN_KEY
        assert not lower_key(Kind.FLOAT64, bound, False) <= MISSING
        assert upper_key(Kind.FLOAT64, bound, False) < NAN_KEY


def test_strings_have_the_ids_of_constants_and_events_do_not_grow_the_dictionary() -> None:
    event_type = EventType("T", {"x": "string"})
    columns = Columns(event_type)
    columns.test([0])
    ids = {text: columns.strings.id_of(text) for text in ("", "a", "é", "ab")}
    assert len(set(ids.values())) == 4
    rows = [{"x": x} for x in ("a", "b", None, "", "é", "ab", "abc")]
    keys = columns.encode(EventBatch.from_pylist(event_type, rows).slice(1))
    assert keys[:, 0].tolist() == [0, MISSING, ids[""], ids["é"], ids["ab"], 0]
    assert len(columns.strings) == 4


def test_ids_of_many_constants_are_freed_and_reused() -> None:
    columns = Columns(EventType("T", {"x": "string"}))
    strings = columns.strings
    for start in range(0, 25_000, 5_000):
        ids = [strings.id_of(f"constant {i}") for i in range(start, start + 5_000)]
        live = np.zeros(strings.limit, dtype=np.bool_)
        live[ids[:10]] = True
        strings.collect(live)
        assert len(strings) == 10
        assert strings.name(ids[0]) == f"constant {start}"
        assert strings.id_of(f"constant {start}") == ids[0]
    assert strings.limit < 5_100
    assert strings.memory_bytes() < 1_000_000


def test_derived_columns_are_shared_counted_and_missing_where_the_attribute_is() -> None:
    event_type = EventType("T", {"x": "string", "y": "int64"})
    columns = Columns(event_type)
    first = columns.acquire((0, Operator.SUFFIX, "b"), 2)
    second = columns.acquire((0, Operator.CONTAINS, "b"))
    ending = columns.acquire((0, Operator.SUFFIX, 2))
    assert (columns.acquire((0, Operator.SUFFIX, "b")), len(columns)) == (first, 6)
    batch = EventBatch.from_pylist(event_type, [{"x": x} for x in ("ab", None, "b", "aab")])
    ab = columns.strings.id_of("ab")
    keys = columns.encode(batch)
    assert keys[:, first].tolist() == [1, MISSING, 1, 1]
    assert keys[:, second].tolist() == [1, MISSING, 1, 1]
    assert keys[:, ending].tolist() == [ab, MISSING, MISSING, ab]
    columns.release(first, 2)
    assert columns.describe(first) == "x suffix 'b'"
    assert columns.describe(ending) == "last 2 bytes of x"
    columns.release(first)
    assert columns.acquire((0, Operator.CONTAINS, "a")) == first
    assert columns.encode(batch)[:, first].tolist() == [1, MISSING, 0, 1]
    for column in (first, second, ending):
        columns.release(column)
    assert len(columns) == 2


def test_an_attribute_is_encoded_while_rows_test_it() -> None:
    event_type = EventType("T", {"x": "int64", "y": "float64"})
    columns = Columns(event_type)
    batch = EventBatch.from_pylist(event_type, [{"x": 2**63 - 2, "y": 1.0}])
    assert columns.encode(batch).tolist() == [[0, 0]]
    columns.test([0])
    assert columns.encode(batch).tolist() == [[LAST, 0]]
    columns.test([0, 1], 2)
    columns.untest([0, 1], 2)
    assert columns.encode(batch).tolist() == [[LAST, 0]]
    columns.untest([0])
    assert columns.encode(batch).tolist() == [[0, 0]]


def test_a_column_may_have_a_few_bytes_more_than_its_values() -> None:
    event_type = EventType("T", {"x": "int64"})
    column = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(np.arange(3).tobytes()[:-3])])
    columns = Columns(event_type)
    columns.test([0])
    batch = EventBatch.from_arrow(event_type, pa.RecordBatch.from_arrays([column], ["x"]))
    assert columns.encode(batch).tolist() == [[0], [1]]


@pytest.mark.parametrize("kind", list(Kind))
def test_slices_and_nulls_are_encoded_in_place(kind: Kind) -> None:
    values = EVENT_POOLS[kind] * 3
    event_type = EventType("T", {"x": kind})
    columns = Columns(event_type)
    columns.test([0])
    batch = EventBatch.from_pylist(event_type, [{"x": v} for v in values])
    whole = columns.encode(batch)[:, 0].tolist()
    for start in range(len(values)):
        assert columns.encode(batch.slice(start, 5))[:, 0].tolist() == whole[start : start + 5]

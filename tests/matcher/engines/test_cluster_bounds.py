"""The cluster engine stores bounds exactly, in as few bytes as they need."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import Engine, EventBatch, EventType, create_engine, parse
from covey.matcher.engines.cluster.engine import ClusterEngine

THING = EventType("Thing", {"n": "int64", "m": "int64", "x": "float64", "s": "string"})
FILTERS = [
    parse(text, THING)
    for text in (
        "n == $a",
        "n >= $a and m < $b",
        "n between $a and $b and s == 'it'",
        "m == $b and n > $a and x < 2.5",
        "n != $a or not exists(m)",
    )
]
EDGES = [
    0,
    7,
    *(sign * (2**31 + d) for sign in (1, -1) for d in (-3, -2, -1, 0, 1)),
    2**40,
    2**63 - 1,
    -(2**63),
]
NUMBERS = st.sampled_from(EDGES)
EVENTS = [{"n": n, "m": m, "x": 1.0, "s": "it"} for n in EDGES[:-2] for m in (0, 2**31, -(2**31) - 1)] + [
    {"n": 7}
]


def answers(engine: Engine) -> list[list[int]]:
    offsets, ids = engine.match(EventBatch.from_pylist(THING, EVENTS)).ordered()
    return [sorted(part.tolist()) for part in np.split(ids, offsets[1:-1])]


def numbers(draw: Any, count: int) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    drawn = st.lists(NUMBERS, min_size=count, max_size=count)
    return {name: np.array(draw(drawn), dtype=np.int64) for name in ("a", "b")}


@given(st.data())
def test_answers_equal_the_oracle_s_for_bounds_of_any_size(data: st.DataObject) -> None:
    engines = [create_engine(name, THING) for name in ("cluster", "naive")]
    live: dict[int, bool] = {}
    for step in range(data.draw(st.integers(1, 6))):
        filter = data.draw(st.sampled_from(FILTERS))
        ids = np.arange(20 * step, 20 * step + data.draw(st.integers(1, 20)))
        values = {name: v for name, v in numbers(data.draw, len(ids)).items() if name in filter.variables}
        for engine in engines:
            engine.add_many(ids, filter, values)
        live |= dict.fromkeys(ids.tolist(), "$b" in str(filter))
        for both in (False, True):
            moved = [i for i, has_b in live.items() if has_b or not both]
            moved = data.draw(st.lists(st.sampled_from(moved), unique=True)) if moved else []
            given = numbers(data.draw, len(moved))
            for engine in engines:
                engine.update_many(moved, given if both else {"a": given["a"]})
        gone = data.draw(st.lists(st.sampled_from(sorted(live)), unique=True, max_size=5))
        for engine in engines:
            engine.remove_many(gone)
        live = {i: has_b for i, has_b in live.items() if i not in gone}
        actual, expected = map(answers, engines)
        assert actual == expected


def test_rows_with_a_large_bound_leave_the_others_narrow() -> None:
    engine = ClusterEngine(THING)
    ids = np.arange(1000)
    engine.add_many(ids, FILTERS[1], {"a": ids, "b": ids})
    store = engine.store
    narrow = engine.memory_bytes()["bounds"]
    engine.update(3, {"a": 2**31 - 2})  # would read as a value at the end of int64
    engine.update_many([4, 5], {"b": np.array([-(2**40), 6])})
    assert engine.memory_bytes()["bounds"] < 1.25 * narrow
    assert sorted(store.signatures.row_counts) == [2, 998]
    engine.update_many([3, 4], {"a": 1, "b": 1})
    assert answers(engine)[EVENTS.index({"n": 7, "m": 0, "x": 1.0, "s": "it"})] == [1, 2, 3, 4, 5, 6, 7]
    engine.add_many([1000, 1001], FILTERS[1], {"a": 2**50, "b": np.array([5, 2**50])})
    assert sorted(store.signatures.row_counts) == [4, 998]
    engine.remove_many(np.arange(1002))
    assert len(store.signatures) == 0
    engine.add(1, FILTERS[0], {"a": 2**62})
    assert sum(store.signatures.row_counts) == 1
    assert len(store.signatures) == 1


@pytest.mark.parametrize(("bound", "width"), [(125, 1), (-126, 1), (126, 2), (-32_766, 2), (32_766, 4)])
def test_bounds_take_the_bytes_that_they_need(bound: int, width: int) -> None:
    engine = ClusterEngine(THING)
    engine.add_many([1, 2, 3], parse("n == $a and s == 'it'", THING), {"a": np.array([5, 6, 7])})
    engine.update(2, {"a": bound})
    batch = EventBatch.from_pylist(THING, [{"n": n, "s": "it"} for n in (5, bound, 7)])
    assert engine.match(batch).ids()[1].tolist() == [1, 2, 3]
    rows = 20_000
    engine.add_many(np.arange(4, 4 + rows), parse("n == $a and s == 'it'", THING), {"a": bound})
    assert 2 * width * rows <= engine.memory_bytes()["bounds"] < 2.1 * width * rows


def test_rows_take_the_width_of_others_of_their_structure() -> None:
    engine = ClusterEngine(THING)
    for i in range(1000):
        engine.add(i, parse("n == $a", THING), {"a": i})
    assert len(engine.store.signatures) == 2
    engine.add(1000, parse("n == $a", THING), {"a": 2**40})
    engine.add(1001, parse("n == $a", THING), {"a": 1})
    assert engine.store.signatures.row_counts == [126, 875, 1]

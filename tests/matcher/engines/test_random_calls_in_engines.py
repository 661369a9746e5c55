"""Engines match random filters with calls, free variables and constraints as `Filter.matches` does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from named_operators import registered
from random_filters import events, filters_with_calls, values_of

from covey.matcher import EventBatch, EventType, create_engine

EVENTS = EventType("T", {"s": "string", "r": "string", "i": "int64", "f": "float64"})


@pytest.fixture(autouse=True, scope="module")
def operators() -> Iterator[None]:
    with registered():
        yield


@examples(150)
@given(st.data())
def test_engines_match_random_calls_as_filters_do(data: st.DataObject) -> None:
    filters = [data.draw(filters_with_calls(EVENTS)) for _ in range(3)]
    values = [data.draw(values_of(filter.variables)) for filter in filters]
    rows = []
    for _ in range(4):
        # Words and small numbers, so that most calls have solutions.
        row = data.draw(events(EVENTS))
        row |= {name: data.draw(st.sampled_from(["abcd", "ab", "cba", "b"])) for name in ("s", "r")}
        rows.append(row | {"i": data.draw(st.sampled_from([0, 1, 2, 3, None]))})
    engine = create_engine(data.draw(st.sampled_from(["counting", "cluster"])), EVENTS)
    for uid, filter in enumerate(filters):
        engine.add(uid, filter, values[uid])
    matches = [sorted(ids.tolist()) for ids in engine.match(EventBatch.from_pylist(EVENTS, rows)).per_event()]
    numbered = list(enumerate(filters))
    assert matches == [[uid for uid, f in numbered if f.matches(row, values[uid])] for row in rows]

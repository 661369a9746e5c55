"""Rows agree with the batch of the one event."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError
from covey.matcher.events.plain_rows import PlainRows

ALL = EventType("All", {"i": "int64", "f": "float64", "s": "string", "b": "bool", "t": "timestamp"})
ROWS = PlainRows(ALL)
LISTS = EventType("Lists", {"l": "list<string>", "t": "timestamp"})

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63 - 2, np.int64(5), np.float64(0.5)]),
    st.floats(),
    st.text(),
    st.sampled_from(["\ud800", "é", "2020-01-01", np.str_("x"), b"x", [1], object()]),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5))])),
)


@given(st.dictionaries(st.sampled_from([*ALL.names, "other"]), values, max_size=6))
@examples(1_000)
@pytest.mark.random
def test_a_row_is_that_of_the_batch_of_its_event(event: dict[str, Any]) -> None:
    def of_row() -> tuple[str, int]:
        row, size = ROWS.row(event)
        return str(ROWS.batch([row]).record_batch.to_pylist()), size

    def of_batch() -> tuple[str, int]:
        batch = EventBatch.from_pylist(ALL, [event])
        return str(batch.record_batch.to_pylist()), int(batch.event_bytes()[0])

    assert outcome(of_row) == outcome(of_batch)


@pytest.mark.parametrize("count", [1, 16, 17])
def test_rows_gather_in_a_batch(count: int) -> None:
    events = [
        {"i": i, "s": None if i % 2 else f"é{i}", "t": datetime(2026, 1, 1, tzinfo=UTC)} for i in range(count)
    ]
    assert ROWS.batch([ROWS.row(each)[0] for each in events]) == EventBatch.from_pylist(ALL, events)
    lists = [{"l": ["a", "b"][: i % 3], "t": datetime(2026, 1, 1)} for i in range(count)]
    form = PlainRows(LISTS)
    assert form.batch([form.row(each)[0] for each in lists]) == EventBatch.from_pylist(LISTS, lists)


def outcome(call: Callable[[], tuple[str, int]]) -> tuple[str, int] | str:
    try:
        return call()
    except EventError as error:
        return str(error)

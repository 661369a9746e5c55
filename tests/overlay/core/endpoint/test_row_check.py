"""The look-up agrees with the batch of the one event, whatever the values are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError
from covey.overlay.core.endpoint.row_check import RowCheck

ALL = EventType("All", {"i": "int64", "f": "float64", "s": "string", "b": "bool", "t": "timestamp"})
CHECK = RowCheck(ALL)

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
def test_the_check_of_an_event_is_that_of_its_batch(event: dict[str, Any]) -> None:
    assert outcome(lambda: CHECK.size(event)) == outcome(
        lambda: int(EventBatch.from_pylist(ALL, [event]).event_bytes()[0])
    )


def outcome(call: Callable[[], int]) -> int | str:
    try:
        return call()
    except EventError as error:
        return str(error)

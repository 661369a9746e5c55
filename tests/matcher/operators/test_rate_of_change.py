"""`rate_of_change` against a loop over events, in batches of any size."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_calls import TIMES, operator

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.operators import rate_of_change
from covey.matcher.operators.rate_of_change import Rates

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
Row = tuple[float, int, str]
rows = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, -2.5, 1e300, inf, nan]), st.integers(0, 12), st.sampled_from("abc")),
    max_size=25,
)


def rates(state: Any, part: list[Row], *, keyed: bool) -> list[list[float]]:
    moments = [NOON + timedelta(milliseconds=250 * at) for _, at, _ in part]
    columns = [pa.array([value for value, *_ in part], pa.float64()), pa.array(moments, TIMES)]
    if keyed:
        columns.append(pa.array([key for *_, key in part], pa.string()))
    found: list[list[float]] = operator("rate_of_change").evaluate(state, *columns).to_pylist()
    return found


def loop(events: list[Row], *, keyed: bool) -> list[list[float]]:
    last: dict[str, tuple[float, int]] = {}
    found: list[list[float]] = []
    for value, at, name in events:
        key = name if keyed else ""
        before = last.get(key)
        found.append([])
        if not -inf < value < inf or (before is not None and at <= before[1]):
            continue
        if before is not None:
            found[-1].append((value - before[0]) / ((at - before[1]) * 0.25))
        last[key] = (value, at)
    return found


@given(rows, st.lists(st.integers(0, 25), max_size=4), st.booleans())
def test_rates_are_those_of_a_loop_however_events_are_batched(
    events: list[Row], cuts: list[int], keyed: bool
) -> None:
    state = operator("rate_of_change").state
    assert state is not None
    kept, found = state(), []
    bounds = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    for first, last in pairwise(bounds):
        found += rates(kept, events[first:last], keyed=keyed)
    assert found == loop(events, keyed=keyed)


def test_the_keys_whose_last_event_is_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_of_change, "MOST_KEYS", 2)
    state = Rates()
    assert rates(state, [(1.0, 0, "a"), (1.0, 0, "b"), (2.0, 4, "a"), (1.0, 4, "c")], keyed=True) == [
        [], [], [1.0], [],
    ]  # fmt: skip
    assert (list(state.last), state.forgotten) == (["a", "c"], 1)
    assert rates(state, [(5.0, 8, "b"), (5.0, 8, "a")], keyed=True) == [[], [3.0]]


def test_int64_values_and_keys() -> None:
    moments = pa.array([NOON, NOON + timedelta(seconds=2)], TIMES)
    answer = operator("rate_of_change").evaluate(Rates(), pa.array([3, 9]), moments, pa.array([7, 7]))
    assert answer.to_pylist() == [[], [3.0]]
    batch = EventBatch.from_pylist(EventType("T", {"time": "timestamp"}), [{"time": NOON}])
    assert operator("rate_of_change").evaluate(
        Rates(), pa.array([1.5]), batch.record_batch.column("time")
    ).to_pylist() == [[]]

"""Calls with state in engines: each event that passes the rest of a filter is seen once, in order, for any
batching of events and any use of the matches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from draws import SEED

from covey.matcher import Engine, EventBatch, EventType, create_engine, parse

METER = EventType("Meter", {"v": "float64", "t": "timestamp", "x": "int64"})
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
RATE = "rate_of_change(v, t, ?r) and ?r > 0"


def rows(draw: np.random.Generator, count: int) -> list[dict[str, Any]]:
    return [
        {"v": float(draw.integers(5)), "t": NOON + timedelta(seconds=i), "x": int(draw.integers(3))}
        for i in range(count)
    ]


def rising(*moments: int) -> EventBatch:
    return EventBatch.from_pylist(
        METER, [{"v": float(i), "t": NOON + timedelta(seconds=i), "x": 1} for i in moments]
    )


def engine_of(*filters: str) -> Engine:
    engine = create_engine("cluster", METER)
    for uid, text in enumerate(filters):
        engine.add(uid, parse(text, METER))
    return engine


def ids_of(engine: Engine, batch: EventBatch) -> list[list[int]]:
    return [sorted(ids.tolist()) for ids in engine.match(batch).per_event()]


@pytest.mark.parametrize(
    "text",
    [
        f"x == 1 and {RATE} or x >= 0 and {RATE}",
        f"(x == 1 or time_of_day(t, '12:00', '12:01')) and {RATE}",
        f"x == 1 and {RATE} or x == 0 and {RATE} or x == 2 and rate_of_change(v, t, ?r)",
        f"(x == 1 or {RATE}) and (x >= 0 or {RATE})",
        f"x == 1 or {RATE}",
    ],
)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_matches_do_not_depend_on_batches(seed: int, text: str) -> None:
    events = rows(np.random.default_rng(seed), 40)
    found = []
    for size in (1, 3, 40):
        engine = engine_of(text)
        batches = [EventBatch.from_pylist(METER, events[i : i + size]) for i in range(0, 40, size)]
        found.append([ids for batch in batches for ids in ids_of(engine, batch)])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("product", ["ids", "any", "interfaces"])
def test_state_sees_events_that_others_match_already(product: str) -> None:
    engine = engine_of(RATE, "x == 1")
    getattr(engine.match(rising(0)), product)()
    assert ids_of(engine, rising(1)) == [[0, 1]]


def test_engines_that_match_one_batch_have_states_of_their_own() -> None:
    first, second = engine_of(RATE), engine_of(RATE)
    ids_of(first, rising(0))
    batch = rising(1, 2)
    assert ids_of(first, batch) == ids_of(first, batch) == [[0], [0]]
    assert ids_of(second, batch) == [[], [0]]


def test_explain_leaves_state_as_it_is() -> None:
    engine = engine_of(RATE)
    ids_of(engine, rising(0))
    explanation = engine.explain(rising(9).to_pylist()[0], 0)
    assert "may match, depending on earlier events" in explanation
    assert ids_of(engine, rising(1)) == [[0]]

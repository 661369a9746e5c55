"""A matching engine with pending changes: walk and engine give the same result."""

import gc
import random
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of
from tables import grown, tables

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.overlay.core.covering.interest import Interest, Registry
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.interest_matching import split_by_session
from covey.overlay.core.matching.matching import MOST_PENDING, FilterAt, Matching

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
FILTERS = [
    parse(text, QUOTE)
    for text in (
        "price < $p",
        'firm == "IBM" and price >= $p',
        "price != $p",
        'volume in ($p, 3) or firm prefix "I"',
        "exists firm",
        "price between $p - 1 and $p + 1",
    )
]
NUMBERS = (0, 3, 70)


def quotes(draw: random.Random, count: int) -> EventBatch:
    rows = [
        {
            "firm": draw.choice((None, "IBM", "ICI", "GM")),
            "price": draw.choice((None, float("nan"), 1.0, 2.5, 4.0)),
            "volume": draw.randrange(5),
        }
        for _ in range(count)
    ]
    return EventBatch.from_pylist(QUOTE, rows)


def check(matching: Matching, oracle: Any, batch: EventBatch, exclude: int) -> None:
    offsets, ids = matching.match(EventPoints(batch)).ordered()
    expected_offsets, expected_ids = oracle.match(batch).ordered()
    assert (offsets.tolist(), ids.tolist()) == (expected_offsets.tolist(), expected_ids.tolist())
    bits, expected = (
        [[number for number in NUMBERS if number != exclude and _has(row, number)] for row in found]
        for found in (
            matching.match_interfaces(EventPoints(batch), exclude),
            oracle.match(batch).interfaces(),
        )
    )
    assert bits == expected
    if len(batch):
        event = batch.slice(0, 1)
        uids = matching.event_uids(EventPoints(event))
        assert (uids.dtype, uids.tolist()) == (np.int64, oracle.match(event).ordered()[1].tolist())
        single = matching.event_interfaces(EventPoints(event), exclude)
        assert [number for number in NUMBERS if number != exclude and single >> number & 1] == expected[0]


def _has(words: Any, number: int) -> bool:
    word, bit = divmod(number, 64)
    return word < len(words) and bool(int(words[word]) >> bit & 1)


@pytest.mark.parametrize(("seed", "engine"), [*((seed, "cluster") for seed in range(8)), (8, "scan")])
def test_walk_and_engine_match_as_the_oracle(seed: int, engine: str) -> None:
    draw = random.Random(seed)
    registry, matching, oracle = Registry(), Matching(engine, QUOTE), create_engine("naive", QUOTE)
    live: list[tuple[Interest, int]] = []
    walked = 0
    for step in range(150):
        what = draw.random()
        if what < 0.35 or not live:
            filter, number = draw.choice(FILTERS), draw.choice(NUMBERS)
            values = filter.check_values({name: draw.randrange(5) for name in filter.variables})
            interest = registry.make("client/c", number, step, filter, values)
            live.append((interest, number))
            matching.put(interest, number)
            oracle.add(interest.uid, filter, values, interface=number)
        elif what < 0.7:
            interest, number = draw.choice(live)
            if interest.values:
                interest.move(interest.filter.check_values({"p": draw.randrange(5)}))
                matching.put(interest, number)
                oracle.update(interest.uid, interest.values)
        elif what < 0.85:
            interest, _ = live.pop(draw.randrange(len(live)))
            matching.discard(interest)
            oracle.remove(interest.uid)
            registry.release(interest)
        else:
            check(
                matching, oracle, quotes(draw, draw.choice((1, 1, 2, 30, 300))), draw.choice((-1, *NUMBERS))
            )
            walked += matching.installed() != matching.interests()
    assert (walked > 0) == (engine == "cluster")
    engine_at_last = matching.flush()
    assert matching.installed() == matching.interests()
    assert len(engine_at_last) == len(live)
    check(matching, oracle, quotes(draw, 5), -1)


@given(st.data())
@settings(max_examples=50)
def test_matching_without_kernels_equals_the_oracle(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    matching, oracle = Matching("cluster", event_type), create_engine("naive", event_type)
    with pytest.MonkeyPatch.context() as loading:
        loading.setattr("covey.overlay.core.matching.matching.kernels_usable", lambda: False)
        for uid, filter in enumerate(data.draw(st.lists(filters(event_type), max_size=12))):
            values, number = data.draw(values_of(filter.variables)), data.draw(st.sampled_from(NUMBERS))
            matching.put(FilterAt(uid, filter, filter.check_values(values)), number)
            oracle.add(uid, filter, values, interface=number)
        rows = data.draw(st.lists(events(event_type), max_size=8)) * data.draw(st.sampled_from((1, 5)))
        check(matching, oracle, EventBatch.from_pylist(event_type, rows), data.draw(st.sampled_from(NUMBERS)))
    assert matching.installed() == {}


def test_the_engine_takes_over_once_the_kernels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.overlay.core.matching.matching.kernels_usable", lambda: False)
    draw = random.Random(0)
    matching, oracle = Matching("cluster", QUOTE), create_engine("naive", QUOTE)
    for uid in range(40):
        filter = draw.choice(FILTERS)
        values = filter.check_values({name: draw.randrange(5) for name in filter.variables})
        matching.put(FilterAt(uid, filter, values), 3)
        oracle.add(uid, filter, values, interface=3)
    check(matching, oracle, quotes(draw, 40), -1)
    assert matching.installed() == {}
    monkeypatch.setattr("covey.overlay.core.matching.matching.kernels_usable", lambda: True)
    check(matching, oracle, quotes(draw, 40), -1)
    assert matching.installed() == matching.interests()
    check(matching, oracle, quotes(draw, 40), -1)


def pending_matching(count: int) -> tuple[Matching, list[Interest]]:
    registry, matching = Registry(), Matching("cluster", QUOTE)
    interests = [registry.make("client/c", 0, i, FILTERS[0], {"p": float(i)}) for i in range(count)]
    for interest in interests:
        matching.put(interest, 0)
    return matching, interests


def test_few_events_leave_changes_pending_and_many_apply_them() -> None:
    matching, (interest,) = pending_matching(1)
    one = EventPoints(quotes(random.Random(0), 1))
    for _ in range(100):
        matching.match(one)
    assert not matching.installed()
    for _ in range(100):
        matching.match(one)
    assert matching.installed(), "a walk must not be taken for ever where nothing changes"
    matching.put(interest, 1)
    matching.match(EventPoints(quotes(random.Random(0), 2000)))
    assert matching.installed() == {interest.uid: 1}


def test_an_event_that_was_walked_is_freed_without_the_garbage_collector() -> None:
    matching, _ = pending_matching(1)
    batch = quotes(random.Random(0), 1)
    gc.collect()
    gc.disable()
    try:
        references = sys.getrefcount(batch)
        matching.match(EventPoints(batch))
        assert not matching.installed()
        assert sys.getrefcount(batch) == references
    finally:
        gc.enable()


@pytest.mark.parametrize(("events", "changes"), [(100, 200), (16, 500)])
def test_many_events_or_many_pairs_go_to_the_engine(events: int, changes: int) -> None:
    matching, interests = pending_matching(changes)
    matching.match(EventPoints(quotes(random.Random(0), events)))
    assert len(matching.installed()) == len(interests)


def test_a_single_change_among_many_filters_is_applied() -> None:
    matching, interests = pending_matching(2000)
    matching.flush()
    interests[0].move({"p": 1e9})
    matching.put(interests[0], 5)
    matching.match(EventPoints(quotes(random.Random(0), 1)))
    assert matching.installed()[interests[0].uid] == 5


@pytest.mark.parametrize("seed", range(5))
def test_matches_are_split_by_session(seed: int) -> None:

    draw = random.Random(seed)
    owner = np.array([draw.randrange(3) for _ in range(12)], np.int64)
    subscription = np.arange(12, dtype=np.int64) + 100
    found = [sorted(draw.sample(range(12), draw.choice((0, 1, 5)))) for _ in range(draw.choice((1, 6)))]
    offsets = np.cumsum([0, *map(len, found)]).astype(np.int64)
    uids = np.array([uid for uids in found for uid in uids], np.int64)
    shares = split_by_session(offsets, owner[uids], subscription[uids])
    assert [share[0] for share in shares] == sorted({int(owner[uid]) for uid in uids})
    for number, rows, ends, ids in shares:
        mine = {row: [100 + uid for uid in uids if owner[uid] == number] for row, uids in enumerate(found)}
        mine = {row: uids for row, uids in mine.items() if uids}
        at = range(len(found)) if rows is None else rows.tolist()
        shares_of_rows = zip(at, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        assert {row: ids[low:high].tolist() for row, low, high in shares_of_rows} == mine
        assert (rows is None) == (len(mine) == len(found))
        assert (ends.dtype, ids.dtype) == (np.int64, np.int64)


def test_after_an_error_of_the_engine_the_next_match_begins_with_an_empty_one() -> None:
    matching, interests = pending_matching(300)
    check_many = EventPoints(quotes(random.Random(0), 300))
    expected = matching.match(check_many).counts.tolist()
    matching.put(interests[0], 7)
    with pytest.MonkeyPatch.context() as failing:
        failing.setattr("covey.matcher.engines.rows.engine.RowEngine.add", _no_memory)
        with pytest.raises(MemoryError):
            matching.flush()
    assert not matching.installed()
    assert matching.match(check_many).counts.tolist() == expected
    assert matching.installed() == {**dict.fromkeys([i.uid for i in interests], 0), interests[0].uid: 7}


def _no_memory(*_: object, **__: object) -> None:
    raise MemoryError


def test_no_event_applies_more_changes_than_a_bound() -> None:
    """A client's subscriptions and cancellations were all applied by others' events: up to 16 ms at once."""
    registry, matching = Registry(), Matching("cluster", QUOTE)
    same = parse("price < $p", QUOTE)
    interests = [registry.make("client/h", 1, i, same, {"p": float(i)}) for i in range(2_000)]
    for interest in interests:
        matching.put(interest, 1)
        assert matching.pending <= MOST_PENDING
    assert len(matching.installed()) > len(interests) - MOST_PENDING
    for interest in interests:
        interest.move({"p": 0.5}, 0)
        matching.put(interest, 1)
        matching.put(interest, 1)
        assert matching.pending <= MOST_PENDING
    for interest in interests[:-1]:
        matching.discard(interest)
        assert matching.pending <= MOST_PENDING
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "IBM", "price": 0.25, "volume": 1}])
    assert matching.event_uids(EventPoints(batch)).tolist() == [interests[-1].uid]


def test_a_filter_of_many_constants_is_indexed_when_it_arrives() -> None:
    """Indexing one takes some 10 ms, in its sender's turn; small ones are applied in parts."""
    registry, matching = Registry(), Matching("cluster", QUOTE)
    for i in range(40):
        small = parse(f"price < {i}.5 and volume != {i}", QUOTE)
        matching.put(registry.make("client/h", 1, i, small, {}), 1)
        assert matching.pending <= MOST_PENDING
    assert 0 < len(matching.installed()) < 40
    for text in (
        f"volume in ({', '.join(str(n * n) for n in range(400))})",
        " or ".join(f"price between {n}.25 and {n}.5" for n in range(200)),
    ):
        interest = registry.make("client/h", 1, 100 + len(matching), parse(text, QUOTE), {})
        matching.put(interest, 1)
        assert matching.pending == 0
        assert interest.uid in matching.installed()


@pytest.mark.parametrize("engine", ["naive", "cluster"])
def test_what_comes_and_goes_between_events_leaves_nothing(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.overlay.core.matching.matching.kernels_usable", lambda: False)
    registry, matching = Registry(), Matching(engine, QUOTE)
    before = tables(matching)
    for number in range(600):
        interest = registry.make("client/h", 1, number, parse(f"price == {number}", QUOTE), {})
        matching.put(interest, 1)
        matching.discard(interest)
    assert matching.pending == 0
    assert not grown(before, tables(matching))

"""Exhaustion: numbers past 32 bits, memory that runs out, and free lists."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from oracles import check_matches, compare

from covey.matcher import (
    CoveyError,
    Engine,
    EventBatch,
    EventType,
    FilterError,
    VariableError,
    create_engine,
    parse,
)
from covey.matcher.engines.cluster import room
from covey.matcher.engines.cluster import store as cluster_store
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.engines.cluster.store import ClusterStore
from covey.matcher.engines.rows import arrays, ids
from covey.matcher.engines.rows.arrays import Runs
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import PlanUse

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64", "size": "int64"})
EVENTS = EventBatch.from_pylist(
    QUOTE, [{"firm": f"f{n % 5}", "price": n * 1.5, "volume": n, "size": -n} for n in range(20)]
)
FILTERS = [
    parse(text, QUOTE)
    for text in (
        "firm == $f and price < $p",
        "volume == $v or size > $v and price < $p",
        "firm suffix $f and volume > $v",
        "size between -$v and $v",
    )
]


def values(count: int, factor: int = 1) -> dict[str, Any]:
    numbers = np.arange(count)
    return {"f": [f"f{n % 7}" for n in range(count)], "p": numbers % 50 * 1.0, "v": numbers * factor}


def chosen(filter: Any, count: int, factor: int = 1) -> dict[str, Any]:
    return {name: column for name, column in values(count, factor).items() if name in filter.variables}


def add(engine: Engine, turn: int, count: int, factor: int) -> None:
    """Add subscriptions of one filter, or now and then of all."""
    filter, added = FILTERS[turn % len(FILTERS)], np.arange(1_000 * turn + 100, 1_000 * turn + 100 + count)
    if turn % 5 == 4:
        numbers = np.arange(count) % len(FILTERS)
        engine.add_all(added, FILTERS, values(count, factor), numbers=numbers)
    else:
        engine.add_many(added, filter, chosen(filter, count, factor))


def test_numbers_past_31_bits_are_refused() -> None:
    runs = Runs("rows")
    first = runs.allocate(1, 2**30)
    with pytest.raises(CoveyError, match="2,147,483,648 rows: expected at most 2,147,483,647 in one engine"):
        runs.allocate(1, 2**30)
    assert (first.tolist(), runs.top) == ([0], 2**30)
    assert runs.allocate(2, 5).tolist() == [2**30, 2**30 + 5]


@pytest.mark.parametrize("limit", [600, 3_000, 9_000, 20_000])
def test_what_exceeds_31_bits_changes_nothing(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, oracle = create_engine("cluster", QUOTE), create_engine("naive", QUOTE)
    for each in (engine, oracle):
        each.add_many(np.arange(40), FILTERS[0], chosen(FILTERS[0], 40))
    monkeypatch.setattr(arrays, "MOST", limit)
    refused = 0
    for turn in range(40):
        factor = 10**turn if turn < 17 else 1
        try:
            add(engine, turn, 50, factor)
        except CoveyError as error:
            assert "in one engine" in str(error)  # noqa: PT017
            refused += 1
            continue
        add(oracle, turn, 50, factor)
    assert refused
    monkeypatch.undo()
    assert len(engine) == len(oracle)
    compare(engine, oracle, EVENTS)


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_call_for_which_memory_runs_out_changes_nothing(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, oracle = create_engine("cluster", QUOTE), create_engine("naive", QUOTE)
    growths = 0

    def count_growth() -> None:
        nonlocal growths
        growths += 1
        if growths == nth:
            raise MemoryError

    def failing(grow: Callable[..., Any]) -> Callable[..., Any]:
        def fail_or_grow(*arguments: Any) -> Any:
            count_growth()
            return grow(*arguments)

        return fail_or_grow

    for module in (room, cluster_store):
        monkeypatch.setattr(module, "grown", failing(arrays.grown))
    monkeypatch.setattr(cluster_store, "resized", failing(arrays.resized))
    rehash = ids.IdMap._rehash

    def failing_rehash(self: ids.IdMap, *arguments: Any) -> None:
        count_growth()
        rehash(self, *arguments)

    monkeypatch.setattr(ids.IdMap, "_rehash", failing_rehash)
    few = EVENTS.take(np.arange(4))
    for turn in range(12):
        for _ in range(2):  # what failed succeeds when it is called again
            try:
                add(engine, turn, 300, 1 + 10**turn)
                add(oracle, turn, 300, 1 + 10**turn)
                break
            except MemoryError:
                assert len(engine) == len(oracle)
                assert 1_000 * turn + 100 not in engine
        with suppress(MemoryError):
            engine.match(few).ids()
        compare(engine, oracle, few)
    assert growths >= nth


def test_names_of_unknown_variables_are_not_kept() -> None:
    engine = create_engine("cluster", QUOTE)
    assert isinstance(engine, RowEngine)
    engine.add(1, FILTERS[0], {"f": "a", "p": 1})
    for n in range(1_000):
        with pytest.raises(VariableError):
            engine.update(1, {f"x{n}": n})
    engine.update(1, {"p": 2})
    assert list(engine.plans[engine.store.plan_of(0)].writes) == [("p",)]


@pytest.mark.parametrize("together", [True, False])
def test_a_peak_of_strings_leaves_no_memory(together: bool) -> None:
    engine = create_engine("cluster", QUOTE)
    count, kept = (40_000, 300) if together else (12_000, 90)
    texts = [f"firm number {n}" for n in range(count)]
    engine.add_many(np.arange(0, kept), FILTERS[0], {"f": texts[:kept], "p": 1})
    before = engine.memory_bytes()["strings"]
    engine.add_many(np.arange(kept, count), FILTERS[0], {"f": texts[kept:], "p": 1})
    engine.add_many(np.arange(count, 2 * count), parse("firm < $f", QUOTE), {"f": texts})
    assert engine.memory_bytes()["strings"] > 20 * before
    gone = np.concatenate([np.arange(kept, count), np.arange(count + kept, 2 * count)])
    if together:
        engine.remove_many(gone)
    else:
        for subscription_id in gone.tolist():
            engine.remove(subscription_id)
    assert engine.memory_bytes()["strings"] < 8 * before + 100_000
    event = EventBatch.from_pylist(QUOTE, [{"firm": texts[7], "price": 0.5}])
    expected = [7, *(count + n for n in range(kept) if texts[7] < texts[n])]
    assert engine.match(event).ordered()[1].tolist() == expected


def test_free_runs_take_four_bytes_each_and_are_reused_in_order() -> None:
    runs = Runs("rows")
    firsts = runs.allocate(1_000_000, 3)
    for n in range(0, 300_000, 3):
        runs.free(np.array([n]), 3)
    assert runs.nbytes <= 1_100_000
    assert runs.allocate(4, 3).tolist() == [299_988, 299_991, 299_994, 299_997]
    runs.free(firsts[200_000:], 3)
    assert runs.allocate(899_000, 3).size == 899_000
    assert runs.top == 3_000_000
    assert runs.nbytes < 30_000


def test_a_step_for_which_memory_runs_out_loses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, oracle = create_engine("cluster", QUOTE), create_engine("naive", QUOTE)
    for each in (engine, oracle):
        add(each, 0, 900, 1)
        assert each.match(EVENTS).counts.sum()
        add(each, 3, 800, 1)
    place, calls = Arrangement.place, 0

    def failing_place(self: Arrangement, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError
        place(self, *arguments)

    monkeypatch.setattr(Arrangement, "place", failing_place)
    matches = engine.match(EVENTS)
    matches.ids()
    assert calls > 3
    check_matches(matches, oracle.match(EVENTS))


def test_rows_whose_bounds_were_written_are_moved_after_memory_has_run_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, oracle = create_engine("cluster", QUOTE), create_engine("naive", QUOTE)
    for each in (engine, oracle):
        add(each, 0, 900, 1)
        assert each.match(EVENTS).counts.sum()
    ids, moved = np.arange(100, 1_000), {"f": [f"f{(n + 1) % 7}" for n in range(900)]}

    def fail(*arguments: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Arrangement, "update", fail)
        with pytest.raises(MemoryError):
            engine.update_many(ids, moved)
    oracle.update_many(ids, moved)
    compare(engine, oracle, EVENTS)


def test_matches_are_right_after_a_later_match_for_which_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = create_engine("cluster", QUOTE)
    add(engine, 0, 900, 1)
    expected = engine.match(EVENTS).counts
    add(engine, 3, 800, 1)
    engine.remove_many(np.arange(3_100, 3_900))
    matches = engine.match(EVENTS)

    def fail(*arguments: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Arrangement, "place", fail)
        assert isinstance(engine, ClusterEngine)
        engine.store.placement.was_interrupted = True
        with pytest.raises(MemoryError):
            engine.match(EVENTS)
    assert np.array_equal(matches.counts, expected)


def test_constants_over_the_limit_leave_no_plan_and_change_nothing() -> None:
    engine = create_engine("cluster", QUOTE, texts=6)
    filters = [
        parse("firm contains $f and volume > $v", QUOTE),
        parse("firm contains $f and size > $v", QUOTE),
    ]
    both = {"f": [f"f{n}" for n in range(8)], "v": -1}
    numbers = np.repeat([0, 1], 4)

    def plans() -> int:
        gc.collect()
        return sum(isinstance(each, PlanUse) for each in gc.get_objects())

    before = plans()
    with pytest.raises(FilterError, match="over 6 different constants"):
        engine.add_all(np.arange(8), filters, both, numbers=numbers)
    with pytest.raises(FilterError, match="over 6 different constants"):
        engine.add_many(np.arange(8), filters[0], both)
    assert isinstance(engine, RowEngine)
    assert (len(engine), engine.columns.derived) == (0, 0)
    assert plans() == before
    engine.add_all(np.arange(8), filters, {"f": [f"f{n % 2}" for n in range(8)], "v": -100}, numbers=numbers)
    counts = engine.match(EVENTS).counts
    with pytest.raises(FilterError, match="over 6 different constants"):
        engine.update_many(np.arange(8), {"f": [f"x{n % 4}" if n < 4 else f"y{n % 2}" for n in range(8)]})
    assert np.array_equal(engine.match(EVENTS).counts, counts)


def test_an_add_without_room_leaves_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise MemoryError

    engine = create_engine("cluster", QUOTE)
    assert isinstance(engine, ClusterEngine)
    with monkeypatch.context() as patched:
        patched.setattr(ClusterStore, "_places", fail)
        for turn in range(5):
            with pytest.raises(MemoryError):
                add(engine, turn, 8, 1)
    assert len(engine.store.signatures) == 0

"""Arrangements that replace one another in steps: bounded work per call, and answers in between."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from churn import Churn
from draws import DRAWS, SEED
from oracles import compare

from covey.matcher import EventBatch, EventType, Filter, create_engine, parse
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning.steps import STEP

PLACEMENT = "covey.matcher.engines.cluster.placement"
POINT = EventType("Point", {"k": "int64", "s": "string", "x": "float64"})
ON_K, ON_S, EITHER = (
    parse(text, POINT) for text in ("k == $k and x > $x", "s == $s and x <= $x", "k == $k or x > $x")
)
HISTORIES = DRAWS["rows in two arrangements"].count
ROUNDS = 50


def values(rng: np.random.Generator, filter: Filter, count: int) -> dict[str, npt.NDArray[Any]]:
    columns = {
        "k": rng.integers(0, 20, count),
        "s": np.array([f"s{i}" for i in rng.integers(0, 9, count)]),
        "x": rng.random(count) * 100,
    }
    return {name: columns[name] for name in filter.variables}


def points(rng: np.random.Generator, count: int) -> EventBatch:
    rows = [{"k": int(k), "s": f"s{k % 10}", "x": 100 * rng.random()} for k in rng.integers(0, 22, count)]
    return EventBatch.from_pylist(POINT, rows)


def check_places(engine: ClusterEngine) -> None:
    """Every row is in one arrangement, and each counts its own."""
    searched = engine.store.placement.searched
    where = engine.store.arrays.where[: engine.store.row_top]
    placed = where[where[:, a.PLACE] >= 0]
    for each in searched:
        mine = int((placed[:, a.BLOCK] & 1 == each.arrays.state[a.GENERATION]).sum())
        in_tables = int(each.arrays.tables[: each.arrays.state[a.TABLES], a.TABLE_ROWS].sum())
        in_leaves = int(
            (placed[placed[:, a.BLOCK] & 1 == each.arrays.state[a.GENERATION], a.BLOCK] < 0).sum()
        )
        assert mine == in_tables + in_leaves


@pytest.mark.random
@pytest.mark.parametrize("configuration", ["adaptive", "static", "dynamic", "propagation"])
def test_answers_equal_the_oracle_s_while_rows_move(
    configuration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"AT_ONCE": 0, "_PER_CALL": 300, "_PER_EVENT": 0, "_PER_CHANGE": 0, "_MANY": 256}
    for name, number in (numbers | {"_MOST_WAITING": 64, "_ROWS_PER_STEP": 16, "_CHUNK": 64}).items():
        monkeypatch.setattr(f"{PLACEMENT}.{name}", number)
    in_two = 0
    for history in range(HISTORIES):
        churn = Churn(SEED + history, 2_000, configuration=configuration, threads=1 + history % 2)
        churn.load()
        for _ in range(ROUNDS):
            churn.round()
            in_two += churn.engine.store.placement.former is not None
            check_places(churn.engine)
        assert churn.engine.render()
        assert sum(churn.engine.memory_bytes().values()) > 0
    assert in_two > 5 * HISTORIES


def grown_engine(count: int) -> ClusterEngine:
    engine = ClusterEngine(POINT)
    rng = np.random.default_rng(3)
    engine.add_many(np.arange(count), ON_K, values(rng, ON_K, count))
    engine.match(points(rng, 1))
    return engine


def test_no_call_does_more_than_its_share_of_work() -> None:
    count = 40_000
    engine, rng = grown_engine(count), np.random.default_rng(4)
    placement = engine.store.placement
    assert placement.work >= count, "what comes at once is placed at once"
    most, replaced = {"match": 0, "add": 0, "remove": 0, "update": 0}, 0
    event = points(rng, 1)

    def call(name: str, method: Callable[..., object], *arguments: object) -> None:
        nonlocal replaced
        before, arrangement = placement.work, placement.arrangement
        method(*arguments)
        most[name] = max(most[name], placement.work - before)
        replaced += placement.arrangement is not arrangement

    for start in range(0, 60_000, 100):
        ids = np.arange(count + start, count + start + 100)
        call("add", engine.add_many, ids, ON_S, values(rng, ON_S, 100))
        call("update", engine.update_many, ids, values(rng, ON_S, 100))
        call("match", engine.match, event)
        if start % 200 == 0:
            call("remove", engine.remove_many, np.arange(start // 2, start // 2 + 100))
    assert replaced >= 2
    for _ in range(2_000):
        call("match", engine.match, event)
    assert placement.former is None
    assert max(most.values()) <= 8 * STEP, most


def test_many_waiting_rows_are_placed_without_a_match() -> None:
    engine, rng = grown_engine(20_000), np.random.default_rng(5)
    for i in range(5_000):
        engine.add(100_000 + i, ON_S, {"s": "s1", "x": float(rng.random())})
    where = engine.store.arrays.where[: engine.store.row_top]
    assert (where[:, a.PLACE] == a.WAITING).sum() <= 1024


def test_a_load_ends_steps_that_it_overtakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{PLACEMENT}._PER_CALL", 2000)
    monkeypatch.setattr(f"{PLACEMENT}._PER_CHANGE", 0)
    engine, oracle = grown_engine(20_000), create_engine("scan", POINT)
    rng = np.random.default_rng(3)
    oracle.add_many(np.arange(20_000), ON_K, values(rng, ON_K, 20_000))
    for each in (engine, oracle):
        drawn = np.random.default_rng(6)
        each.add_many(np.arange(20_000, 24_000), EITHER, values(drawn, EITHER, 4_000))
        each.remove_many(np.arange(0, 20_000, 2))
    placement = engine.store.placement
    for _ in range(200):
        if placement.former is not None:
            break
        compare(engine, oracle, points(rng, 1))
    assert placement.former is not None
    for each in (engine, oracle):
        drawn = np.random.default_rng(7)
        each.add_many(np.arange(50_000, 150_000), ON_K, values(drawn, ON_K, 100_000))
    compare(engine, oracle, points(rng, 20))
    assert placement.former is None


def test_buckets_that_are_new_during_a_review_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[bool] = []

    def count(arrays: a.StoreArrays, *arguments: Any) -> None:
        counted.append(len(arguments[-1]) >= arrays.state[a.BUCKET_TOP])

    monkeypatch.setattr("covey.matcher.engines.cluster.sample_kernels.count_probes", count)
    engine = create_engine("cluster", POINT)

    def add(first: int, size: int) -> None:
        ids = np.arange(first, first + size)
        engine.add_many(ids, ON_K, {"k": ids, "x": 0.0})

    def match(size: int) -> None:
        assert engine.match(EventBatch.from_pylist(POINT, [{"k": 1, "x": 1.0}] * size)).counts.all()

    add(0, 10_000)
    for _ in range(40):
        match(60)
    for first in range(10_000, 19_000, 1_000):
        add(first, 1_000)
        match(1)
    match(40)
    add(30_000, 9_000)
    assert len(counted) > 1, "in several steps"
    assert all(counted)

"""Arrangements that replace one another in steps: bounded work per call, and answers in between."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from draws import DRAWS, SEED

from covey.matcher import Engine, EventBatch, EventType, Filter, create_engine, parse
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning.steps import STEP

PLACEMENT = "covey.matcher.engines.cluster.placement"
POINT = EventType("Point", {"k": "int64", "s": "string", "x": "float64", "y": "float64", "n": "int64"})
FILTERS = (
    "k == $k and x > $x",
    "s == $s and x <= $x",
    "x >= $x and x < $x + 5.0 and y > $y and y < $y + 9.0",
    "k == $k and s == $s",
    "n >= $n",
    "k == $k or x > $x",
    "x between $x and 60.0 or s == $s",
    "y >= $y and y < $y + 3.0 and n < $n",
)
HISTORIES = DRAWS["rows in two arrangements"].count
STEPS = 150


def values(rng: np.random.Generator, filter: Filter, count: int) -> dict[str, npt.NDArray[Any]]:
    draw: dict[str, Callable[[], npt.NDArray[Any]]] = {
        "k": lambda: rng.integers(0, 20, count),
        "s": lambda: np.array([f"s{i}" for i in rng.integers(0, 9, count)]),
        "x": lambda: rng.random(count) * 100,
        "y": lambda: rng.random(count) * 100,
        "n": lambda: rng.integers(0, 2**40 if rng.random() < 0.2 else 1000, count),
    }
    return {name: draw[name]() for name in filter.variables}


def points(rng: np.random.Generator, count: int) -> EventBatch:
    rows = [
        {"k": int(k), "s": f"s{k % 10}", "x": float(x), "y": float(y), "n": int(n)}
        for k, (x, y), n in zip(
            rng.integers(0, 22, count),
            rng.random((count, 2)) * 100,
            rng.integers(0, 1200, count),
            strict=True,
        )
    ]
    for row in rows:
        for name in [name for name in row if rng.random() < 0.1]:
            del row[name]
    return EventBatch.from_pylist(POINT, rows)


def compare(engine: Engine, oracle: Engine, batch: EventBatch) -> None:
    ours, theirs = engine.match(batch), oracle.match(batch)
    for one, other in zip(ours.ordered(), theirs.ordered(), strict=True):
        assert one.tolist() == other.tolist()
    assert engine.match(batch).counts.tolist() == theirs.counts.tolist()
    assert (engine.match(batch).interfaces() == theirs.interfaces()).all()


def check_places(engine: ClusterEngine) -> None:
    """Every row is in one arrangement, and each arrangement counts its rows."""
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
    for name, number in {
        "AT_ONCE": 0,
        "_PER_CALL": 300,
        "_PER_EVENT": 0,
        "_PER_CHANGE": 0,
        "_MANY": 256,
    }.items():
        monkeypatch.setattr(f"{PLACEMENT}.{name}", number)
    monkeypatch.setattr(f"{PLACEMENT}._MOST_WAITING", 64)
    monkeypatch.setattr("covey.matcher.engines.cluster.placement._ROWS_PER_STEP", 16)
    monkeypatch.setattr("covey.matcher.engines.cluster.placement._CHUNK", 64)
    in_two = 0
    for history in range(HISTORIES):
        rng = np.random.default_rng([SEED, history])
        engine = ClusterEngine(POINT, configuration=configuration, threads=1 + history % 2)
        oracle = create_engine("scan", POINT)
        filters, live, next_id = [parse(text, POINT) for text in FILTERS], dict[int, Filter](), 0
        for _ in range(STEPS):
            kind = rng.random()
            if kind < 0.35 or len(live) < 50:
                filter, count = filters[rng.integers(len(filters))], int(rng.choice([1, 3, 30, 400]))
                ids = np.arange(next_id, next_id + count)
                next_id += count
                for each, drawn in [(e, np.random.default_rng([SEED, next_id])) for e in (engine, oracle)]:
                    interfaces = drawn.integers(0, 70, count)
                    each.add_many(ids, filter, values(drawn, filter, count), interface=interfaces)
                live.update(dict.fromkeys(ids.tolist(), filter))
            elif kind < 0.55:
                count = min(len(live) - 1, int(rng.choice([1, 5, 100, len(live) // 2])))
                ids = rng.choice(np.array(list(live)), count, replace=False)
                for each in (engine, oracle):
                    each.remove_many(ids)
                for removed in ids.tolist():
                    del live[removed]
            else:
                filter = live[int(rng.choice(list(live)))]
                ids = np.array([i for i, other in live.items() if other is filter])
                ids = ids[rng.random(len(ids)) < rng.choice([0.05, 0.5, 1])]
                new = values(rng, filter, len(ids))
                for each in (engine, oracle):
                    each.update_many(ids, new)
            if rng.random() < 0.7:
                compare(engine, oracle, points(rng, int(rng.choice([1, 5, 130]))))
                in_two += engine.store.placement.former is not None
                check_places(engine)
        assert engine.render()
        assert sum(engine.memory_bytes().values()) > 0
    assert in_two > 5 * HISTORIES


def grown_engine(count: int) -> ClusterEngine:
    engine = ClusterEngine(POINT)
    rng = np.random.default_rng(3)
    filter = parse(FILTERS[0], POINT)
    engine.add_many(np.arange(count), filter, values(rng, filter, count))
    engine.match(points(rng, 1))
    return engine


def test_no_call_does_more_than_its_share_of_work() -> None:
    count = 40_000
    engine, rng = grown_engine(count), np.random.default_rng(4)
    placement, filter = engine.store.placement, parse(FILTERS[1], POINT)
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
        call("add", engine.add_many, ids, filter, values(rng, filter, 100))
        call("update", engine.update_many, ids, values(rng, filter, 100))
        call("match", engine.match, event)
        if start % 200 == 0:
            call("remove", engine.remove_many, np.arange(start // 2, start // 2 + 100))
    assert replaced >= 2
    for _ in range(2_000):
        call("match", engine.match, event)
    assert placement.former is None
    assert max(most.values()) <= 8 * STEP, most


def test_many_waiting_rows_are_placed_without_a_match() -> None:
    engine, rng, filter = grown_engine(20_000), np.random.default_rng(5), parse(FILTERS[1], POINT)
    for i in range(5_000):
        engine.add(100_000 + i, filter, {"s": "s1", "x": float(rng.random())})
    where = engine.store.arrays.where[: engine.store.row_top]
    assert (where[:, a.PLACE] == a.WAITING).sum() <= 1024


def test_a_load_ends_steps_that_it_overtakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{PLACEMENT}._PER_CALL", 2000)
    monkeypatch.setattr(f"{PLACEMENT}._PER_CHANGE", 0)
    engine, oracle = grown_engine(20_000), create_engine("scan", POINT)
    rng, filter = np.random.default_rng(3), parse(FILTERS[0], POINT)
    oracle.add_many(np.arange(20_000), filter, values(rng, filter, 20_000))
    other = parse(FILTERS[5], POINT)
    for each in (engine, oracle):
        drawn = np.random.default_rng(6)
        each.add_many(np.arange(20_000, 24_000), other, values(drawn, other, 4_000))
        each.remove_many(np.arange(0, 20_000, 2))
    placement = engine.store.placement
    for _ in range(200):
        if placement.former is not None:
            break
        compare(engine, oracle, points(rng, 1))
    assert placement.former is not None
    for each in (engine, oracle):
        drawn = np.random.default_rng(7)
        each.add_many(np.arange(50_000, 150_000), filter, values(drawn, filter, 100_000))
    compare(engine, oracle, points(rng, 20))
    assert placement.former is None


def test_buckets_that_are_new_during_a_review_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[bool] = []

    def count(arrays: a.StoreArrays, *arguments: Any) -> None:
        counted.append(len(arguments[-1]) >= arrays.state[a.BUCKET_TOP])

    monkeypatch.setattr("covey.matcher.engines.cluster.sample_kernels.count_probes", count)
    engine, filter = create_engine("cluster", POINT), parse(FILTERS[0], POINT)

    def add(first: int, size: int) -> None:
        ids = np.arange(first, first + size)
        engine.add_many(ids, filter, {"k": ids, "x": 0.0})

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

"""Leaves: rows of the cluster engine without an access predicate, found by bitmaps. Answers are compared with
the oracle's, and every bit is checked after every step. Most tests use leaves at any cost."""

from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from oracles import compare, compare_under_churn

from covey.matcher import Engine, EventBatch, EventType, create_engine, parse
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout import arrays as f
from covey.matcher.engines.cluster.tuning import planning as cluster_planning
from covey.matcher.engines.cluster.tuning.costs import leaf_cost, range_costs
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE
from covey.matcher.events.int64 import FIRST
from covey.sim.workload import BOX

POINT = EventType("Point", {"x": "float64", "y": "float64", "z": "int64", "name": "string"})
VALUES = [-inf, -1.0, -0.0, 0.0, 0.25, 0.5, 0.75, 1.0, inf, nan, None]
EXTREMES = [-(2**63) + 1, -1, 0, 40, 2**63 - 2, None]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Place rows without equalities in leaves, at any cost."""
    monkeypatch.setattr(cluster_planning, "leaf_cost", lambda *_: -1.0)
    monkeypatch.setattr(cluster_planning, "_FEWEST_IN_LEAVES", 1)


def check_leaves(engine: ClusterEngine) -> int:
    """Check every place of every leaf; returns the number of used leaves."""
    s, leaves = engine.store.arrays, engine.store.arrays.leaves
    bins, size, total = int(leaves.state[f.BINS]), int(leaves.state[f.LEAF_WORDS]), 0
    rows_of: dict[int, dict[int, int]] = {}
    for row in np.flatnonzero((s.where[:, a.PLACE] >= 0) & (s.where[:, a.BLOCK] >> 1 == f.IN_LEAF)).tolist():
        leaf, place = divmod(int(s.where[row, a.PLACE]), f.LEAF)
        assert place not in rows_of.setdefault(leaf, {})
        rows_of[leaf][place] = row
        total += 1
    assert total == leaves.state[f.LEAF_ROWS]
    entered = []
    for line, guard in zip(leaves.directory, [*leaves.columns[:, 0].tolist(), a.NONE], strict=True):
        mine = line[1 : 1 + line[0]].tolist()
        assert all(leaves.lines[leaf, f.LEAF_GUARD] == guard for leaf in mine)
        assert all(
            leaves.lines[one, f.LEAF_LEAST] <= leaves.lines[two, f.LEAF_LEAST] for one, two in pairwise(mine)
        )
        entered += mine
    assert sorted(entered) == sorted(rows_of)
    assert len(entered) == leaves.state[f.LEAVES_USED]
    for leaf, members in rows_of.items():
        guard, count, least, most = leaves.lines[leaf].tolist()
        assert count == len(members)
        words = leaves.words[leaf * size : (leaf + 1) * size].reshape(-1, f.LINE)
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(bool)
        expected = np.ones_like(bits)
        expected[0] = False
        for place, row in members.items():
            expected[0, place] = True
            signature = int(s.rows[row, ROW_SIGNATURE])
            one, tests = np.array([row]), len(engine.store.signatures.columns[signature])
            lows, highs = engine.store.read(one, tests)
            guarded = guard == a.NONE
            for t, column in enumerate(engine.store.signatures.columns[signature]):
                low = code_of(engine, column, int(lows[t, 0]), FIRST, 2)
                count, top = s.coding[column, [a.CODE_COUNT, a.CODE_TOP]].tolist()
                high = code_of(engine, column, int(highs[t, 0]), top, 2 * count + 4)
                if lows[t, 0] == highs[t, 0] != FIRST:
                    high = low
                if lows[t, 0] > highs[t, 0]:
                    low, high = 1, 0
                number = int(leaves.numbers[column])
                if number != a.NONE:
                    scale = int(leaves.columns[number, 1])
                    within = (low * scale >> 16) <= np.arange(bins)
                    within &= (np.arange(bins) <= high * scale >> 16) & (low <= high)
                    expected[1 + number * bins : 1 + (number + 1) * bins, place] &= within
                guarded |= column == guard and (low > high or (least <= low and high <= most))
            assert guarded
            record = leaves.records[f.LEAF_RECORD * (f.LEAF * leaf + place) :]
            assert record[0] == s.ids[row, 0]
            assert record[1] >> 32 in (row, ~row)
        assert (bits == expected).all()
    return len(entered)


def code_of(engine: ClusterEngine, column: int, key: int, outermost: int, open_code: int) -> int:
    """The code of a bound; `open_code` for an open end."""
    keys = np.zeros((1, max(column + 1, len(POINT.names))), dtype=np.int64)
    keys[0, column] = key
    return open_code if key == outermost else int(engine.store.placement.arrangement.codes(keys)[0, column])


def points(count: int = 60) -> EventBatch:
    rng = np.random.default_rng(8)
    rows = [{"x": x, "y": 0.5, "z": 0, "name": "a"} for x in VALUES]
    rows += [{"x": 0.5, "y": y, "z": z} for y, z in zip(VALUES, [*EXTREMES, 1, 2, 3, 4, 5], strict=True)]
    rows += [
        {"x": float(x), "y": float(y), "z": int(z), "name": "ab"}
        for x, y, z in zip(rng.random(count), rng.random(count), rng.integers(0, 60, count), strict=True)
    ]
    return EventBatch.from_pylist(POINT, rows)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    "text",
    [
        "x between $l and $u",
        "x >= $l and y <= $u",
        "x > $l or y < $u and z between $i and $k",
        "not exists x and z > $i",
        "x >= $l and x < $u and y >= $l and z >= $i and z <= $k and y < 0.9 and name prefix 'a'",
    ],
)
def test_answers_equal_the_oracle_s_under_churn(text: str) -> None:
    filter = parse(text.replace("'", '"'), POINT)
    engine = ClusterEngine(POINT)

    def values(draw: np.random.Generator, count: int, spread: float) -> dict[str, object]:
        some = np.array([-inf, -0.0, 0.0, 0.5, 1.0, inf])
        low = np.where(draw.random(count) < 0.1, draw.choice(some, count), draw.random(count) * spread)
        wide = np.where(
            draw.random(count) < 0.1, draw.choice(some, count), low + draw.random(count) / 4 - 0.02
        )
        integers = draw.choice(np.array([v for v in EXTREMES if v is not None] + list(range(60))), count)
        given = {"l": low, "u": wide, "i": integers, "k": draw.integers(-1, 60, count)}
        return {name: given[name] for name in filter.variables}

    compare_under_churn(engine, filter, values, points(16), lambda: check_leaves(engine), size=620)


@pytest.mark.usefixtures("everywhere")
def test_structures_that_come_later_share_the_leaves() -> None:
    one, oracle = ClusterEngine(POINT), create_engine("naive", POINT)
    engines: list[Engine] = [one, oracle]
    rng = np.random.default_rng(3)
    low = rng.random(600)
    for engine in engines:
        engine.add_many(np.arange(600), parse("x between $l and $u", POINT), {"l": low, "u": low + 0.1})
    compare(*engines, points(16))
    for engine in engines:
        engine.add_many(np.arange(600, 630), parse("y > $l and z > 3", POINT), {"l": low[:30]})
        engine.add_many(np.arange(630, 640), parse("exists z", POINT))
        engine.add_many(np.arange(640, 650), parse('name == "a" and x > $l', POINT), {"l": low[:10]})
    compare(*engines, points(16))
    check_leaves(one)
    assert "bitmaps (x) of 64 bins: " in one.render()
    assert "table (name)" in one.render()


@pytest.mark.usefixtures("everywhere")
def test_rows_of_one_low_end_fill_leaves_one_by_one() -> None:
    engine = ClusterEngine(POINT)
    values = {"l": np.concatenate([np.full(1500, 0.5), [0.1, 0.2]]), "u": 0.75}
    engine.add_many(np.arange(1502), parse("x between $l and $u", POINT), values)
    batch = EventBatch.from_pylist(POINT, [{"x": x} for x in (0.3, 0.5, 0.76)])
    assert engine.match(batch).ordered()[0].tolist() == [0, 2, 1504, 1504]
    assert check_leaves(engine) == 4
    engine.add_many(np.arange(1502, 1600), parse("x between $l and $u", POINT), {"l": 0.4, "u": 0.75})
    assert engine.match(batch).ordered()[0].tolist() == [0, 2, 1602, 1602]
    check_leaves(engine)


@pytest.mark.usefixtures("everywhere")
def test_empty_leaves_are_freed() -> None:
    engine = ClusterEngine(POINT)
    rng = np.random.default_rng(4)
    low, ids = rng.random(20_000), np.arange(20_000)
    engine.add_many(ids, parse("x between $l and $u", POINT), {"l": low, "u": low + 0.1})
    batch = points()
    engine.match(batch)
    assert check_leaves(engine) <= 20_000 / 480 + 2
    engine.remove_many(rng.permutation(ids)[:19_000])
    engine.match(batch)
    assert check_leaves(engine) <= 4
    assert engine.memory_bytes()["leaves"] < 200_000


def test_ranges_on_many_columns_use_leaves_and_boxes_do_not() -> None:
    engine = ClusterEngine(BOX.event_type)
    for group in BOX.subscriptions(6000, seed=1):
        engine.add_many(group.ids, group.filter, dict(group.values))
    oracle = create_engine("scan", BOX.event_type)
    for group in BOX.subscriptions(6000, seed=1):
        oracle.add_many(group.ids, group.filter, dict(group.values))
    compare(engine, oracle, BOX.events(300, seed=1))
    assert "a15) of 16 bins: " in engine.render()
    narrow = np.full((10, 2), 0.01)
    assert leaf_cost(100_000, 3, 0.01, 0.003) > min(range_costs(100_000, 1.0, narrow, [0, 3, 6]))
    wide = np.full((10, 2), 0.15)
    assert leaf_cost(100_000, 16, 0.15, 0.01) < min(range_costs(100_000, 1.0, wide, [0, 64, 900]))


@pytest.mark.usefixtures("everywhere")
def test_threads_share_leaves() -> None:
    rng = np.random.default_rng(5)
    low = rng.random(2000)
    engines = [ClusterEngine(POINT), ClusterEngine(POINT, threads=2)]
    for engine in engines:
        engine.add_many(np.arange(2000), parse("x between $l and $u", POINT), {"l": low, "u": low + 0.1})
    compare(*engines, points(400))

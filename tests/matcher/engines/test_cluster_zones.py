"""Zones: large buckets of the cluster engine, ordered by their rows' first test. Answers are compared with
the oracle's, and the order is checked after every step."""

import random
from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from oracles import compare, compare_under_churn

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.compile.plan import Shape
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.reference.naive import NaiveEngine

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
PRICES = [-inf, -3.5, -0.0, 0.0, 7.25, 50.0, 50.5, 99.0, inf, nan, None]
VOLUMES = [-(2**63) + 1, -1, 0, 400, 2**63 - 2, None]


def check_zones(engine: ClusterEngine) -> int:
    """Check the order of every bucket with zones; returns the number of zones."""
    s = engine.store.arrays
    total = 0
    for bucket in range(int(s.state[a.BUCKET_TOP])):
        table, head, zones = s.buckets[bucket, : a.BUCKET_KEYS].tolist()
        if table == a.NONE or zones == 0:
            continue
        assert zones >= 2
        total += zones
        directory = s.words[2 * head : 2 * (head + zones)].reshape(-1, 2).tolist()
        assert directory[0][1] == 0
        order = int(s.tables[table, a.TABLE_ORDER])
        for (block, least), (_, next_least) in pairwise([*directory, (a.NONE, a.NEVER)]):
            of_bucket, start, size, count, noted = s.blocks[block].tolist()
            capacity = int(s.capacities[size])
            assert (of_bucket, noted) == (bucket, least)
            assert 1 <= count <= capacity
            rows = s.words[2 * start + capacity :][:count]
            rows = np.where(rows < 0, ~rows, rows)
            assert (s.where[rows, a.BLOCK] >> 1 == block).all()
            assert s.where[rows, a.PLACE].tolist() == list(range(count))
            assert (s.words[2 * start : 2 * start + count] == s.ids[rows, 0]).all()
            codes = s.shorts[4 * start + (5 if order == Shape.HIGH else 4) * capacity :][:count]
            assert least <= codes.min()
            assert codes.max() <= next_least
    return total


def events() -> EventBatch:
    choose = random.Random(5)
    rows = [{"firm": "a", "price": price, "volume": choose.choice(VOLUMES)} for price in PRICES]
    rows += [{"firm": choose.choice("ab"), "price": 10.0, "volume": volume} for volume in VOLUMES]
    rows += [{"firm": "a", "price": choose.randrange(400) / 4, "volume": 10 * i} for i in range(0, 40, 3)]
    return EventBatch.from_pylist(QUOTE, rows)


@pytest.mark.parametrize(
    "text",
    [
        "price <= $x",
        "price > $x",
        "price < $x and volume >= $v",
        "volume > $v",
        "volume <= $v and price >= $x and price != 50.0",
        "price <= $x or volume >= $v",
        "not exists price and volume < $v",
    ],
)
def test_answers_equal_the_oracle_s_under_churn(text: str) -> None:
    filter = parse(f'firm == "a" and ({text})', QUOTE)
    engine = ClusterEngine(QUOTE)

    def values(draw: np.random.Generator, count: int, spread: float) -> dict[str, object]:
        # few distinct values, so that many codes are equal, and the outermost of all
        high = round(60 * spread)
        prices = draw.choice([-inf, -0.0, 0.0, 50.0, inf, *np.arange(0, high, 0.25)], count)
        volumes = draw.choice(np.array([v for v in VOLUMES if v is not None] + list(range(high))), count)
        given = {"x": prices, "v": volumes}
        return {name: given[name] for name in filter.variables}

    compare_under_churn(engine, filter, values, events(), lambda: check_zones(engine), size=700)


def test_many_equal_thresholds_fill_zones_of_one_code() -> None:
    engine = ClusterEngine(QUOTE)
    engine.add_many(np.arange(1000), parse('firm == "a" and price <= $x', QUOTE), {"x": 50.0})
    rows = [{"firm": "a", "price": price} for price in (49.0, 50.0, 50.5)]
    batch = EventBatch.from_pylist(QUOTE, rows)
    assert engine.match(batch).ordered()[0].tolist() == [0, 1000, 2000, 2000]
    assert check_zones(engine) >= 8
    engine.update_many(np.arange(500), {"x": 50.5})
    assert engine.match(batch).ordered()[0].tolist() == [0, 1000, 2000, 2500]
    engine.update_many(np.arange(1000), {"x": -1.0})
    assert engine.match(batch).ordered()[0].tolist() == [0, 0, 0, 0]
    check_zones(engine)


def test_sparse_zones_are_merged_when_thresholds_drift() -> None:
    engine = ClusterEngine(QUOTE)
    ids, rng = np.arange(4000), np.random.default_rng(2)
    engine.add_many(ids, parse('firm == "a" and price <= $x', QUOTE), {"x": rng.random(4000)})
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "a", "price": 3.0}])
    engine.match(batch)
    for step in range(1, 8):
        prices = step / 4 + rng.random(4000)
        for part in np.array_split(rng.permutation(ids), 40):
            engine.update_many(part, {"x": prices[part]})
        assert check_zones(engine) <= 3 * 4000 / 64
    assert engine.match(batch).ordered()[1].tolist() == []


def test_ranges_that_are_not_hashed_are_ordered_by_their_low_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    planning = "covey.matcher.engines.cluster.tuning.planning"
    monkeypatch.setattr(f"{planning}.range_costs", lambda *_: [0.0, 1.0, 1.0])
    engine, oracle = ClusterEngine(QUOTE), NaiveEngine(QUOTE)
    rng = np.random.default_rng(3)
    inside = parse('firm == "a" and price >= $x and price < $y', QUOTE)
    values = {"x": rng.random(900) * 90, "y": rng.random(900) * 90}
    for each in (engine, oracle):
        each.add_many(np.arange(900), inside, values)
    compare(engine, oracle, events())
    assert check_zones(engine) >= 7
    for each in (engine, oracle):
        each.update_many(np.arange(0, 900, 3), {"x": 0.0, "y": 200.0})
    compare(engine, oracle, events())


def test_the_paper_s_configurations_have_no_zones() -> None:
    for configuration in ("propagation", "propagation_lookahead"):
        engine = ClusterEngine(QUOTE, configuration=configuration)
        engine.add_many(np.arange(900), parse('firm == "a" and price > $x', QUOTE), {"x": np.arange(900.0)})
        batch = EventBatch.from_pylist(QUOTE, [{"firm": "a", "price": 300.5}])
        assert engine.match(batch).ordered()[1].tolist() == list(range(301))
        assert check_zones(engine) == 0


def test_prefetching_is_the_one_difference_between_the_kinds_of_propagation() -> None:
    """Both look up equally many events together, and search a block at a time."""
    plain, ahead = (Policy.of(kind) for kind in ("propagation", "propagation_lookahead"))
    assert plain == replace(ahead, lookahead=-ahead.lookahead)
    assert ahead.lookahead == 1


@pytest.mark.parametrize("lookahead", [-1, 1])
def test_prefetching_changes_no_answer(lookahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Policy.of
    monkeypatch.setattr(Policy, "of", lambda kind: replace(of(kind), lookahead=lookahead))
    engine, oracle = ClusterEngine(QUOTE), NaiveEngine(QUOTE)
    for each in (engine, oracle):
        each.add_many(np.arange(900), parse('firm == "a" and price > $x', QUOTE), {"x": np.arange(900.0)})
    rows = [{"firm": firm, "price": price} for firm in ("a", "b") for price in np.arange(0.5, 900, 37.0)]
    for size in (3, len(rows)):  # a few events have a search of their own
        compare(engine, oracle, EventBatch.from_pylist(QUOTE, rows[:size]))


def test_a_referenced_answer_is_not_overwritten() -> None:
    engine = ClusterEngine(QUOTE)
    engine.add_many(np.arange(2000), parse('firm == "a" and price > $x', QUOTE), {"x": np.arange(2000.0)})
    high, low = (EventBatch.from_pylist(QUOTE, [{"firm": "a", "price": p}]) for p in (1999.5, 1990.5))
    _, ids = engine.match(high).ordered()
    part = engine.match(high).ordered()[1][10:20]
    for _ in range(3):
        engine.match(low).ids()
    assert ids.tolist() == list(range(2000))
    assert part.tolist() == list(range(10, 20))

"""The cluster engine's own behaviour: placement of rows, release of memory, rendering."""

import numpy as np
import pytest
from tables import tables

from covey.matcher import CoveyError, EventBatch, EventType, FilterError, parse
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.engines.cluster.layout.arrays import (
    CAPACITIES,
    LARGEST_BLOCK,
    PLACES_USED,
    SIZES,
    TABLE_BUCKETS,
    TABLES,
    UNIT_TOP,
)
from covey.matcher.engines.cluster.tuning.planning import MOST_SCHEMAS

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64", "time": "timestamp"})


def test_derived_columns_are_freed_with_their_last_subscription() -> None:
    engine = ClusterEngine(QUOTE)
    begins = parse("firm not suffix $p and price > $x or firm contains $p", QUOTE)
    engine.add_many(np.arange(9), begins, {"p": list("abcabcabc"), "x": 1})
    assert engine.columns.derived == 6
    engine.update_many(np.arange(3), {"p": "a"})
    assert engine.columns.derived == 6
    engine.update_many(np.arange(9), {"p": "z"})
    assert engine.columns.derived == 2
    engine.remove_many(np.arange(9))
    assert engine.columns.derived == 0


def test_texts_over_their_number_are_refused_before_anything_changes() -> None:
    engine = ClusterEngine(QUOTE, texts=3)
    contains = parse("firm contains $p", QUOTE)
    engine.add_many(np.arange(5), contains, {"p": list("abcab")})
    with pytest.raises(FilterError, match="over 3 different constants of contains"):
        engine.add(5, contains, {"p": "d"})
    with pytest.raises(FilterError):
        engine.update_many(np.arange(2), {"p": list("de")})
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "abd"}])
    assert (len(engine), engine.match(batch).ordered()[1].tolist()) == (5, [0, 1, 3, 4])
    engine.remove_many(np.array([2]))
    engine.add(5, contains, {"p": "d"})
    assert engine.match(batch).ordered()[1].tolist() == [0, 1, 3, 4, 5]


def test_empty_buckets_are_freed() -> None:
    engine = ClusterEngine(QUOTE)
    engine.add_many(
        np.arange(50), parse("firm == $f and volume == $v and price < 3", QUOTE), {"f": "a", "v": 1}
    )
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "a", "volume": 50, "price": 1.0}])
    for i in range(200):
        engine.update_many(np.arange(50), {"v": np.arange(50) * i})
        assert engine.match(batch).ordered()[1].tolist() == ([50 // i] if i and 50 % i == 0 and i > 1 else [])
    arrays = engine.store.arrays
    buckets = int(arrays.tables[: arrays.state[TABLES], TABLE_BUCKETS].sum())
    assert 1 <= buckets <= 50
    assert len(arrays.buckets) <= 128
    assert int(arrays.state[PLACES_USED]) <= len(arrays.places) // 2 <= 256


def test_freed_units_are_reused() -> None:
    engine = ClusterEngine(QUOTE)
    batch = EventBatch.from_pylist(QUOTE, [{"price": 0.5}])
    tops = []
    for _ in range(4):
        window = parse("price < $x and price > $x - 1.0", QUOTE)
        engine.add_many(np.arange(700), window, {"x": np.arange(700.0)})
        assert engine.match(batch).ordered()[1].tolist() == [1]
        engine.remove_many(np.arange(700))
        assert engine.match(batch).ordered()[1].tolist() == []
        tops.append((int(engine.store.arrays.state[UNIT_TOP]), len(engine.store.arrays.bounds)))
    assert tops[-1] == tops[1]


def test_waiting_rows_are_dropped_when_removed_without_events() -> None:
    engine = ClusterEngine(QUOTE)
    filters = [parse(text, QUOTE) for text in ("price < 3", "volume > 5 and price < 2")]
    for i in range(10_000):
        engine.add(i, filters[i % 2])
        if i >= 10:
            engine.remove(i - 10)
        if i == 100:
            before = sum(tables(engine, "covey.matcher").values())
    assert sum(tables(engine, "covey.matcher").values()) <= before + 4_096
    batch = EventBatch.from_pylist(QUOTE, [{"price": 1.0, "volume": 9}])
    assert engine.match(batch).ordered()[1].tolist() == list(range(9_990, 10_000))


def test_plans_are_shared_and_freed_with_their_last_subscription() -> None:
    engine = ClusterEngine(QUOTE)
    for i in range(20):
        engine.add(i, parse(f'firm == "f{i}" and price < {i}', QUOTE))
    assert (
        len({engine.plans.find(parse(f'firm == "g" and price < {i}', QUOTE)) for i in range(3)}) == 3
    )  # constants
    assert {engine.plans.find(parse(f'firm == "g" and price < {i}', QUOTE))[0] for i in range(3)} == {0}
    assert engine.plans[0].subscriptions == 20
    engine.remove_many(np.arange(20))
    engine.add(1, parse("price > 3", QUOTE))
    assert engine.plans[0].subscriptions == 1


def test_the_number_of_tables_is_bounded() -> None:
    wide = EventType("Wide", {f"a{i}": "int64" for i in range(14)})
    engine = ClusterEngine(wide)
    for i in range(14):
        for j in range(i):
            engine.add(100 * i + j, parse(f"a{i} == 1 and a{j} == 1", wide))
    batch = EventBatch.from_pylist(wide, [dict.fromkeys(wide.names, 1), {"a3": 1, "a9": 1}])
    offsets, ids = engine.match(batch).ordered()
    assert (offsets.tolist(), ids[-1]) == ([0, 91, 92], 903)
    assert 1 <= engine.store.arrays.state[TABLES] <= MOST_SCHEMAS


def test_render_and_explain_show_tables_tests_and_values() -> None:
    engine = ClusterEngine(QUOTE)
    engine.add(
        1,
        parse('firm == "IBM" and price < $p and time >= "2026-01-01" or volume not in (3, 5)', QUOTE),
        {"p": 9.5},
    )
    engine.add(2, parse("volume == 10.5", QUOTE))
    assert engine.render().splitlines() == [
        "cluster: 2 subscriptions to Quote",
        "  table (firm): 1 bucket, 1 row",
        "  table (no access predicate): 1 bucket, 2 rows",
        "  table (volume near): 1 bucket, 1 row",
        "  table (volume): 1 bucket, 1 row",
        "  tests (firm, price, time): 1 row",
        "  tests (volume): 4 rows",
    ]
    event = {"firm": "IBM", "price": 9.5, "volume": 4}
    explained = engine.explain(event, 1)
    assert "subscription 1 matches" in explained
    assert "yes firm: requires 'IBM', event has 'IBM'" in explained
    assert "no  price: requires at most 9.499999999999998, event has 9.5" in explained
    assert "no  time: requires at least 2026-01-01T00:00:00+00:00, event has missing" in explained
    assert "yes volume: requires 4, event has 4" in explained
    assert "no  volume: requires an empty interval, event has 4" in engine.explain(event, 2)


def test_many_subscriptions_share_few_buckets_of_several_equalities() -> None:
    engine = ClusterEngine(QUOTE)
    firms = np.array([f"F{i % 40}" for i in range(40_000)], dtype=object)
    volumes = np.arange(40_000) // 40 % 50
    equal = parse("firm == $f and volume == $v and price < $p", QUOTE)
    engine.add_many(np.arange(40_000), equal, {"f": firms, "v": volumes, "p": np.arange(40_000.0)})
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "F7", "volume": 9, "price": 30_000.0}])
    expected = np.flatnonzero((firms == "F7") & (volumes == 9) & (np.arange(40_000) > 30_000))
    assert engine.match(batch).ordered()[1].tolist() == expected.tolist()
    assert set(engine.store.configuration.schemas) == {(0, 2)}
    assert "table (firm, volume): 2000 buckets, 40000 rows" in engine.render()


def test_an_attribute_updated_with_every_event_is_not_hashed() -> None:
    engine = ClusterEngine(QUOTE)
    equal = parse("firm == $f and volume == $v", QUOTE)
    ids = np.arange(3_000)
    values = {"f": np.array([f"F{i % 40}" for i in ids], dtype=object), "v": ids % 50}
    engine.add_many(ids[:1000], equal, {name: column[:1000] for name, column in values.items()})
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "F1", "volume": 1}])
    for i in range(30):
        engine.match(batch)
        engine.update_many(ids[:1000], {"v": (ids[:1000] + i) % 50})
    engine.add_many(ids[1000:], equal, {name: column[1000:] for name, column in values.items()})
    engine.match(batch)
    assert set(engine.store.configuration.schemas) == {(0,)}


def test_ranges_are_access_predicates() -> None:
    engine = ClusterEngine(QUOTE)
    box = parse("price > $p and price < $p + 1.0 and volume between $v and $v + 9", QUOTE)
    rng = np.random.default_rng(3)
    prices, volumes = rng.random(20_000) * 100, rng.integers(0, 1000, 20_000)
    engine.add_many(np.arange(20_000), box, {"p": prices, "v": volumes})
    events = [
        {"price": p, "volume": v} for p, v in ((50.0, 500), (0.5, 3), (100.9, 1008), (-5.0, 4), (3.0, None))
    ]
    batch = EventBatch.from_pylist(QUOTE, events)
    for _ in range(3):
        offsets, found = engine.match(batch).ordered()
        for e, event in enumerate(events):
            p, v = event["price"], event["volume"]
            inside = (prices < p) & (p < prices + 1.0) & (v is not None)
            expected = np.flatnonzero(inside & (volumes <= (v or 0)) & ((v or 0) <= volumes + 9))
            assert found[offsets[e] : offsets[e + 1]].tolist() == expected.tolist()
        prices = rng.random(20_000) * 100
        engine.update_many(np.arange(20_000), {"p": prices})
    assert "price near, volume near" in engine.render()


def test_maintenance_follows_changing_subscriptions() -> None:
    names = {f"a{i}": "int64" for i in range(6)}
    wide = EventType("Wide", names)
    engine = ClusterEngine(wide, configuration="dynamic")
    rng = np.random.default_rng(4)
    events = EventBatch.from_pylist(wide, [{n: int(rng.integers(30)) for n in names} for _ in range(3_000)])

    def ask(first: int, attribute: int) -> None:
        filter = parse(f"a{attribute} == $x and a{attribute + 1} == $y and a{attribute + 2} == $z", wide)
        values = {name: rng.integers(0, 30, 20_000) for name in "xyz"}
        engine.add_many(np.arange(first, first + 20_000), filter, values)

    ask(0, 0)
    for _ in range(9):  # as many events as subscriptions, between two looks
        engine.match(events)
    before = set(engine.store.configuration.schemas)
    assert before
    assert all(len(schema) >= 2 and set(schema) <= {0, 1, 2} for schema in before)
    ask(20_000, 3)
    engine.remove_many(np.arange(20_000))
    for _ in range(9):  # as many events as subscriptions, between two looks
        engine.match(events)
    after = set(engine.store.configuration.schemas)
    assert after
    assert all(len(schema) >= 2 and set(schema) <= {3, 4, 5} for schema in after)


def test_wrong_configurations_and_thread_counts_are_refused() -> None:
    with pytest.raises(CoveyError, match="configuration 'fast': expected one of adaptive"):
        ClusterEngine(QUOTE, configuration="fast")
    with pytest.raises(CoveyError, match="threads 0: expected 1 to"):
        ClusterEngine(QUOTE, threads=0)


def test_maintenance_that_moves_most_rows_chooses_first_tests_anew() -> None:
    trade = EventType("Trade", {"book": "int64", "side": "int64", "price": "float64"})
    engine = ClusterEngine(trade, configuration="dynamic")
    rng = np.random.default_rng(6)
    values = {"b": rng.integers(0, 5, 5000), "s": rng.integers(0, 5, 5000), "p": rng.random(5000)}
    engine.add_many(np.arange(5000), parse("book == $b and side == $s and price > $p", trade), values)
    rows = [{"book": i % 5, "side": i // 5 % 5, "price": 0.01} for i in range(3000)]
    batch = EventBatch.from_pylist(trade, rows)
    expected = engine.match(batch).ordered()[1].tolist()
    assert not engine.store.configuration.schemas
    for _ in range(4):
        assert engine.match(batch).ordered()[1].tolist() == expected
    assert "table (book, side) before price: 25 buckets, 5000 rows" in engine.render()


def test_rows_are_placed_anew_after_many_removals() -> None:
    engine = ClusterEngine(QUOTE)
    rng = np.random.default_rng(7)
    firms = [f"f{i}" for i in rng.integers(0, 300, 30_000).tolist()]
    engine.add_many(
        np.arange(30_000), parse("firm == $f and price > $x", QUOTE), {"f": firms, "x": rng.random(30_000)}
    )
    batch = EventBatch.from_pylist(QUOTE, [{"firm": firms[0], "price": 2.0}])
    assert 0 in engine.match(batch).ordered()[1]
    before = int(engine.store.arrays.state[UNIT_TOP])
    engine.remove_many(1 + rng.permutation(29_999)[:25_000])
    assert 0 in engine.match(batch).ordered()[1]
    assert engine.store.arrays.state[UNIT_TOP] < before / 3


def test_blocks_shrink_with_their_rows() -> None:
    engine = ClusterEngine(QUOTE)
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "a", "price": 0.5, "volume": 1}])
    sizes = []
    for step in range(120):
        engine.add(step, parse("firm == 'a' and price < $p and volume >= 1", QUOTE), {"p": step})
        engine.match(batch)
    for left in range(119, 0, -1):
        engine.remove(left)
        (size,) = {int(s) for _, _, s, count, _ in engine.store.arrays.blocks.tolist() if count == left}
        sizes.append(CAPACITIES[size % SIZES])
        assert left <= sizes[-1] <= max(2 * left, 8)
        assert engine.match(batch).ordered()[1].tolist() == list(range(1, left))
    assert sizes == sorted(sizes, reverse=True)
    assert len(engine.store.arrays.longs) <= 4 * LARGEST_BLOCK


def test_an_id_of_64_bits_among_others() -> None:
    """Slots have the low halves of ids; rows of zones that pass whole, of buckets, and of leaves match."""
    engine = ClusterEngine(QUOTE)
    texts = ["firm == 'a' and price < $x", "volume == $n", "price < $x and volume < $n"]
    for group, text in enumerate(texts):
        values = {name: np.arange(5000) for name in ("x", "n") if f"${name}" in text}
        engine.add_many(np.arange(5000) + 5000 * group, parse(text, QUOTE), values)
    batch = EventBatch.from_pylist(QUOTE, [{"firm": "a", "price": 10.0, "volume": 20}])
    narrow = engine.match(batch).ordered()[1].tolist()
    assert narrow == [*range(11, 5000), 5020, *range(10_021, 15_000)]
    wide = [2**31, 2**32 + 11, -(2**31) - 1, 2**62]
    engine.add_many(wide, parse(texts[0], QUOTE), {"x": 11})
    engine.add_many([5 + 2**40], parse(texts[2], QUOTE), {"x": 12, "n": 30})
    assert engine.match(batch).ordered()[1].tolist() == sorted([*narrow, *wide, 5 + 2**40])
    engine.remove_many([*wide, 12])
    engine.update_many([11, 5 + 2**40], {"x": 9.0})
    assert engine.match(batch).ordered()[1].tolist() == [i for i in narrow if i not in (11, 12)]
    assert [i in engine for i in (11, 12, 2**32 + 11, 5 + 2**40)] == [True, False, False, True]

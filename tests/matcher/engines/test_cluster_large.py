"""The cluster engine at sizes where rows fill large buckets, directories and columns."""

from types import SimpleNamespace

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.engines.cluster.buckets.block_kernels import allocate_units
from covey.matcher.engines.cluster.layout import arrays as a

QUOTE = EventType("Quote", {"key": "int64", "symbol": "string", "price": "float64"})
SYMBOLS = [f"s{number}" for number in range(20)]


@pytest.mark.parametrize("together", [True, False])
def test_removing_most_rows_between_two_matches_stays_within_the_pool(together: bool) -> None:
    count = 50_000 if together else 10_000
    rng = np.random.default_rng(1)
    engine = create_engine("cluster", QUOTE)
    ids = np.arange(count)
    engine.add_many(ids, parse("key == $k", QUOTE), {"k": ids // 40})
    symbols, limits = rng.integers(0, len(SYMBOLS), count), rng.random(count) * 100
    values = {"s": [SYMBOLS[number] for number in symbols], "p": limits}
    engine.add_many(count + ids, parse("symbol == $s and price <= $p", QUOTE), values)
    batch = EventBatch.from_pylist(QUOTE, [{"key": 3, "symbol": "s1", "price": 50.0}])

    def expected(live: np.ndarray) -> list[int]:
        chosen = np.concatenate([ids[ids // 40 == 3], count + ids[(symbols == 1) & (limits >= 50.0)]])
        return sorted(chosen[live[chosen % count]].tolist())

    live = np.ones(count, dtype=np.bool_)
    assert engine.match(batch).ordered()[1].tolist() == expected(live)
    removed = rng.permutation(count)[: count * 9 // 10]
    live[removed] = False
    if together:
        engine.remove_many(removed)
        engine.remove_many(count + removed)
    else:
        for number in removed.tolist():
            engine.remove(number)
            engine.remove(count + number)
    assert engine.match(batch).ordered()[1].tolist() == expected(live)


def test_a_wide_range_is_found_where_all_others_are_narrow() -> None:
    count = 400_000
    address = EventType("Packet", {"address": "int64"})
    rng = np.random.default_rng(1)
    engine = create_engine("cluster", address)
    exact = np.sort(rng.choice(1 << 32, count, replace=False))
    between = parse("address between $low and $high", address)
    engine.add_many(np.arange(count), between, {"low": exact, "high": exact})
    batch = EventBatch.from_pylist(address, [{"address": int(a)} for a in rng.integers(0, 1 << 32, 200)])
    engine.match(batch)
    engine.add(count, between, {"low": 0, "high": (1 << 32) - 1})
    assert (engine.match(batch).ordered()[1] == count).sum() == 200


def test_wide_filters_that_come_late_are_found_among_many_thresholds() -> None:
    count = 400_000
    rng = np.random.default_rng(1)
    engine = create_engine("cluster", QUOTE)
    values = {
        "s": [SYMBOLS[number] for number in rng.integers(0, len(SYMBOLS), count)],
        "p": rng.random(count) * 1000,
    }
    engine.add_many(np.arange(count), parse("symbol == $s and price <= $p", QUOTE), values)
    prices = rng.random(200) * 900 + 20
    batch = EventBatch.from_pylist(QUOTE, [{"symbol": "none", "price": float(price)} for price in prices])
    engine.match(batch)
    engine.add(count, parse("exists price", QUOTE), {})
    engine.add(count + 1, parse("price between 11 and 999", QUOTE), {})
    assert engine.match(batch).ordered()[1].tolist() == [count, count + 1] * 200


@pytest.mark.thorough
def test_a_column_of_much_text_is_one_value_for_each_subscription() -> None:
    count = 4_200_000  # Arrow makes several chunks of more than 16 MiB of a NumPy string column
    engine = create_engine("cluster", QUOTE)
    texts = np.char.mod("%04d", np.arange(10_000)).astype("U4")[np.arange(count) % 10_000]
    engine.add_many(np.arange(count), parse("symbol == $s", QUOTE), {"s": texts})
    batch = EventBatch.from_pylist(QUOTE, [{"symbol": "0007"}])
    assert engine.match(batch).ordered()[1].tolist() == list(range(7, count, 10_000))


@pytest.mark.parametrize("bits", [3, 11, 22, 40, 63])
def test_many_ids_ascend_however_far_apart(bits: int) -> None:
    rng = np.random.default_rng(bits)
    ids = np.unique(rng.integers(-(1 << bits), 1 << bits, 20_000))
    limits = rng.random(len(ids))
    engine = create_engine("cluster", QUOTE)
    engine.add_many(ids, parse("price < $p", QUOTE), {"p": limits})
    prices = [0.0, 0.5, 0.99, 2.0]
    batch = EventBatch.from_pylist(QUOTE, [{"price": price} for price in prices])
    offsets, found = engine.match(batch).ordered()
    for number, price in enumerate(prices):
        assert found[offsets[number] : offsets[number + 1]].tolist() == ids[limits > price].tolist()


@pytest.mark.parametrize("operator", ["in", "not in"])
def test_memory_grows_with_the_constants_of_a_list(operator: str) -> None:
    count = 20_000
    packet = EventType("Packet", {"port": "int64"})
    engine = create_engine("cluster", packet)
    engine.add(1, parse(f"port {operator} ({', '.join(str(3 * n) for n in range(count))})", packet), {})
    batch = EventBatch.from_pylist(packet, [{"port": port} for port in (0, 1, 3 * count - 3, 3 * count)])
    offsets, _ = engine.match(batch).ordered()
    inside = [True, False, True, False]
    assert np.diff(offsets).tolist() == [int(i == (operator == "in")) for i in inside]
    assert sum(engine.memory_bytes().values()) < 1000 * count


def test_the_pool_gives_no_units_that_it_does_not_have() -> None:
    free, state = np.full(a.FREE_LISTS, a.NONE), np.zeros(a.STATE, dtype=np.int64)
    store = SimpleNamespace(free=free, state=state, longs=np.zeros(10, dtype=np.int64))
    allocate = getattr(allocate_units, "py_func", allocate_units)
    assert [allocate(store, 3, 4), allocate(store, 3, 4)] == [0, 4]
    with pytest.raises(MemoryError, match="no room"):
        allocate(store, 3, 4)
    assert state[a.UNIT_TOP] == 8

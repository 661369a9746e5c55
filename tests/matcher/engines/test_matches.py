"""`Matches`: its validity, its forms, and its caches."""

from collections.abc import Callable

import numpy as np
import pytest
from oracles import check_products

from covey.matcher import Engine, EventBatch, EventType, Matches, StaleMatchesError, create_engine, parse
from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError, SubscriptionError

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
ROWS = [{"firm": "IBM", "price": p, "volume": int(p)} for p in (0.5, 3.5, 99.5)]
BATCH = EventBatch.from_pylist(QUOTE, ROWS)
PRODUCTS: dict[str, Callable[[Matches], object]] = {
    "counts": lambda matches: matches.counts,
    "any": Matches.any,
    "interfaces": Matches.interfaces,
    "ids": Matches.ids,
    "ordered": Matches.ordered,
    "to_arrow": Matches.to_arrow,
    "per_event": lambda matches: list(matches.per_event()),
    "unpacking": tuple,
    "indexing": lambda matches: matches[0],
}


@pytest.fixture(params=engine_names())
def engine(request: pytest.FixtureRequest) -> Engine:
    engine = create_engine(request.param, QUOTE)
    engine.add_many(np.arange(10)[::-1].copy(), parse("price > $p", QUOTE), {"p": np.arange(10.0)})
    return engine


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_asked_for_after_a_change_is_refused(engine: Engine, product: str) -> None:
    for change in (
        lambda: engine.add(50, parse("true", QUOTE)),
        lambda: engine.update(50, {}),
        lambda: engine.update_many([3, 4], {"p": [1.0, 2.0]}),
        lambda: engine.remove(50),
    ):
        matches = engine.match(BATCH)
        change()
        with pytest.raises(StaleMatchesError, match=r"subscriptions changed before '\w+' was computed"):
            PRODUCTS[product](matches)


def test_products_that_are_there_outlive_a_change_and_a_failed_call_is_none(engine: Engine) -> None:
    matches = engine.match(BATCH)
    kept = matches.ids()[1].tolist()
    engine.remove(3)
    assert engine.match(BATCH).counts.tolist() == [1, 4, 9]
    assert (matches.ids()[1].tolist(), matches.counts.tolist()) == (kept, [1, 4, 10])
    matches = engine.match(BATCH)
    with pytest.raises(SubscriptionError):
        engine.remove(3)
    assert matches.counts.tolist() == [1, 4, 9]


def test_a_match_between_two_products_changes_nothing(engine: Engine) -> None:
    matches = engine.match(BATCH)
    assert engine.match(BATCH.slice(1)).ordered()[0].tolist() == [0, 4, 14]
    assert matches.ordered()[0].tolist() == [0, 1, 5, 15]


def test_matches_are_by_event_and_unpack_to_offsets_and_ids(engine: Engine) -> None:
    matches = engine.match(BATCH)
    assert len(matches) == 3
    assert sorted(matches[1].tolist()) == sorted(matches[-2].tolist()) == [6, 7, 8, 9]
    with pytest.raises(IndexError):
        matches[3]
    offsets, ids = matches
    assert [sorted(part.tolist()) for part in matches.per_event()] == [[9], [6, 7, 8, 9], list(range(10))]
    ordered_offsets, ordered = matches.ordered()
    assert ordered.tolist() == [9, 6, 7, 8, 9, *range(10)]
    assert matches.ids()[1] is ids, "ids that were handed out are not sorted in place"
    assert (offsets == ordered_offsets).all()
    assert matches.to_arrow().to_pylist()[0] == [9]


def test_filters_over_the_cap_are_in_every_product(engine: Engine) -> None:
    oracle = create_engine("naive", QUOTE)
    oracle.add_many(np.arange(10)[::-1].copy(), parse("price > $p", QUOTE), {"p": np.arange(10.0)})
    wide = parse(" and ".join(f"(price > {i} or volume == {i})" for i in range(12)), QUOTE)
    for each in (engine, oracle):
        each.add(77, wide, interface=3)
        each.add(78, parse("price > 2 or volume > 2 or volume == 0", QUOTE), interface=70)
    assert wide.boxes() is None
    check_products(engine, BATCH, oracle.match(BATCH))
    check_products(engine, BATCH.slice(0, 0), oracle.match(BATCH.slice(0, 0)))


def test_matches_of_ids_alone_have_no_interfaces() -> None:
    matches = Matches.of(np.array([0, 1, 3]), np.array([5, 1, 2]))
    assert (len(matches), matches.counts.tolist(), matches.any().tolist()) == (2, [1, 2], [True, True])
    assert matches.ordered() is matches.ids()
    with pytest.raises(CoveyError, match="no interfaces"):
        matches.interfaces()


@pytest.mark.parametrize("threads", [1, 2])
def test_many_ids_are_sorted_and_divided_among_threads(threads: int) -> None:
    engine = create_engine("cluster", QUOTE, threads=threads)
    choose = np.random.default_rng(0)
    ids = choose.permutation(3000) * 2**40 - 2**50
    limits = choose.random(3000) * 100
    engine.add_many(ids, parse("price > $p", QUOTE), {"p": limits}, interface=np.arange(3000) % 100)
    batch = EventBatch.from_pylist(QUOTE, [{"price": p} for p in choose.random(200).tolist()])
    prices = np.array([event["price"] for event in batch.to_pylist()])
    expected = [np.sort(ids[limits < p]).tolist() for p in prices]
    assert [
        part.tolist()
        for part in np.split(engine.match(batch).ordered()[1], np.cumsum([*map(len, expected)])[:-1])
    ] == expected
    assert engine.match(batch).counts.tolist() == [len(part) for part in expected]
    assert engine.match(batch).any().tolist() == [len(part) > 0 for part in expected]
    bits = engine.match(batch).interfaces()
    for event, p in enumerate(prices):
        interfaces = set((np.flatnonzero(limits < p) % 100).tolist())
        assert {i for i in range(100) if int(bits[event, i // 64]) >> i % 64 & 1} == interfaces

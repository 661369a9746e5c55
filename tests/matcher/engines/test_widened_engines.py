"""Engines widened in place, with many subscriptions and during rearrangement. `test_differential.py` widens
all engines at random."""

from math import inf, nan

import numpy as np
import pytest
from draws import SEED

from covey.matcher import EventBatch, EventType, EventTypeError, FilterError, create_engine, parse
from covey.matcher.engine import engine_names
from covey.matcher.engines.cluster.engine import ClusterEngine

ATTRIBUTES = {
    "firm": "string",
    "price": "float64",
    "volume": "int64",
    "venue": "string",
    "open": "bool",
    "ratio": "float64",
    "note": "string",
}
NAMES = list(ATTRIBUTES)


def quote(count: int) -> EventType:
    return EventType("Quote", {name: ATTRIBUTES[name] for name in NAMES[:count]})


@pytest.mark.parametrize("name", engine_names())
def test_only_attributes_at_the_end_widen_an_engine(name: str) -> None:
    engine = create_engine(name, quote(2))
    engine.add(1, parse("price < 3", quote(2)))
    for wrong in (
        quote(1),
        EventType("Quote", {"price": "float64", "firm": "string", "volume": "int64"}),
        EventType("Quote", {"firm": "string", "price": "int64", "volume": "int64"}),
        EventType("Trade", {"firm": "string", "price": "float64", "volume": "int64"}),
    ):
        with pytest.raises(EventTypeError, match="with more attributes behind"):
            engine.widen(wrong)
    with pytest.raises(FilterError):
        engine.add(2, parse("volume > 3", quote(3)))
    engine.widen(quote(3))
    engine.widen(quote(3))
    engine.add(2, parse("volume > 3", quote(3)))
    batch = EventBatch.from_pylist(quote(3), [{"price": 1.0, "volume": 4}])
    assert engine.match(batch).ordered()[1].tolist() == [1, 2]
    assert "volume" in engine.explain({"volume": 4}, 2)
    assert "Quote" in engine.render()


@pytest.mark.parametrize("name", [name for name in engine_names() if name != "naive"])
def test_many_subscriptions_of_a_widened_engine(name: str) -> None:
    """Enough for an arrangement before, and another one with the new attributes."""
    rng = np.random.default_rng(SEED)
    engine, wide = create_engine(name, quote(3)), create_engine("scan", quote(len(NAMES)))
    batches = [
        EventBatch.from_pylist(
            schema,
            [
                {
                    "firm": f"f{rng.integers(200)}",
                    "price": rng.random(),
                    "volume": int(rng.integers(1_000)),
                    "venue": f"v{rng.integers(50)}",
                    "ratio": rng.random(),
                }
                for _ in range(64)
            ],
        ).with_schema(quote(count))
        for schema, count in ((EventType("Quote", ATTRIBUTES), 3), (EventType("Quote", ATTRIBUTES), 7))
    ]
    first = 0

    def add(text: str, count: int, **values: object) -> None:
        nonlocal first
        ids = np.arange(first, first + count)
        for each in (engine, wide):
            each.add_many(
                ids, parse(text, quote(len(NAMES)) if "r" in values or "v" in values else quote(3)), values
            )
        first += count

    def check() -> None:
        for batch in batches:
            counts = engine.match(batch).counts
            assert counts.tolist() == wide.match(batch).counts.tolist()

    firms, venues = [f"f{i}" for i in range(200)], [f"v{i}" for i in range(50)]
    add("firm == $f and price < $x", 5_000, f=rng.choice(firms, 5_000).tolist(), x=rng.random(5_000))
    add("firm suffix $f", 200, f=[str(i) for i in range(200)])
    check()
    engine.widen(quote(5))
    check()
    engine.widen(quote(7))
    add(
        "venue == $v and volume > $n",
        5_000,
        v=rng.choice(venues, 5_000).tolist(),
        n=rng.integers(0, 999, 5_000),
    )
    add("ratio > $r and firm == $f", 5_000, r=rng.random(5_000), f=rng.choice(firms, 5_000).tolist())
    add("venue suffix $v or ratio < $r", 100, v=[str(i) for i in range(100)], r=rng.random(100) / 100)
    check()
    for each in (engine, wide):
        each.update_many(np.arange(5_000), {"x": np.linspace(0, 1, 5_000)})
        each.remove_many(np.arange(5_100, 9_000))
    check()


@pytest.mark.parametrize("phase", ["planned", "former"])
def test_an_engine_is_widened_while_it_is_rearranged(phase: str) -> None:
    rng = np.random.default_rng(SEED)
    engine = create_engine("cluster", quote(3))
    assert isinstance(engine, ClusterEngine)
    count, one = 24_000, EventBatch.from_pylist(quote(3), [{"price": 0.5, "volume": 1}])
    price = rng.random(count)
    below = parse("price < $x and volume >= 0", quote(3))
    engine.add_many(np.arange(9_000), below, {"x": price[:9_000]})
    engine.match(one).counts  # noqa: B018
    for first in range(9_000, count, 1_000):
        engine.add_many(np.arange(first, first + 1_000), below, {"x": price[first : first + 1_000]})
    placement = engine.store.placement
    for _ in range(100_000):
        if getattr(placement, "_planned" if phase == "planned" else phase) is not None:
            break
        engine.match(one).counts  # noqa: B018
    else:
        pytest.fail(f"no arrangement is {phase}")
    engine.widen(quote(6))
    ratio = rng.random(1_000)
    engine.add_many(np.arange(count, count + 1_000), parse("ratio >= $x", quote(6)), {"x": ratio})
    rows = [{"ratio": nan}, {"ratio": 0.5}, {"ratio": inf, "price": 0.25, "volume": 0}, {"price": 0.5}]
    batch = EventBatch.from_pylist(quote(6), rows)
    expected = [0, int((ratio <= 0.5).sum()), 1_000 + int((price > 0.25).sum()), 0]
    for _ in range(300):
        assert engine.match(batch).counts.tolist() == expected

"""Engines that are widened in place: subscriptions stay, and answers are those of an engine made wide."""

import random
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from draws import SEED
from oracles import compare

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
    """A schema of so many attributes."""
    return EventType("Quote", {name: ATTRIBUTES[name] for name in NAMES[:count]})


FILTERS = {
    1: ["firm == $s", "firm suffix $s", "firm >= $s", "firm prefix $s and firm contains $t"],
    2: ["price < $x", "firm == $s and price >= $x", "firm suffix $s or price > $x", "price != $x"],
    3: ["volume == $n", "volume between $n and 7 and price < $x", "not exists volume or firm < $s"],
    4: ["venue == $s and firm == $t", "venue > $s", "venue contains $s or volume in ($n, 3)"],
    5: ["open == true and venue prefix $s", "not open == false"],
    6: ["ratio >= $x", "ratio < $x and firm == $s", "ratio > $x or price > $y"],
    7: ["note == $s", "note suffix $s and ratio > $x", 'note in ("ab", $s)'],
}
OVER_CAP = " and ".join(f"(price == {i} or volume == {i} or ratio < $x)" for i in range(12))
FILTERS[6].append(OVER_CAP)
SOME = ", ".join(map(str, range(3, 60, 3)))
FILTERS[2].append(
    "firm in (" + ", ".join(f'"{text}{end}"' for text in ("a", "b", "") for end in "abcdef") + ")"
)
FILTERS[3] += [f"volume in ({SOME})", f"volume not in ({SOME}) and price < $x"]
FILTERS[4].append("venue not in (" + ", ".join(f'"a{end}"' for end in "bcdefghijklmnopqrs") + ")")
TEXTS, NUMBERS = ["", "a", "ab", "b", "ba", "c"], [0.0, 1.0, 2.5, 7.0, inf, -inf]


def draw_values(draw: random.Random, variables: tuple[str, ...]) -> dict[str, Any]:
    pools: dict[str, list[Any]] = {"s": TEXTS, "t": TEXTS, "n": [0, 3, 5, 9], "x": NUMBERS, "y": NUMBERS}
    return {name: draw.choice(pools[name]) for name in variables}


def draw_batch(draw: random.Random, event_type: EventType) -> EventBatch:
    pools: dict[str, list[Any]] = {
        "string": [*TEXTS, None], "float64": [*NUMBERS, nan, None], "int64": [0, 3, 4, 9, None],
        "bool": [True, False, None],
    }  # fmt: skip
    names = draw.sample(event_type.names, draw.randint(1, len(event_type.names)))
    schema = EventType("Quote", {name: event_type.attributes[name] for name in names})
    rows = [
        {a: draw.choice(pools[k]) for a, k in schema.attributes.items()} for _ in range(draw.randint(1, 20))
    ]
    return EventBatch.from_pylist(schema, rows)


@pytest.mark.parametrize("name", [name for name in engine_names() if name != "naive"])
@pytest.mark.parametrize("size", [3, 30])
def test_an_engine_that_is_widened_answers_as_one_made_wide(name: str, size: int) -> None:
    draw = random.Random(SEED + size)
    width = draw.randint(1, 3)
    engine, oracle = create_engine(name, quote(width)), create_engine("naive", quote(len(NAMES)))
    live: dict[int, tuple[str, ...]] = {}
    number = 0
    for _ in range(25):
        for _ in range(draw.randint(0, size)):
            over = draw.randint(1, width)
            filter = parse(draw.choice(FILTERS[over]), quote(draw.randint(over, width)))
            values, number = draw_values(draw, filter.variables), number + 1
            for each in (engine, oracle):
                each.add(number, filter, values, interface=number % 5)
            live[number] = filter.variables
        for subscription in draw.sample(list(live), min(len(live), draw.randint(0, size // 2))):
            values = draw_values(draw, live[subscription])
            for each in (engine, oracle):
                each.update(subscription, values)
        gone = draw.sample(list(live), min(len(live), draw.randint(0, size // 2)))
        for each in (engine, oracle):
            each.remove_many(np.array(gone, dtype=np.int64))
        for subscription in gone:
            del live[subscription]
        if width < len(NAMES) and draw.random() < 0.3:
            width = draw.randint(width, len(NAMES))
            engine.widen(quote(width))
            assert engine.event_type == quote(width)
        for _ in range(2):
            compare(engine, oracle, draw_batch(draw, quote(width)))


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


@pytest.mark.parametrize("name", ["cluster", "propagation", "scan"])
def test_many_subscriptions_of_a_widened_engine(name: str) -> None:
    """Enough that the structure was arranged before, and is arranged again with the new attributes."""
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

"""The index of regions against covering asked of every pair: it never misses one, and names few others."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, filters, values_of

from covey.matcher.covering import covers_region
from covey.matcher.event_type import EventType
from covey.matcher.language import parse
from covey.matcher.region import Region
from covey.matcher.region_index import BLOCK, RegionIndex

TRADE = EventType("Trade", {"symbol": "string", "price": "float64", "volume": "int64"})
SHAPES = (
    "symbol == $s and price < $a",
    "symbol == $s and price == $a",
    "price between $a and $b",
    "price >= $a and volume < $c",
    "symbol prefix $s and volume between $c and $d",
    'symbol contains "1" and price > $a',
    "price < $a or price > $b",
    "price < $a or volume > $c",
    "not exists(price) and volume == $c",
    "price != $a",
    'symbol in ($s, "S1") and exists(volume)',
    "",
)


@given(st.data())
def test_no_covering_is_missed_whatever_the_filters(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    index, regions = RegionIndex(), {}
    for identity, filter in enumerate(data.draw(st.lists(filters(event_type), max_size=8))):
        regions[identity] = filter.region(data.draw(values_of(filter.variables)))
        index.put(identity, regions[identity])
    for region in regions.values():
        check(index, regions, region)


def check(index: RegionIndex, regions: dict[int, Region], region: Region) -> None:
    above, below = list(index.may_cover(region)), list(index.may_be_covered(region))
    assert {i for i, other in regions.items() if covers_region(other, region)} <= set(above) <= set(regions)
    assert {i for i, other in regions.items() if covers_region(region, other)} <= set(below) <= set(regions)
    assert len(above) == len(set(above))
    assert len(below) == len(set(below))


def drawn(draw: random.Random, shapes: tuple[str, ...]) -> Region:
    filter = parse(draw.choice(shapes), TRADE)
    a, c = draw.uniform(0, 100), draw.randrange(1000)
    values = {"s": f"S{draw.randrange(30)}", "a": a, "b": a + draw.uniform(-1, 9), "c": c, "d": c + 5}
    return filter.region(filter.check_values({name: values[name] for name in filter.variables}))


@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_regions_that_come_move_and_go(seed: int) -> None:
    """Blocks overflow and fall empty, attributes appear late; what is put and not taken is always found."""
    draw = random.Random(seed)
    index, regions = RegionIndex(), dict[int, Region]()
    for step in range(3000):
        shapes = SHAPES if step > 300 else SHAPES[2:3]
        identity = draw.randrange(1000)
        if identity in regions and draw.random() < (0.3 if step < 2400 else 0.9):
            index.take(identity)
            del regions[identity]
        else:
            regions[identity] = drawn(draw, shapes)
            index.put(identity, regions[identity])
        if step % 20 == 0:
            check(index, regions, drawn(draw, SHAPES))
    assert sorted(index) == sorted(regions)
    for identity in list(regions):
        index.take(identity)
    assert (len(index), index.blocks) == (0, 0)


def test_an_answer_names_few_of_many() -> None:
    """Boxes of a city of which none covers another, thresholds, and equalities on 200 symbols."""
    draw = random.Random(1)
    box = parse("price between $a and $b and volume between $c and $d", TRADE)
    for filter, side in ((box, 3), (parse("symbol == $s and price == $a", TRADE), 0)):
        index = RegionIndex()
        for identity in range(20_000):
            a, c = draw.uniform(0, 1000), draw.randrange(1000)
            values = {"a": a, "b": a + side, "c": c, "d": c + side, "s": f"symbol-{draw.randrange(200)}"}
            region = filter.region({name: values[name] for name in filter.variables})
            index.put(identity, region)
        assert index.blocks < 3 * 20_000 / BLOCK
        assert len(list(index.may_cover(region))) < 20
        assert len(list(index.may_be_covered(region))) < 20


def test_equal_regions_fill_more_than_a_block() -> None:
    same = parse("price < 5", TRADE).region()
    index = RegionIndex()
    for identity in range(3 * BLOCK):
        index.put(identity, same)
    assert sorted(index.may_cover(same)) == list(range(3 * BLOCK))
    for identity in range(2 * BLOCK):
        index.take(identity)
    assert sorted(index.may_be_covered(same)) == list(range(2 * BLOCK, 3 * BLOCK))


def test_one_history_gives_one_order() -> None:
    def answers() -> list[list[int]]:
        draw, index = random.Random(5), RegionIndex()
        for identity in range(500):
            index.put(identity, drawn(draw, SHAPES))
        return [list(index.may_cover(drawn(draw, SHAPES))) for _ in range(50)]

    assert answers() == answers()

"""The index of regions against covering of every pair: no misses, few other candidates."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, filters, values_of

from covey.matcher.covering.covering import holds_region
from covey.matcher.covering.region import Region
from covey.matcher.covering.region_index import RegionIndex
from covey.matcher.covering.vector_tree import BLOCK
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse

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
    "symbol == $s and price < $a or volume == $c and price > $b",
    "volume in ($c, $d, 3, 5) and price not in (1, 2, 3)",
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
    assert {i for i, other in regions.items() if holds_region(other, region)} <= set(above) <= set(regions)
    assert {i for i, other in regions.items() if holds_region(region, other)} <= set(below) <= set(regions)
    assert len(above) == len(set(above))
    assert len(below) == len(set(below))


def drawn(draw: random.Random, shapes: tuple[str, ...]) -> Region:
    filter = parse(draw.choice(shapes), TRADE)
    a, c = draw.uniform(0, 100), draw.randrange(1000)
    values = {"s": f"S{draw.randrange(30)}", "a": a, "b": a + draw.uniform(-1, 9), "c": c, "d": c + 5}
    return filter.region(filter.check_values({name: values[name] for name in filter.variables}))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_regions_are_added_moved_and_removed(seed: int, compiled: bool) -> None:
    """Blocks overflow and empty, attributes appear late; an added region is found until it is removed."""
    draw = random.Random(seed)
    index, regions = RegionIndex(compiled=compiled), dict[int, Region]()
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


def test_a_search_returns_few_of_many_regions() -> None:
    """Boxes of a city that cover no other, equalities on 200 symbols, and disjunctions of both."""
    draw = random.Random(1)
    box = "price between $a and $b and volume between $c and $d"
    equal, other = (
        "symbol == $s and price == $a",
        "symbol == $s and price < $a or volume == $c and price > $b",
    )
    for filter, side in (
        (parse(text, TRADE), side)
        for text, side in ((box, 3), (equal, 0), (other, 3), ("price in ($a, $b)", 3))
    ):
        index = RegionIndex()
        for identity in range(20_000):
            a, c = draw.uniform(0, 1000), draw.randrange(1000)
            values = {"a": a, "b": a + side, "c": c, "d": c + side, "s": f"symbol-{draw.randrange(200)}"}
            region = filter.region({name: values[name] for name in filter.variables})
            index.put(identity, region)
        assert index.blocks < 2 * 3 * 20_000 / BLOCK
        assert len(list(index.may_cover(region))) < 200
        assert len(list(index.may_be_covered(region))) < 200


def test_equal_regions_fill_more_than_a_block() -> None:
    same = parse("price < 5", TRADE).region()
    index = RegionIndex()
    for identity in range(3 * BLOCK):
        index.put(identity, same)
    assert sorted(index.may_cover(same)) == list(range(3 * BLOCK))
    for identity in range(2 * BLOCK):
        index.take(identity)
    assert sorted(index.may_be_covered(same)) == list(range(2 * BLOCK, 3 * BLOCK))


def test_the_order_of_answers_depends_on_the_history_alone() -> None:
    def answers() -> list[list[int]]:
        draw, index = random.Random(5), RegionIndex()
        for identity in range(500):
            index.put(identity, drawn(draw, SHAPES))
        return [list(index.may_cover(drawn(draw, SHAPES))) for _ in range(50)]

    assert answers() == answers()


@pytest.mark.parametrize(
    "late", ["volume > 3", "volume > 3 and volume < 7", "volume in (5, 999)", "price > 1"]
)
def test_a_full_block_of_equal_vectors_gets_a_sibling(late: str) -> None:
    """Sets of one hull fill a block that no cut divides; later ones still have a place."""
    index, regions = RegionIndex(), {}
    for identity in range(BLOCK):
        regions[identity] = parse(f"volume in (5, {identity + 6}, 900)", TRADE).region()
        index.put(identity, regions[identity])
    for identity in range(BLOCK, 2 * BLOCK):
        regions[identity] = parse(late, TRADE).region()
        index.put(identity, regions[identity])
    for region in (regions[0], regions[BLOCK]):
        check(index, regions, region)
    for identity in regions:
        index.take(identity)
    assert (len(index), index.blocks) == (0, 0)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_moved_regions_are_found_in_their_new_place(seed: int, compiled: bool) -> None:
    """Both searches for a just moved region omit it and no other."""
    draw, box = random.Random(seed), parse("price between $a and $b and volume between $c and $d", TRADE)
    index, regions = RegionIndex(compiled=compiled), dict[int, Region]()
    for step in range(6000):
        identity = step % 1500
        a, c = draw.uniform(0, 60), draw.randrange(60)
        values = {"a": a, "b": a + draw.uniform(0, 5), "c": c, "d": c + draw.randrange(5)}
        region = regions[identity] = box.region(values)
        index.put(identity, region)
        if step % 50 == 0:
            above, below = map(set, index.around(region, identity))
            others = {i: other for i, other in regions.items() if i != identity}
            assert above == {i for i, other in others.items() if holds_region(other, region)}
            assert below == {i for i, other in others.items() if holds_region(region, other)}

"""Regions, lifted values and covering from precomputed plans equal those evaluated step by step."""

import random
from math import inf

import pytest

from covey.matcher.covering.covering import holds_both_ways, holds_region
from covey.matcher.covering.region import Region
from covey.matcher.errors import VariableError
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse

POINT = EventType("Point", {"f": "float64", "i": "int64", "s": "string", "t": "timestamp", "b": "bool"})
SHAPES = (
    "f >= $x - 5.0 and f <= $x + 5.0",
    "f > $x and f < $y",
    "f between -2 * $x and $y + 1",
    "f == 0.5 * $x",
    "f < $x",
    "f >= 3 * $y - 1",
    "f > 1.5 and f < $x",
    "f < $x and f < $y and f > 2.5",
    "f != $x and f < $y",
    "i >= $x - 5 and i <= $x + 5",
    "i == 2 * $x",
    "i < 0.5 * $y",
    "i between $x and $y and f < $x",
    "s == $s and f < $x",
    "s > $s or i < $x",
    "t >= $t - 60 and t < $t + 60 and b == true",
)
NUMBERS = (0, 1, -3, 7, 2**53 + 1, -(2**63), 2**63 - 1, 0.0, 0.5, -2.5, 1e300, inf, -inf)


def drawn(draw: random.Random, text: str) -> tuple[Region, Region]:
    filter = parse(text, POINT)
    given: dict[str, object] = {"x": draw.choice(NUMBERS), "y": draw.choice(NUMBERS)}
    given |= {"s": draw.choice(("", "a", "ab")), "t": draw.choice(("2026-01-01", "0001-01-01", "9999-12-31"))}
    values = filter.check_values({name: given[name] for name in filter.variables})
    constant = filter.substitute(values)
    assert filter.lift()[0].substitute(filter.lift_values(values)) == constant
    return filter.region(values), constant.region()


@pytest.mark.parametrize("text", SHAPES)
def test_the_region_of_values_equals_that_of_constants(text: str) -> None:
    draw = random.Random(text)
    before: list[Region] = []
    for _ in range(150):
        region, expected = drawn(draw, text)
        assert region == expected
        for other in before:
            assert holds_both_ways(region, other) == (
                holds_region(region, other),
                holds_region(other, region),
            )
        before = [region, *before[:5]]


def test_lifting_without_a_value_names_the_variable() -> None:
    with pytest.raises(VariableError, match=r"variable \$y has no value"):
        parse("f > $x and f < $y", POINT).lift_values({"x": 1.0})

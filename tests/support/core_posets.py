"""Interests for posets, from text or drawn, and a comparison of roots."""

import random
from collections.abc import Iterable, Mapping
from functools import cache

import pyarrow as pa

from covey.matcher.covering.covering import covers_region
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter, parse
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register
from covey.overlay.core.covering.interest import Interest, Registry

POINT = EventType("Point", {"x": "int64", "y": "int64"})
SHAPES = (
    "x < $a",
    "x >= $a",
    "x between $a and $b",
    "x == $a",
    "x < $a and y < $b",
    "y >= $a",
    "x < 3 or x > $a",
    "",
)
CALLS = (
    "within(x, y, $a, $b, 60000 * $c)",
    "within(x, y, 5, 5, 200000) and x < $a",
    "x >= $a or not within(x, y, 5, $b, 300000)",
    "steps_of_these_tests(x, ?n) and ?n < $a",
    "steps_of_these_tests(x, ?m) and ?m < $a and y >= $b",
    "x < $a",
)
"""Shapes that call operators."""

POINTS = [{"x": x, "y": y} for x in range(-1, 11) for y in range(-1, 11)]


register(
    NamedOperator(
        "steps_of_these_tests",
        (Parameter("x", NUMBERS), Parameter("n", NUMBERS, Takes.FREE)),
        lambda xs: pa.array([[float(x % 4), float(x)] for x in xs.to_pylist()]),
    )
)


class Interests:
    def __init__(self) -> None:
        self.registry = Registry()

    def __call__(self, text: str, **values: object) -> Interest:
        filter = parse(text, POINT)
        return self.registry.make("client/c", 0, len(self.registry) + 1, filter, filter.check_values(values))


def fresh(registry: Registry, draw: random.Random, number: int, shapes: tuple[str, ...] = SHAPES) -> Interest:
    filter = parse(draw.choice(shapes), POINT)
    drawn = {name: draw.randint(0, 9) for name in filter.variables}
    return registry.make("client/c", 0, number, filter, filter.check_values(drawn))


def values(node: Interest, draw: random.Random) -> dict[str, int]:
    return {name: draw.randint(0, 9) for name in node.filter.variables}


def same(some: Iterable[Interest], others: Iterable[Interest]) -> None:
    """Whether both sets of roots have the same regions, each once."""
    some, others = list(some), list(others)
    assert len(some) == len(others)
    for one in some:
        assert any(
            covers_region(one.region, other.region) and covers_region(other.region, one.region)
            for other in others
        )


def matching_points(filter: Filter, values: Mapping[str, object]) -> frozenset[int]:
    """The numbers of the `POINTS` that match a filter."""
    return _matching_points(filter, tuple(values.items()))


@cache
def _matching_points(filter: Filter, values: tuple[tuple[str, object], ...]) -> frozenset[int]:
    known = dict(values)
    return frozenset(i for i, point in enumerate(POINTS) if filter.matches(point, known))

"""Operators' bounds hold for every true answer, and contain the bounds of what an operator covers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_calls import answers, covers, operator

latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 0.0, 89.0, 88.9999]))
longitudes = st.one_of(st.floats(-540, 540), st.sampled_from([-180.0, 180.0, 0.0, 179.9999, 540.0]))
distances = st.one_of(st.floats(0, 2.1e7), st.floats(0, 2_000), st.just(-1.0))
TRIANGLE = "POLYGON ((0 0, 4 0, 0 4, 0 0))"


def bounds(name: str, arguments: tuple[Any, ...]) -> list[Any]:
    rule = operator(name).bounds
    assert rule is not None
    return list(rule(arguments))


def inside(intervals: Any, value: float) -> bool:
    return intervals is None or any(low <= value <= high for low, high in intervals)


points_and_shares = st.lists(st.tuples(latitudes, longitudes, st.floats(0, 1)), max_size=9)


@given(latitudes, longitudes, distances, points_and_shares)
def test_the_box_of_a_circle_holds_its_points(
    lat: float, lon: float, reach: float, points: list[tuple[float, float, float]]
) -> None:
    north, east, *others = bounds("within", (None, None, lat, lon, reach))
    assert others == [None, None, None]
    span = reach / 111_000  # points near the border are as likely as others
    near = [(lat + span * (2 * share - 1), lon + span * share * 1.5) for _, _, share in points]
    border = [(lat, lon + share * 1e-7) for _, _, share in points]
    for at, along in [*[point[:2] for point in points], *near, *border, (lat, lon), (lat + span, lon)]:
        if answers("within", [at], [along], lat, lon, reach) == [True]:
            assert inside(north, at)
            assert inside(east, along)


@given(latitudes, longitudes, distances, st.floats(0, 1.5), st.floats(0, 1), distances)
def test_the_box_of_a_circle_holds_those_of_circles_in_it(
    lat: float, lon: float, reach: float, up: float, along: float, other: float
) -> None:
    wider = (None, None, lat, lon, reach)
    narrower = (None, None, min(90.0, lat + up), lon + along, other)
    if covers("within", wider, narrower):
        for outer, inner in zip(bounds("within", wider), bounds("within", narrower), strict=True):
            for low, high in inner or ():
                assert inside(outer, low)
                assert inside(outer, high)
            assert inner is not None or outer is None


@pytest.mark.parametrize("metres", [0.0, 300.0])
def test_the_box_of_a_circle_at_every_turn_of_a_point(metres: float) -> None:
    _, east, *_ = bounds("within", (None, None, 52, 13, metres))
    assert [inside(east, 13 + turn) for turn in (-720, -360, 0, 360, 720)] == [False, True, True, True, False]
    assert not inside(east, 13.1)
    _, east, *_ = bounds("within", (None, None, 52, 540.0, metres))
    assert [inside(east, turn) for turn in (-540, -180, 180, 540)] == [True] * 4


def test_a_circle_without_points_or_centre() -> None:
    assert bounds("within", (None, None, 52, 13, -1))[0] == []
    assert bounds("within", (None, None, 91, 13, 5))[0] == []
    assert bounds("within", (None, None, None, 13, 5)) == [None] * 5


def test_the_box_of_a_polygon() -> None:
    pytest.importorskip("shapely")
    assert bounds("inside", (None, None, TRIANGLE)) == [[(0.0, 4.0)], [(0.0, 4.0)], None]
    assert bounds("inside", (None, None, "POLYGON EMPTY")) == [[], [], None]

"""`within`: distances on the sphere against vectors in space, and covering of circles."""

from math import asin, cos, dist, hypot, inf, nan, pi, radians, sin

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from operator_calls import answers, covers

RADIUS = 6_371_008.8
latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 0.0, 89.9999]))
longitudes = st.one_of(st.floats(-540, 540), st.sampled_from([-180.0, 180.0, 0.0, 179.9999]))
distances = st.one_of(st.floats(0, 2.1e7), st.floats(0, 2_000))


def vector(lat: float, lon: float) -> tuple[float, float, float]:
    north, east = radians(lat), radians(lon)
    return cos(north) * cos(east), cos(north) * sin(east), sin(north)


def metres(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """The distance by the chord of two vectors, or by that to the antipode where it is shorter."""
    a, b = vector(lat, lon), vector(other_lat, other_lon)
    chord, opposite = dist(a, b), hypot(a[0] + b[0], a[1] + b[1], a[2] + b[2])
    angle = 2 * asin(chord / 2) if chord < 1.5 else pi - 2 * asin(min(1.0, opposite / 2))
    return RADIUS * angle


@given(latitudes, longitudes, latitudes, longitudes, distances, st.sampled_from([1, 8, 9, 255, 256, 300]))
def test_points_are_within_as_vectors_in_space_say(
    lat: float, lon: float, other_lat: float, other_lon: float, reach: float, count: int
) -> None:
    distance = metres(lat, lon, other_lat, other_lon)
    assume(abs(distance - reach) > 1)
    truths = answers("within", [lat] * count, [lon] * count, other_lat, other_lon, reach)
    assert truths == [distance <= reach] * count


def test_known_distances() -> None:
    berlin, paris, hamburg = (52.52, 13.405), (48.8566, 2.3522), (53.5511, 9.9937)
    points = [[berlin[0], paris[0], hamburg[0]], [berlin[1], paris[1], hamburg[1]]]
    assert answers("within", *points, *berlin, 255_500) == [True, False, True]
    assert answers("within", *points, *berlin, 879_000) == [True, True, True]


@pytest.mark.parametrize("count", [1, 10, 300])
def test_over_the_date_line_and_the_poles(count: int) -> None:
    east, west = [179.99] * count, [-179.99] * count
    assert answers("within", [0.0] * count, east, 0, -179.99, 2_300) == [True] * count
    assert answers("within", [0.0] * count, west, 0, 540.01 - 360.02, 2_300) == [True] * count
    assert answers("within", [89.99] * count, [0.0] * count, 89.99, 180, 2_300) == [True] * count
    assert answers("within", [90.0] * count, [17.0] * count, 90, -100, 0.001) == [True] * count
    assert answers("within", [-90.0] * count, [17.0] * count, 90, -100, 2.0e7) == [False] * count
    assert answers("within", [-90.0] * count, [17.0] * count, 90, -100, inf) == [True] * count


@pytest.mark.parametrize("count", [1, 10, 300])
@pytest.mark.parametrize(
    ("lat", "lon", "center", "reach"),
    [
        (nan, 0.0, (0, 0), 1e9),
        (0.0, nan, (0, 0), 1e9),
        (0.0, inf, (0, 0), 1e9),
        (inf, 0.0, (0, 0), inf),
        (90.001, 0.0, (90, 0), inf),
        (0.0, 0.0, (0, 0), -1),
        (0.0, 0.0, (0, 0), -inf),
        (0.0, 0.0, (-90.001, 0), inf),
        (0.0, 0.0, (0, inf), inf),
        (0.0, 0.0, (0, 540.1), inf),
        (0.0, -540.1, (0, 0), inf),
    ],
)
def test_what_is_no_place_is_nowhere(
    lat: float, lon: float, center: tuple[float, float], reach: float, count: int
) -> None:
    assert answers("within", [lat] * count, [lon] * count, *center, reach) == [False] * count
    columns = [[float(value)] * count for value in (lat, lon, *center, reach)]
    assert answers("within", *columns) == [False] * count


def test_the_centre_and_the_distance_may_be_attributes() -> None:
    lats, lons = [52.0, 52.0, 52.0], [13.0, 13.001, 14.0]
    assert answers("within", lats, lons, [52.0] * 3, [13.0] * 3, 100) == [True, True, False]
    assert answers("within", lats, lons, 52, 13, [0.0, 1.0, 1e6]) == [True, False, True]
    assert answers("within", [52], [13], 52, 13, 0) == [True]  # of int64


@given(latitudes, longitudes, distances, distances, st.lists(st.tuples(latitudes, longitudes), max_size=20))
def test_a_circle_covers_a_smaller_one_around_the_same_centre(
    lat: float, lon: float, reach: float, other: float, points: list[tuple[float, float]]
) -> None:
    low, high = sorted((reach, other))
    assert covers("within", (None, None, lat, lon, high), (None, None, lat, lon, low))
    assert low == high or not covers("within", (None, None, lat, lon, low), (None, None, lat, lon, high))
    if points:
        columns = [float(p[0]) for p in points], [float(p[1]) for p in points]
        inner, outer = (answers("within", *columns, lat, lon, r) for r in (low, high))
        assert all(b for a, b in zip(inner, outer, strict=True) if a)


@given(latitudes, longitudes, latitudes, longitudes, distances, st.floats(1.1, 1e4), st.data())
@example(0.0, 0.0, 0.0, 1.0, 1_000.0, 1.5, None)
def test_a_circle_covers_those_that_lie_in_it(
    lat: float,
    lon: float,
    other_lat: float,
    other_lon: float,
    reach: float,
    room: float,
    data: st.DataObject | None,
) -> None:
    enough = metres(lat, lon, other_lat, other_lon) + reach + room
    narrower = (None, None, other_lat, other_lon, reach)
    assert covers("within", (None, None, lat, lon, enough), narrower)
    assert not covers("within", (None, None, lat, lon, enough - room - 0.5), narrower) or (
        (lat, lon) == (other_lat, other_lon) or enough > 2e7
    )
    if data is not None:
        north, east = data.draw(latitudes), data.draw(longitudes)
        if answers("within", [north], [east], *narrower[2:]) == [True]:
            assert answers("within", [north], [east], lat, lon, enough) == [True]


def test_circles_that_cover_nothing_or_all() -> None:
    here = (None, None, 52, 13)
    assert covers("within", (*here, 1), (None, None, 0, 0, -1))
    assert covers("within", (*here, 1), (None, None, 91, 0, 5))
    assert covers("within", (*here, 1), (None, None, 0, 541, 5))
    assert not covers("within", (None, None, 91, 0, inf), (*here, 5))
    assert not covers("within", (None, None, 0, 541, inf), (*here, 5))
    assert covers("within", (*here, inf), (None, None, -52, -167, 2e7))
    assert not covers("within", (None, None, None, 13, 5), (None, None, None, 14, 5))
    assert covers("within", (None, None, None, None, 5), (None, None, None, None, 5))
    assert covers("within", (*here, None), (*here, None))
    assert not covers("within", (None, None, 52, 14, None), (*here, None))

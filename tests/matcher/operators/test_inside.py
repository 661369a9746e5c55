"""`inside` against exact arithmetic on integer polygons, and covering of polygons."""

import json
from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from operator_calls import answers, covers, operator

pytest.importorskip("shapely")

Point = tuple[int, int]
coordinates = st.integers(-4, 4)
points = st.tuples(coordinates, coordinates)
triangles = st.tuples(points, points, points).filter(lambda t: side(*t) != 0)
GRID = [(x, y) for x in range(-5, 6) for y in range(-5, 6)]


def side(a: Point, b: Point, c: Point) -> int:
    """The side of point c from the line a to b: positive, negative, or 0 on it."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def is_in(triangle: tuple[Point, Point, Point], point: Point) -> bool:
    a, b, c = triangle
    sides = side(a, b, point), side(b, c, point), side(c, a, point)
    return min(sides) >= 0 or max(sides) <= 0


def is_strictly_in(triangle: tuple[Point, Point, Point], point: Point) -> bool:
    a, b, c = triangle
    sides = side(a, b, point), side(b, c, point), side(c, a, point)
    return min(sides) > 0 or max(sides) < 0


def ring(corners: tuple[Point, ...]) -> str:
    return "(" + ", ".join(f"{x} {y}" for x, y in (*corners, corners[0])) + ")"


def wkt(*rings: tuple[Point, ...]) -> str:
    return f"POLYGON ({', '.join(map(ring, rings))})"


def geojson(*rings: tuple[Point, ...]) -> str:
    return json.dumps({"type": "Polygon", "coordinates": [[*corners, corners[0]] for corners in rings]})


def inside(polygon: str) -> list[bool]:
    """Per point of the grid."""
    return answers("inside", [float(y) for _, y in GRID], [float(x) for x, _ in GRID], polygon)


@given(triangles, st.sampled_from([wkt, geojson]))
def test_a_polygon_includes_its_border(triangle: tuple[Point, Point, Point], form: object) -> None:
    assert inside(form(triangle)) == [is_in(triangle, point) for point in GRID]


@given(triangles)
def test_a_hole_excludes_its_inner_points_alone(hole: tuple[Point, Point, Point]) -> None:
    around = ((-5, -5), (5, -5), (5, 5), (-5, 5))
    assert inside(wkt(around, hole)) == [not is_strictly_in(hole, point) for point in GRID]


@given(triangles, triangles)
def test_covering_polygons_have_the_points_of_those_that_they_cover(
    wider: tuple[Point, Point, Point], narrower: tuple[Point, Point, Point]
) -> None:
    expected = all(is_in(wider, corner) for corner in narrower)  # a triangle is convex
    assert covers("inside", (None, None, wkt(wider)), (None, None, geojson(narrower))) == expected


@given(triangles, triangles)
def test_a_polygon_with_a_hole_covers_what_is_outside_of_it(
    hole: tuple[Point, Point, Point], narrower: tuple[Point, Point, Point]
) -> None:
    around = wkt(((-5, -5), (5, -5), (5, 5), (-5, 5)), hole)
    assume(covers("inside", (None, None, around), (None, None, wkt(narrower))))
    assert all(a for a, b in zip(inside(around), inside(wkt(narrower)), strict=True) if b)


def test_several_polygons_and_none() -> None:
    both = "MULTIPOLYGON (((170 0, 180 0, 180 5, 170 5, 170 0)), ((-180 0, -170 0, -170 5, -180 5, -180 0)))"
    assert answers("inside", [1.0, 1.0, 1.0], [179.0, -179.0, 0.0], both) == [True, True, False]
    assert inside("POLYGON EMPTY") == [False] * len(GRID)
    assert covers("inside", (None, None, both), (None, None, "POLYGON EMPTY"))
    assert not covers("inside", (None, None, "POLYGON EMPTY"), (None, None, both))


def test_what_is_no_place_is_nowhere() -> None:
    polygon = "POLYGON ((-1e308 -1e308, 1e308 -1e308, 1e308 1e308, -1e308 1e308, -1e308 -1e308))"
    assert answers("inside", [nan, 0.0, inf, 0.0, 0.0], [0.0, nan, 0.0, -inf, 0.0], polygon) == [
        False
    ] * 4 + [True]
    assert answers("inside", [1], [1], "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))") == [True]  # of int64


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("POLYGON((0 0", "polygon 'POLYGON.*Expected word"),
        ("", "polygon '': expected WKT"),
        ("POINT (1 2)", "expected WKT such as POLYGON"),
        ("GEOMETRYCOLLECTION (" * 200_000, "expected WKT such as POLYGON"),
        ("MULTIPOLYGON " + "(" * 200_000, "polygon 'MULTIPOLYGON"),
        ('{"type": "GeometryCollection", "geometries": [' * 200_000, "expected GeoJSON of type Polygon or"),
        ('{"type": "Polygon", "coordinates": ' + "[" * 200_000, "expected GeoJSON of type Polygon or"),
        ('{"type": "Polygon", "coordinates": ' + "[" * 500 + "]" * 500 + "}", "polygon '{"),
        ('{"type": "Polygon", "coordinates": {"a": 1}}', "polygon '{"),
        ('{"type": ["Polygon"]}', "expected GeoJSON of type Polygon or MultiPolygon"),
        ("POLYGON ((" + "0 0, " * 10_000 + "0 0))", "10001 points, expected at most 10000"),
        ("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))", r"Self-intersection.*expected a valid polygon"),
        ('{"type": "Polygon"}', "polygon '{"),
        ('{"type": "Point", "coordinates": [1, 2]}', "expected GeoJSON of type Polygon or MultiPolygon"),
        ("POLYGON ((nan 0, 1 1, 1 0, nan 0))", "polygon 'POLYGON"),
        ("\0", "polygon"),
    ],
)
def test_other_text_is_refused_by_name(text: str, error: str) -> None:
    check = operator("inside").check
    assert check is not None
    with pytest.raises(ValueError, match=error):
        check((None, None, text))
    check((None, None, None))
    assert not covers("inside", (None, None, text), (None, None, "POLYGON EMPTY"))


def test_large_polygons_cover_equal_text_alone() -> None:
    angles = np.linspace(0, 2 * np.pi, 2_000, endpoint=False)
    corners = np.column_stack([np.cos(angles), np.sin(angles)]).tolist()
    large = f"POLYGON (({', '.join(f'{x} {y}' for x, y in [*corners, corners[0]])}))"
    small = "POLYGON ((0 0, 0.1 0, 0.1 0.1, 0 0))"
    assert covers("inside", (None, None, large), (None, None, large))
    assert not covers("inside", (None, None, large), (None, None, small))
    assert all(left != right for left, right in pairwise(corners))

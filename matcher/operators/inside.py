"""`inside(lat, lon, polygon)`: a point lies in a polygon, given as WKT or as GeoJSON text.

A polygon's x is the longitude and y the latitude, in the plane: edges are straight in degrees, and a polygon
over the date line is a MULTIPOLYGON of two. The border of a polygon and of its holes is inside. False for NaN
and infinity."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import shapely
import shapely.geometry

from covey.matcher.events.event_type import Kind
from covey.matcher.operators.arguments import column, parsed_once
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes

MOST_COMPARED = 2_000
"""Points of two polygons that covering compares: 1 ms. Larger ones cover only equal text."""

MOST_POINTS = 10_000  # points of a polygon, which is parsed and checked in up to 50 ms

_WKT = re.compile(r"\s*(MULTI)?POLYGON\b", re.IGNORECASE)
_TYPES = ("Polygon", "MultiPolygon")


@parsed_once
def _polygon(text: str) -> Any:
    shown = repr(text if len(text) <= 60 else text[:57] + "...")
    try:
        geometry = _of_geojson(text) if text.lstrip().startswith("{") else _of_wkt(text)
    except Exception as error:  # shapely raises many kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"polygon {shown}: {reason}") from None
    points = int(shapely.get_num_coordinates(geometry))
    if points > MOST_POINTS:
        raise ValueError(f"polygon {shown}: {points} points, expected at most {MOST_POINTS}")
    if not shapely.is_valid(geometry):
        raise ValueError(f"polygon {shown}: {shapely.is_valid_reason(geometry)}, expected a valid polygon")
    shapely.prepare(geometry)
    shapely.intersects_xy(geometry, 0.0, 0.0)  # builds the index, which no two threads may do
    return geometry


def _of_wkt(text: str) -> Any:
    """Of a polygon alone: GEOS reads collections by recursion, and deep ones end the process."""
    if not _WKT.match(text):
        raise ValueError("expected WKT such as POLYGON ((0 0, 1 0, 1 1, 0 0)), or a MULTIPOLYGON")
    return shapely.from_wkt(text)


def _of_geojson(text: str) -> Any:
    """By Python's parser, for the same reason."""
    try:
        fields = json.loads(text)
    except RecursionError:
        fields = {}
    if fields.get("type") not in _TYPES or "coordinates" not in fields:
        raise ValueError(f"expected GeoJSON of type {' or '.join(_TYPES)} with coordinates")
    return shapely.geometry.shape({"type": fields["type"], "coordinates": fields["coordinates"]})


def _evaluate(lat: Any, lon: Any, polygon: str) -> Any:
    lats, lons = column(lat), column(lon)
    with np.errstate(invalid="ignore"):  # shapely 2.0 warns of empty polygons
        are_inside = shapely.intersects_xy(_polygon(polygon), lons, lats)
    return are_inside & np.isfinite(lats) & np.isfinite(lons)


def _check(arguments: Sequence[Any]) -> None:
    if arguments[2] is not None:
        _polygon(arguments[2])


def _covers(wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    return bool(wider[2] == narrower[2] or _encloses(wider[2], narrower[2]))


@lru_cache(4_096)
def _encloses(wider: str, narrower: str) -> bool:
    try:
        outer, inner = _polygon(wider), _polygon(narrower)
    except ValueError:
        return False
    if shapely.is_empty(inner):
        return True
    low_x, low_y, high_x, high_y = shapely.bounds(inner)
    least_x, least_y, most_x, most_y = shapely.bounds(outer)
    if not (least_x <= low_x and least_y <= low_y and high_x <= most_x and high_y <= most_y):
        return False
    points = shapely.get_num_coordinates(outer) + shapely.get_num_coordinates(inner)
    return bool(points <= MOST_COMPARED and shapely.covers(outer, inner))


def _bounds(arguments: Sequence[Any]) -> list[list[tuple[float, float]] | None]:
    polygon = _polygon(arguments[2])
    if shapely.is_empty(polygon):
        return [[], [], None]
    low_x, low_y, high_x, high_y = map(float, shapely.bounds(polygon))
    return [[(low_y, high_y)], [(low_x, high_x)], None]


INSIDE = NamedOperator(
    name="inside",
    parameters=(
        Parameter("lat", NUMBERS, Takes.ATTRIBUTE),
        Parameter("lon", NUMBERS, Takes.ATTRIBUTE),
        Parameter("polygon", frozenset({Kind.STRING}), Takes.CONSTANT),
    ),
    evaluate=_evaluate,
    summary="a point lies in a polygon, given as WKT or GeoJSON",
    covers=_covers,
    bounds=_bounds,
    check=_check,
    package="shapely",
)

"""What a figure shows, as plain values: curves over a number, or bars by name. Pages draw it with Bokeh
(`interactive.py`), documents with matplotlib (`png.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isclose
from typing import Any

Point = tuple[float, float] | tuple[float, float, float, float]
"""(x, y), or (x, y, low, high) with the ends of an interval of y."""

Value = float | tuple[float, float, float] | None
"""A number, or (number, low, high) with the ends of its interval; None if it was not measured."""

Mark = tuple[float, float, float | None, float | None]
"""What is drawn: the place on the first axis, the value, and the ends of its interval if it has one."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Points per series, in any order, joined by lines, on linear or logarithmic axes."""

    x_label: str
    y_label: str
    series: Mapping[str, Sequence[Point]]
    log_x: bool = False
    log_y: bool = False

    @property
    def empty(self) -> bool:
        return not any(self.series.values())

    @property
    def styled(self) -> list[str]:
        """The names that have a style of their own in this figure."""
        return list(self.series)

    def marks(self, name: str) -> list[Mark]:
        """The points of a series by x, without those that have no place on a logarithmic axis."""
        points = [point if len(point) == 4 else (*point, None, None) for point in self.series[name]]
        return sorted(
            (x, y, _reach(low, y, self.log_y), high)
            for x, y, low, high in points
            if not ((self.log_x and x <= 0) or (self.log_y and y <= 0))
        )

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of the figure's data, one row per point."""
        rows = [
            [name, *point, *[None] * (4 - len(point))]
            for name, points in self.series.items()
            for point in sorted(points)
        ]
        return ["series", self.x_label, self.y_label, "low", "high"], rows

    def as_json(self) -> dict[str, Any]:
        """Plain values: the fields, with a list of lists per series."""
        series = {name: [list(point) for point in points] for name, points in self.series.items()}
        return asdict(self) | {"series": series}


@dataclass(frozen=True, slots=True)
class Bars:
    """A value per group and series: bars side by side or, with `dots`, dots in one line per group, which suit
    values that differ by orders of magnitude (`log`). `by_group` gives a single series the colours of its
    groups."""

    value_label: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[Value]]
    dots: bool = False
    log: bool = False
    by_group: bool = False

    @property
    def empty(self) -> bool:
        return all(value is None for values in self.series.values() for value in values)

    @property
    def styled(self) -> list[str]:
        """The names that have a style of their own in this figure."""
        return list(self.groups if self.by_group else self.series)

    def marks(self, name: str) -> list[Mark]:
        """The values of a series with the places of their groups, without those that are unknown or have no
        place on a logarithmic axis."""
        marks: list[Mark] = []
        for place, value in enumerate(self.series[name]):
            each, low, high = value if isinstance(value, tuple) else (value, None, None)
            if each is not None and (each > 0 or not self.log):
                marks.append((float(place), each, _reach(low, each, self.log), high))
        return marks

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of the figure's data, one row per value."""
        rows = [
            [name, group, *(value if isinstance(value, tuple) else (value, None, None))]
            for name, values in self.series.items()
            for group, value in zip(self.groups, values, strict=True)
        ]
        return ["series", "group", self.value_label, "low", "high"], rows

    def as_json(self) -> dict[str, Any]:
        """Plain values: the fields, where a value is a number, a list of three, or None."""
        series = {
            name: [list(value) if isinstance(value, tuple) else value for value in values]
            for name, values in self.series.items()
        }
        return asdict(self) | {"groups": list(self.groups), "series": series}


Plot = Curves | Bars


def _reach(low: float | None, value: float, log: bool) -> float | None:
    """The end of a whisker: on a logarithmic axis, one of an interval that reaches zero has a decade."""
    return value / 10 if log and low is not None and low <= 0 else low


def coinciding(plot: Plot) -> list[tuple[str, str]]:
    """Pairs of series of which one hides the other: equal within 1 % at the same places, two at least."""
    marks = {name: {mark[0]: mark[1] for mark in plot.marks(name)} for name in plot.series}
    names = [name for name, values in marks.items() if len(values) > 1]
    return [
        (first, second)
        for at, first in enumerate(names)
        for second in names[at + 1 :]
        if marks[first].keys() == marks[second].keys()
        and all(isclose(value, marks[second][x], rel_tol=0.01) for x, value in marks[first].items())
    ]


def widths(plot: Curves) -> dict[str, float]:
    """The line width of each series: of two that coincide, the one drawn first is the wider one."""
    width = dict.fromkeys(plot.series, 2.0)
    for first, second in reversed(coinciding(plot)):
        width[first] = max(width[first], width[second] + 3.0)
    return width

"""The content of a page as plain values. Pages draw figures with Bokeh (`interactive.py`), documents with
matplotlib (`png.py`)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import isclose, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

Point = tuple[float, float] | tuple[float, float, float, float]
"""(x, y), or (x, y, low, high) with the ends of an interval of y."""

Value = float | tuple[float, float, float] | None
"""A number, or (number, low, high) with the ends of its interval; None if it was not measured."""

Mark = tuple[float, float, float | None, float | None]
"""(place on the first axis, value, low, high); no interval if both are None."""


@dataclass(frozen=True, slots=True)
class Curves:
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
        return list(self.series)

    def marks(self, name: str) -> list[Mark]:
        points = [point if len(point) == 4 else (*point, None, None) for point in self.series[name]]
        return sorted(
            (x, y, _reach(low, y, self.log_y), high)
            for x, y, low, high in points
            if not ((self.log_x and x <= 0) or (self.log_y and y <= 0))
        )

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        rows = [
            [name, *point, *[None] * (4 - len(point))]
            for name, points in self.series.items()
            for point in sorted(points)
        ]
        return ["series", self.x_label, self.y_label, "low", "high"], rows

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values, with a list of lists per series."""
        series = {name: [list(point) for point in points] for name, points in self.series.items()}
        return asdict(self) | {"series": series}


@dataclass(frozen=True, slots=True)
class Bars:
    """A value per group and series: bars or, with `dots`, dots in one line per group, for values that differ
    by orders of magnitude (`log`). `by_group` gives a single series the colours of its groups."""

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
        return list(self.groups if self.by_group else self.series)

    def marks(self, name: str) -> list[Mark]:
        """Without values that are unknown or cannot be on a log axis. A group's place is its index."""
        marks: list[Mark] = []
        for place, value in enumerate(self.series[name]):
            each, low, high = value if isinstance(value, tuple) else (value, None, None)
            if each is not None and (each > 0 or not self.log):
                marks.append((float(place), each, _reach(low, each, self.log), high))
        return marks

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        rows = [
            [name, group, *(value if isinstance(value, tuple) else (value, None, None))]
            for name, values in self.series.items()
            for group, value in zip(self.groups, values, strict=True)
        ]
        return ["series", "group", self.value_label, "low", "high"], rows

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values, where a value is a number, a list of three, or None."""
        series = {
            name: [list(value) if isinstance(value, tuple) else value for value in values]
            for name, values in self.series.items()
        }
        return asdict(self) | {"groups": list(self.groups), "series": series}


Plot = Curves | Bars


def _reach(low: float | None, value: float, log: bool) -> float | None:
    """The low end of a whisker: on a log axis a decade below the value if the interval reaches zero."""
    return value / 10 if log and low is not None and low <= 0 else low


def coinciding(plot: Plot) -> list[tuple[str, str]]:
    """Pairs of series that hide each other: equal within 1 % at the same places, two at least."""
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
    width = dict.fromkeys(plot.series, 2.0)
    for first, second in reversed(coinciding(plot)):
        width[first] = max(width[first], width[second] + 3.0)
    return width


def number(value: Any) -> str:
    """A value for a table, such as 1,234, 0.0123, 12.3 and yes; a dash for None; text is unchanged."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's distribution for 1 to 30 degrees of freedom, 2.5 % on either side."""
_NORMAL = 1.96
ESTIMATED = 3
"""The fewest measurements for an interval: that of two reaches six times their distance to either side."""


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of independent measurements that cannot be negative: the 95 % interval by Student's
    distribution, cut at zero; of fewer than `ESTIMATED`, the least and the greatest. Raises `ValueError` if
    empty."""
    if not values:
        raise ValueError("no values: expected at least one")
    mean = fmean(values)
    if len(values) < ESTIMATED:
        return mean, min(values), max(values)
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else _NORMAL
    half = t * stdev(values) / sqrt(len(values))
    return mean, max(0.0, mean - half), mean + half


def command_line() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Origin:
    """`size` is text, such as "quick" or "12 runs"; `parameters` are equal in the scenarios of all runs."""

    size: str
    seeds: Sequence[int]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    command: str = field(default_factory=command_line)
    covey: str = field(default_factory=lambda: version("covey"))
    written: str = field(default_factory=now)


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number: `value` is formatted by `number`; `good` colours it."""

    label: str
    value: Any
    good: bool | None = None


@dataclass(frozen=True, slots=True)
class Badge:
    """One word on a section, such as its verdict; `good` colours it."""

    text: str
    good: bool | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot and its caption. The page has its data as a table and as CSV."""

    plot: Plot
    caption: str


@dataclass(frozen=True, slots=True)
class Table:
    """`number` formats the cells. The first column names the row. Columns with the same value in all rows
    become a sentence (`compact`)."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Each entry of `text` is a paragraph; text in backticks is set as code."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    badge: Badge | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole page. `conclusion` has three to five sentences, computed from the data; `definitions` are
    (term, meaning); `looks` maps names of series to the known name whose style they have (`colours.py`)."""

    title: str
    conclusion: Sequence[str]
    origin: Origin
    sections: Sequence[Section]
    tiles: Sequence[Tile] = ()
    notes: Sequence[str] = ()
    definitions: Sequence[tuple[str, str]] = field(default=())
    looks: Mapping[str, str] = field(default_factory=dict)


def compact(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], names: int = 1
) -> tuple[list[str], list[list[Any]], str]:
    """The columns and rows without the columns whose values are all the same, and a sentence on these. The
    first `names` columns stay. A table of one row is unchanged."""
    if len(rows) < 2:
        return list(columns), [list(row) for row in rows], ""
    kept, same, unknown = list(range(min(names, len(columns)))), [], []
    for place, column in enumerate(columns[names:], names):
        values = [row[place] for row in rows]
        if any(value != values[0] for value in values):
            kept.append(place)
        elif values[0] is None or values[0] == "":
            unknown.append(column)
        else:
            same.append(f"{column} {number(values[0])}")
    sentences = []
    if same:
        sentences.append(f"The same in all rows: {', '.join(same)}.")
    if unknown:
        sentences.append(f"Unknown in all rows: {', '.join(unknown)}.")
    return (
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        " ".join(sentences),
    )

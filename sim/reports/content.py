"""What a page consists of, as plain values: sections with text, figures, tables and numbers, and their
origin.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from covey.sim.reports.plot_data import Plot


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
"""Measurements from which on the interval is one of Student's distribution: of two it reaches six times
their distance to either side, which says nothing."""


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of independent measurements that cannot be negative: the 95 % interval of the mean by
    Student's distribution, cut at zero; of fewer than `ESTIMATED`, the least and the greatest. Raises
    `ValueError` without values."""
    if not values:
        raise ValueError("no values: expected at least one")
    mean = fmean(values)
    if len(values) < ESTIMATED:
        return mean, min(values), max(values)
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else _NORMAL
    half = t * stdev(values) / sqrt(len(values))
    return mean, max(0.0, mean - half), mean + half


def command_line() -> str:
    """The command that runs, as it was typed."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def now() -> str:
    """The time in UTC, to the minute."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Origin:
    """`size` in words, such as "quick" or "12 runs"; `parameters` are the fields of the scenario that all
    runs share."""

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
    """Columns and rows; `number` formats the cells, and columns with numbers are right-aligned. The first
    column names the row. Columns with the same value in all rows become a sentence (`tables.compact`)."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. Each entry of `text` is a paragraph; text in backticks is set as code."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    tiles: Sequence[Tile] = ()
    badge: Badge | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole page. `conclusion` are three to five sentences, computed from the data, that stand first;
    `tiles` the main numbers; `notes` remarks on the measurement; `definitions` terms with their meanings.
    `looks` are names of series with the known name whose style they have (`colours.py`)."""

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
    """Columns and rows of the first columns, which name the rows, and of those whose values differ; and a
    sentence on the others.

    A table of one row stays as it is.
    """
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

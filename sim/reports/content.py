"""What a page consists of: sections with text, figures, tables and large numbers, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from covey.sim.reports.origin import Origin
from covey.sim.reports.plot_data import Plot


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

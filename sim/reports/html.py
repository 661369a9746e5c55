"""A report as one self-contained HTML file: inline style, embedded plots, no scripts.

A title, the main results as tiles, then sections with text, plots and small tables.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.reports.numbers import number
from covey.sim.reports.plot_data import Plot
from covey.sim.reports.png import png


class ReportError(CoveyError, OSError):
    """The report file cannot be written."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number: `value` is formatted by `number`; `good` colours it green or red."""

    label: str
    value: Any
    good: bool | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot and its caption."""

    plot: Plot
    caption: str


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; `number` formats the cells, and columns with numbers are right-aligned."""

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


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report; `lead` are the paragraphs under the title, `tiles` the main numbers."""

    title: str
    sections: Sequence[Section]
    lead: Sequence[str] = ()
    tiles: Sequence[Tile] = field(default=())

    def html(self) -> str:
        """The document; deterministic."""
        body = [f"<h1>{escape(self.title)}</h1>", *(_paragraph(text, "lead") for text in self.lead)]
        body.append(_tiles(self.tiles))
        if len(self.sections) > 2:
            links = (
                f'<a href="#s{place}">{escape(section.title)}</a>'
                for place, section in enumerate(self.sections)
            )
            body.append(f"<nav>{''.join(links)}</nav>")
        body += [_section(section, f"s{place}") for place, section in enumerate(self.sections)]
        return _PAGE.format(title=escape(self.title), style=_STYLE, body="\n".join(filter(None, body)))


def write_report(path: str | Path, report: Report) -> None:
    """Write a report as one HTML file. Raises `ReportError` if that fails."""
    try:
        Path(path).write_text(report.html(), encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: cannot be written: {error.strerror or error}") from None


def _section(section: Section, anchor: str) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>", *(_paragraph(text) for text in section.text)]
    parts.append(_tiles(section.tiles))
    if section.figures:
        parts.append(f'<div class="figures">{"".join(_figure(figure) for figure in section.figures)}</div>')
    parts += [_table(table) for table in section.tables]
    return f'<section id="{anchor}">{"".join(parts)}</section>'


def _paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind!r}' if kind else ''}>{_inline(text)}</p>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _tiles(tiles: Sequence[Tile]) -> str:
    if not tiles:
        return ""
    colours = {None: "", True: " good", False: " bad"}
    cards = (
        f'<div class="tile{colours[tile.good]}"><b>{escape(number(tile.value))}</b>'
        f"<span>{escape(tile.label)}</span></div>"
        for tile in tiles
    )
    return f'<div class="tiles">{"".join(cards)}</div>'


def _figure(figure: Figure) -> str:
    data, alt = b64encode(png(figure.plot)).decode("ascii"), escape(figure.caption, quote=True)
    image = f'<img src="data:image/png;base64,{data}" alt="{alt}">'
    return f"<figure>{image}<figcaption>{_inline(figure.caption)}</figcaption></figure>"


def _table(table: Table) -> str:
    right = [
        any(isinstance(row[place], int | float) and not isinstance(row[place], bool) for row in table.rows)
        for place in range(len(table.columns))
    ]

    def cells(tag: str, values: Sequence[Any]) -> str:
        tagged = (
            f"<{tag}{' class=n' if number_like else ''}>{_inline(number(value))}</{tag}>"
            for value, number_like in zip(values, right, strict=True)
        )
        return f"<tr>{''.join(tagged)}</tr>"

    caption = f"<caption>{_inline(table.caption)}</caption>" if table.caption else ""
    rows = "".join(cells("td", row) for row in table.rows)
    head = cells("th", table.columns)
    return f'<div class="wide"><table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table></div>'


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = """
body { margin: 0; background: #f4f5f7; color: #1f2933; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; }
p { max-width: 46rem; margin: 0 0 .8rem; }
p.lead { font-size: 1.08rem; color: #3e4c59; }
code { background: #eceff3; border-radius: 3px; padding: 0 .25em; font-size: .9em; }
section { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: 1.2rem 1.4rem; }
section { margin-top: 1.2rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .8rem 0 0; font-size: .92rem; }
a { color: #1b6ca8; text-decoration: none; }
a:hover { text-decoration: underline; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: .6rem 0 1rem; }
.tile { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: .6rem 1rem; }
.tile { min-width: 7rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: #616e7c; font-size: .85rem; }
.tile.good b { color: #1e7d4f; }
.tile.bad b { color: #b3261e; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); }
.figures { gap: 1rem; margin: .6rem 0 1rem; }
figure { margin: 0; }
figure img { width: 100%; height: auto; }
figcaption, caption { color: #616e7c; font-size: .88rem; text-align: left; }
caption { padding-bottom: .3rem; }
.wide { overflow-x: auto; margin: .4rem 0 .8rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e8ebef; text-align: left; white-space: nowrap; }
th { color: #52606d; font-weight: 600; border-bottom: 2px solid #cbd2d9; }
.n { text-align: right; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""

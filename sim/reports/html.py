"""A report as one HTML file, with style, BokehJS, figures and data inline."""

from __future__ import annotations

import csv
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.reports.colours import styles
from covey.sim.reports.content import (
    Badge,
    Bars,
    Figure,
    Origin,
    Plot,
    Report,
    Section,
    Table,
    Tile,
    coinciding,
    compact,
    number,
)
from covey.sim.reports.interactive import scripts_and_places

_FOLDED, _SHOWN = 30, 500
"""Rows from which a table is folded, and the most rows of a table."""
_TONES = {None: "", True: " good", False: " bad"}


def write_report(path: str | Path, report: Report) -> None:
    """Raises `CoveyError` if the file cannot be written or Bokeh is missing."""
    page = html(report)
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise CoveyError(f"{path}: cannot be written: {error.strerror or error}") from None


def html(report: Report) -> str:
    """Raises `CoveyError` if Bokeh is missing."""
    figures = [figure for section in report.sections for figure in section.figures]
    plots = [figure.plot for figure in figures if not figure.plot.empty]
    look = styles((name for plot in plots for name in plot.styled), report.looks)
    library, drawing, places = scripts_and_places([(plot, look) for plot in plots]) if plots else ("", "", [])
    place = iter(places)
    title = escape(report.title)
    body = [
        f"<h1>{title}</h1>",
        f'<div class="conclusion">{"".join(map(_paragraph, report.conclusion))}</div>',
        _tiles(report.tiles),
        _origin(report.origin),
        *map(_paragraph, report.notes),
        _contents(report.sections),
        *(_section(section, f"s{at}", place) for at, section in enumerate(report.sections)),
    ]
    if report.definitions:
        terms = _list(report.definitions)
        body.append(f'<section id="definitions"><h2>Definitions</h2>{terms}</section>')
    scripts = "".join(f"<script>{script}</script>\n" for script in (library, drawing) if script)
    return _PAGE.format(title=title, style=STYLE, body="\n".join(filter(None, body)), scripts=scripts)


def _origin(origin: Origin) -> str:
    seeds = ", ".join(map(str, origin.seeds[:12])) + (", ..." if len(origin.seeds) > 12 else "")
    facts = {
        "size": origin.size,
        "seeds" if len(origin.seeds) != 1 else "seed": seeds,
        "Covey": origin.covey,
        "written": origin.written,
        "command": f"`{origin.command}`",
    }
    parameters = _list([(name, number(value)) for name, value in origin.parameters.items()])
    folded = f"<details><summary>parameters</summary>{parameters}</details>" if origin.parameters else ""
    return f'<div class="origin">{_list([fact for fact in facts.items() if fact[1]])}{folded}</div>'


def _list(terms: Iterable[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{_inline(term)}</dt><dd>{_inline(text)}</dd>' for term, text in terms)}</dl>"


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 3:
        return ""
    links = (
        f'<a href="#s{at}">{escape(section.title)}</a>{_badge(section.badge)}'
        for at, section in enumerate(sections)
    )
    return f"<nav><ul>{''.join(f'<li>{link}</li>' for link in links)}</ul></nav>"


def _section(section: Section, anchor: str, place: Iterator[str]) -> str:
    parts = [f"<h2>{escape(section.title)}{_badge(section.badge)}</h2>", *map(_paragraph, section.text)]
    figures = [
        _figure(figure, next(place), f"{anchor}-{at}")
        for at, figure in enumerate(section.figures)
        if not figure.plot.empty
    ]
    if figures:
        parts.append(f'<div class="figures">{"".join(figures)}</div>')
    parts += map(_table, section.tables)
    return f'<section id="{anchor}">{"".join(parts)}</section>'


def _badge(badge: Badge | None) -> str:
    return f' <span class="badge{_TONES[badge.good]}">{escape(badge.text)}</span>' if badge else ""


def _paragraph(text: str) -> str:
    return f"<p>{_inline(text)}</p>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _tiles(tiles: Sequence[Tile]) -> str:
    cards = (
        f'<div class="tile{_TONES[tile.good]}"><b>{escape(number(tile.value))}</b>'
        f"<span>{escape(tile.label)}</span></div>"
        for tile in tiles
    )
    return f'<div class="tiles">{"".join(cards)}</div>' if tiles else ""


def _figure(figure: Figure, place: str, name: str) -> str:
    plot = figure.plot
    columns, rows = plot.rows()
    hidden = _hidden(plot)
    stop = "." if hidden and not figure.caption.endswith(".") else ""
    caption = f"<figcaption>{_inline(figure.caption + stop + hidden)}</figcaption>"
    link = (
        f'<a download="{name}.csv" href="data:text/csv;base64,{_csv(columns, rows)}">CSV</a> '
        f"({len(rows):,} values)"
    )
    data = f"<details><summary>data</summary>{link}{_grid(columns, rows[:_SHOWN])}</details>"
    return f"<figure>{caption}{place}{data}</figure>"


def _hidden(plot: Plot) -> str:
    if isinstance(plot, Bars):
        return ""
    groups: list[list[str]] = []
    for first, second in coinciding(plot):
        group = next((each for each in groups if first in each or second in each), None)
        if group is None:
            groups.append([first, second])
        else:
            group += [name for name in (first, second) if name not in group]
    if not groups:
        return ""
    if len(groups[0]) == len(plot.series):
        return " All of them are nearly the same."
    return f" Nearly the same: {'; '.join(', '.join(group) for group in groups)}."


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([columns, *rows])
    return b64encode(text.getvalue().encode()).decode("ascii")


def _table(table: Table) -> str:
    columns, rows, same = compact(table.columns, table.rows)
    more = f" The first {_SHOWN:,} of {len(rows):,} rows." if len(rows) > _SHOWN else ""
    caption = " ".join(filter(None, (table.caption and f"{table.caption}.", same))) + more
    grid = _grid(columns, rows[:_SHOWN])
    if len(rows) > _FOLDED:
        summary = f"{_inline(caption or 'table')} ({len(rows):,} rows)"
        return f"<details><summary>{summary}</summary>{grid}</details>"
    return (f'<p class="caption">{_inline(caption)}</p>' if caption else "") + grid


def _grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    right = [
        any(isinstance(row[place], int | float) and not isinstance(row[place], bool) for row in rows)
        for place in range(len(columns))
    ]

    def cells(tag: str, values: Sequence[Any]) -> str:
        tagged = (
            f"<{tag}{' class=n' if number_like else ''}>{_inline(number(value))}</{tag}>"
            for value, number_like in zip(values, right, strict=True)
        )
        return f"<tr>{''.join(tagged)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    return (
        f'<div class="wide"><table><thead>{cells("th", columns)}</thead><tbody>{body}</tbody></table></div>'
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
{scripts}</body>
</html>
"""


STYLE = """
body { margin: 0; background: #f4f5f7; color: #1f2933; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }
p { max-width: 50rem; margin: 0 0 .7rem; overflow-wrap: anywhere; }
code { background: #eceff3; border-radius: 3px; padding: 0 .25em; font-size: .9em; overflow-wrap: anywhere; }
section, .conclusion, .origin { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; }
section, .conclusion, .origin { padding: 1rem 1.2rem; margin-top: 1rem; }
.conclusion { font-size: 1.1rem; border-left: 5px solid #0072b2; }
.conclusion p { max-width: 56rem; margin: 0 0 .35rem; }
.conclusion p:last-child { margin: 0; }
.origin { font-size: .88rem; color: #52606d; margin-bottom: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { font-weight: 600; }
dd { margin: 0; overflow-wrap: anywhere; }
#definitions dl { grid-template-columns: minmax(7rem, max-content) 1fr; gap: .4rem 1.2rem; }
nav ul { margin: .8rem 0 0; padding: 0; list-style: none; columns: 22rem; font-size: .92rem; }
nav li { break-inside: avoid; padding: .1rem 0; }
a { color: #1b6ca8; text-decoration: none; }
a:hover { text-decoration: underline; }
summary { cursor: pointer; color: #1b6ca8; font-size: .88rem; }
.badge { display: inline-block; border-radius: 9px; padding: 0 .6em; font-size: .72rem; font-weight: 600; }
.badge { background: #e4e7eb; color: #3e4c59; line-height: 1.6; vertical-align: middle; white-space: nowrap; }
.badge.good { background: #d6eaf8; color: #00507d; }
.badge.bad { background: #fbe3d0; color: #8a3d00; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.tile { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: .5rem .9rem; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: #616e7c; font-size: .85rem; }
.tile.good b { color: #0072b2; }
.tile.bad b { color: #b34a00; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); }
.figures { gap: 1.2rem 1.6rem; margin: .6rem 0 1rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figcaption, .caption { color: #52606d; font-size: .9rem; margin: 0 0 .3rem; }
.wide { overflow: auto; max-height: 32rem; margin: .3rem 0 .8rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #e8ebef; text-align: left; white-space: nowrap; }
th { position: sticky; top: 0; background: #fff; color: #52606d; font-weight: 600; z-index: 1; }
td:first-child, th:first-child { position: sticky; left: 0; background: #fff; padding-left: 0; }
td:first-child { min-width: min(18rem, 35vw); max-width: 45vw; white-space: normal; }
td:first-child { overflow-wrap: anywhere; }
th:first-child { z-index: 2; }
.n { text-align: right; }
@media (max-width: 40rem) {
  dl, #definitions dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
  figure { overflow-x: clip; }  /* legends are as wide as their font */
}
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""

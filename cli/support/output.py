"""How commands print results: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 200
_GAP = 3
"""Characters between two columns."""


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], names: int = 1) -> None:
    """Print a table. `covey.sim.reports.number` formats the cells; columns with numbers are right-aligned.

    A table that is wider than the terminal is printed in parts below each other, so that no name is cut. Each
    begins with the first `names` columns, which name the rows.
    """
    from rich.text import Text

    from covey.sim.reports import number

    cells = [[number(cell) for cell in row] for row in rows]
    numeric = [
        any(isinstance(row[place], int | float) and not isinstance(row[place], bool) for row in rows)
        for place in range(len(columns))
    ]
    output = console()
    widths = [max(len(column), *(len(row[at]) for row in cells), 1) for at, column in enumerate(columns)]
    for places in _parts(widths, names, output.width):
        table = _table(title)
        for place in places:
            title_of = Text(columns[place], overflow="fold")
            table.add_column(title_of, justify="right" if numeric[place] else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(row[place]) for place in places))
        output.print(table)
        title = ""


def _parts(widths: Sequence[int], names: int, width: int) -> Iterator[list[int]]:
    """The columns of each part: the first ones, and as many others as fit beside them, one at least.

    Names that take more than half of the width are folded.
    """
    first = list(range(min(names, len(widths))))
    start = min(sum(widths[place] + _GAP for place in first), width // 2)
    part, used = [*first], start
    for place, each in enumerate(widths[names:], names):
        if len(part) > len(first) and used + _GAP + each > width:
            yield part
            part, used = [*first], start
        part.append(place)
        used += _GAP + each
    yield part


def _table(title: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def console() -> Console:
    """Where tables are printed: as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_PIPE_WIDTH)

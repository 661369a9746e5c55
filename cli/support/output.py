"""How commands print results: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 200


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table. `covey.sim.reports.number` formats the cells; columns with numbers are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from covey.sim.reports import number

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        numeric = any(
            isinstance(row[place], int | float) and not isinstance(row[place], bool) for row in rows
        )
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(number(cell)) for cell in row))
    console().print(table)


def console() -> Console:
    """Where tables are printed: as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_PIPE_WIDTH)

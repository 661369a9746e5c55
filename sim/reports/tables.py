"""Tables without columns that say nothing: what is the same in all rows is one sentence above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.sim.reports.numbers import number


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

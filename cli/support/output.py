"""Results of commands, as tables or JSON, and progress on stderr: a bar on a terminal, else lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import UnsupportedOperation
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 200
_GAP = 3


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], names: int = 1) -> None:
    """Print a table. `covey.sim.reports.number` formats the cells; columns with numbers are right-aligned. A
    table wider than the terminal is split into parts below each other, each with the first `names` columns.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
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
        table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for place in places:
            title_of = Text(columns[place], overflow="fold")
            table.add_column(title_of, justify="right" if numeric[place] else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(row[place]) for place in places))
        output.print(table)
        title = ""


def _parts(widths: Sequence[int], names: int, width: int) -> Iterator[list[int]]:
    """Split columns into parts that fit: the first `names`, which fold beyond half of the width, and at least
    one other."""
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


def console() -> Console:
    """As wide as the terminal; wide for a pipe."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_PIPE_WIDTH)


EVERY_S = 10.0
"""Between two lines of progress, where stderr is redirected."""


@contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """A callback `(step, share)`, with the completed share from 0 to 1, displayed during the block.
    Redirected, it prints a line at most every `EVERY_S` seconds."""
    with ExitStack() as stack:
        stderr: TextIO = sys.stderr
        with suppress(UnsupportedOperation):
            # A duplicate, since the start of Spark redirects stderr to a file.
            stderr = stack.enter_context(os.fdopen(os.dup(stderr.fileno()), "w", encoding="utf-8"))
        yield stack.enter_context(_bar(stderr)) if sys.stderr.isatty() else _lines(stderr)


def _lines(stderr: TextIO) -> Callable[[str, float], None]:
    last = monotonic()

    def line(step: str, share: float) -> None:
        nonlocal last
        if monotonic() - last >= EVERY_S:
            last = monotonic()
            print(f"{share:4.0%}  {step}", file=stderr, flush=True)

    return line


@contextmanager
def _bar(stderr: TextIO) -> Iterator[Callable[[str, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=stderr), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda step, share: bar.update(task, description=step, completed=share)


def compile_once() -> None:
    """Compile the kernels if they are not in the cache, with a progress bar."""
    from covey.matcher import compile_kernels, kernels_cached
    from covey.matcher.jit.kernel_loader import cache_lock

    if kernels_cached():
        return
    print("compiling the matching kernels, once; this takes about a minute", file=sys.stderr, flush=True)
    with progress() as on_progress, cache_lock(lambda: sleep(0.1)):
        compile_kernels(lambda done, total: on_progress("kernels", done / total))


def load_kernels() -> None:
    """Load the kernels before a measurement; compile them first if they are not in the cache."""
    from covey.matcher import compile_kernels

    compile_once()
    compile_kernels()

"""Progress on stderr: a bar on a terminal, else lines; and a line before kernels are compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import UnsupportedOperation
from time import monotonic, sleep
from typing import TextIO

EVERY_S = 10.0
"""Between two lines of progress where stderr is redirected."""


@contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """A callback for the current step and the completed share (0 to 1), displayed during the `with` block:
    where stderr is redirected, as a line at most every `EVERY_S` seconds, the first after as many.
    """
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
    """Load the kernels before a measurement starts; compile them first if they are not in the cache."""
    from covey.matcher import compile_kernels

    compile_once()
    compile_kernels()

"""Progress on stderr: a bar on a terminal, and a line before kernels are compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep


@contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """A callback for the current step and the completed share (0 to 1), displayed during the `with` block."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        yield lambda step, share: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    # A duplicate, since the start of Spark redirects stderr to a file.
    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as stderr,
        Progress(*columns, console=Console(file=stderr), transient=True) as bar,
    ):
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

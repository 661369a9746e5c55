"""What takes its time shows that it does, on stderr: a progress bar where a person looks on, and a line
before kernels are compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """What to tell of each phase, and how much of it is done, for as long as a `with` block lasts."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        yield lambda phase, share: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda phase, share: bar.update(task, description=phase, completed=share)


def named(say: Callable[[str, float], None], name: str) -> Callable[[str, float], None]:
    """The same to tell, with the name of what is under way before each phase."""
    return lambda phase, share: say(f"{name}: {phase}", share)


def compile_once() -> None:
    """Compile the kernels if they are not in the cache, and say so."""
    from covey.matcher import compile_kernels, kernels_cached

    if not kernels_cached():
        print("compiling the matcher's kernels (once; it takes a minute or two)", file=sys.stderr, flush=True)
        compile_kernels()

"""A progress bar for what takes its time, where a person looks on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """What to tell of each phase, and how much of it is done, for as long as a `with` block lasts."""
    from rich.console import Console
    from rich.progress import Progress

    if not sys.stderr.isatty():
        yield lambda phase, share: None
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda phase, share: progress.update(task, description=phase, completed=share)

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[str, float], None]
"""Called with the current step and the completed share of the whole, 0 to 1."""


def silent(step: str, share: float) -> None:
    """Shows nothing."""


def part(progress: Progress, start: float, stop: float) -> Progress:
    """`progress` for a part of the whole: its shares 0 to 1 become `start` to `stop`."""
    return lambda step, share: progress(step, start + (stop - start) * share)


def parts(progress: Progress, items: Sequence[T]) -> Iterator[tuple[Progress, T]]:
    """Each item with the progress of its equal share of the whole."""
    for at, item in enumerate(items):
        yield part(progress, at / len(items), (at + 1) / len(items)), item


def labelled(progress: Progress, label: str) -> Progress:
    return lambda step, share: progress(f"{label}: {step}", share)

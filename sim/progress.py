"""Progress of long work: a callback that receives the current step and the completed share of the whole."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with the current step and the completed share, 0 to 1."""


def silent(step: str, share: float) -> None:
    """Shows nothing."""


def part(progress: Progress, start: float, stop: float) -> Progress:
    """`progress` for a part of the whole: its shares 0 to 1 become `start` to `stop`."""
    return lambda step, share: progress(step, start + (stop - start) * share)


def labelled(progress: Progress, label: str) -> Progress:
    """`progress` with a label before each step."""
    return lambda step, share: progress(f"{label}: {step}", share)

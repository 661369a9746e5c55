"""Long work in steps. A generator yields after each how much it did, in *units* of about half a microsecond:
what placing a row takes. Work is counted rather than timed, so that equal calls do equal work.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

Steps = Generator[int, None, _Result]

STEP = 1024  # rows, or as much other work, in one step
_PER_ITEM = 4  # units that Python takes for one item


def finish(steps: Steps[_Result]) -> _Result:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def parts(start: int, stop: int, size: int = STEP) -> Iterator[tuple[int, int]]:
    """The range in parts of up to `size`."""
    return ((first, min(first + size, stop)) for first in range(start, stop, size))


def in_steps(items: Sequence[_Item]) -> Iterator[tuple[int, Sequence[_Item]]]:
    """(units, items) of the steps in which Python handles a sequence."""
    size = STEP // _PER_ITEM
    return ((_PER_ITEM * (stop - first), items[first:stop]) for first, stop in parts(0, len(items), size))

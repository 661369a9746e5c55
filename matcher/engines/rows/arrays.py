"""Arrays that grow, and runs of places in them that are taken and given back."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

SPARE = 128
"""Trimming an array leaves one part in this many as room."""
_Kind = TypeVar("_Kind", bound=np.generic)


class Runs:
    """Numbers in runs of equal length, allocated and freed many at a time."""

    def __init__(self) -> None:
        self.top = 0
        self._free: dict[int, list[Numbers]] = {}

    def allocate(self, count: int, length: int) -> Numbers:
        """The first numbers of `count` runs of `length` numbers."""
        stack, parts = self._free.get(length, []), []
        while stack and count:
            last = stack.pop()
            if len(last) > count:
                stack.append(last[count:])
                last = last[:count]
            parts.append(last)
            count -= len(last)
        if count:
            start, self.top = self.top, self.top + count * length
            parts.append(np.arange(start, self.top, length, dtype=np.int64))
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def free(self, firsts: Numbers, length: int) -> None:
        """Free runs of `length` numbers."""
        if length:
            self._free.setdefault(length, []).append(firsts)


def grown(old: npt.NDArray[_Kind], size: int, fill: int = 0) -> npt.NDArray[_Kind]:
    """A copy with `size` lines: new ones are filled, those over `size` cut off."""
    new = (np.empty if fill else np.zeros)((size, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old[:size]
    if fill:
        new[len(old) :] = fill
    return new

"""Narrow codes for the keys of a column, exact for the bounds that rows have.

An open end needs no cut: a test with only one bound has only one code.

The code of a key is the number of the column's *cuts* that are <= it, where the cuts are every lo and every
hi + 1; so `lo <= key <= hi` is `code(lo) <= code(key) <= code(hi + 1) - 1`. Where the cuts are integers close
together, all integers between the first and the last are cuts (*linear*): the code is a subtraction, and a
new bound among them needs no new code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.events.int64 import FIRST

_LINEAR = 65_000
_MANY = 4_096


@dataclass(frozen=True, slots=True)
class Coding:
    """How one column is coded: `count` cuts, from `base` on if linear, else `cuts`, ascending."""

    linear: bool
    base: int
    count: int
    cuts: Keys

    @property
    def width(self) -> int:
        """Bytes per code."""
        return 1 if self.count < 2**8 else 2 if self.count < 2**16 else 4

    def code(self, keys: Keys) -> npt.NDArray[np.int64]:
        """How many cuts are <= each key."""
        if self.linear:
            inside = np.clip(keys, self.base - 1, self.base + self.count - 1)
            return inside - self.base + 1
        if len(keys) < _MANY:
            return np.searchsorted(self.cuts, keys, side="right").astype(np.int64)
        order = np.argsort(
            keys
        )  # searched in order, many keys meet the cuts in the cache: five times as fast
        codes = np.empty(len(keys), dtype=np.int64)
        codes[order] = np.searchsorted(self.cuts, keys[order], side="right")
        return codes

    def codes(self, lows: Keys, highs: Keys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The codes of intervals, an empty one as (1, 0)."""
        empty = lows > highs
        return np.where(empty, 1, self.code(lows)), np.where(empty, 0, self.code(highs + 1) - 1)

    def has_cuts(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Which of these keys are cuts."""
        if self.linear:
            return (keys >= self.base) & (keys < self.base + self.count)
        if not len(self.cuts):
            return np.zeros(len(keys), dtype=np.bool_)
        found: npt.NDArray[np.bool_] = self.cuts[np.maximum(self.code(keys) - 1, 0)] == keys
        return found


def code_columns(columns: npt.NDArray[np.int64], lows: Keys, highs: Keys, tops: Keys) -> list[Coding | None]:
    """The coding of every column for these intervals, given test by test; None for a column without any.

    `tops[i]` is the key of the largest value of columns[i].
    """
    made: list[Coding | None] = [None] * (int(columns.max()) + 1 if len(columns) else 0)
    order = np.argsort(columns, kind="stable")
    ends = np.cumsum(np.bincount(columns, minlength=len(made)))
    for column in range(len(made)):
        at = order[ends[column - 1] if column else 0 : ends[column]]
        if len(at):
            low, high = lows[at], highs[at]
            bounded = (low <= high) & ((low > FIRST) | (low == high)), (low <= high) & (high < tops[at])
            made[column] = code_column(
                low[bounded[0]], high[bounded[1] | ((low == FIRST) & (low <= high))] + 1
            )
    return made


def code_column(starts: Keys, ends: Keys) -> Coding:
    """The coding of one column for intervals that start and end (with the first key beyond) at these cuts."""
    cuts = np.sort(
        np.concatenate([starts, ends])
    )  # np.unique hashes, and takes ten times as long with float keys
    if len(cuts):
        cuts = cuts[np.concatenate([[True], cuts[1:] != cuts[:-1]])]
        span = int(cuts[-1]) - int(cuts[0]) + 1  # as Python integers: it may exceed 64 bits
        if span <= _LINEAR:
            return Coding(True, int(cuts[0]), span, np.zeros(0, dtype=np.int64))
    return Coding(False, 0, len(cuts), cuts)

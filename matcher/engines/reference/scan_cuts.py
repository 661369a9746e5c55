"""The scan's narrow codes for the keys of a column, exact for the bounds of rows.

A test with one bound has one code: an open end needs no cut.

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
from covey.matcher.events.int64 import FIRST, MISSING

_LINEAR = 65_000
_MANY = 4_096


@dataclass(frozen=True, slots=True)
class ColumnCuts:
    """The cuts of a column: `count` of them, from `base` on if linear, else `cuts`, ascending."""

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
        order = np.argsort(keys)  # sorted keys find the cuts in the cache: five times as fast
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
        is_cut: npt.NDArray[np.bool_] = self.cuts[np.maximum(self.code(keys) - 1, 0)] == keys
        return is_cut


def cuts_of_columns(
    columns: npt.NDArray[np.int64], lows: Keys, highs: Keys, tops: Keys
) -> list[ColumnCuts | None]:
    """The cuts of every column for these intervals, given test by test; None for a column without any.

    `tops[i]` is the key of the largest value of columns[i].
    """
    by_column: list[ColumnCuts | None] = [None] * (int(columns.max()) + 1 if len(columns) else 0)
    order = np.argsort(columns, kind="stable")
    ends = np.cumsum(np.bincount(columns, minlength=len(by_column)))
    for column in range(len(by_column)):
        at = order[ends[column - 1] if column else 0 : ends[column]]
        if len(at):
            low, high = lows[at], highs[at]
            bounded = (low <= high) & ((low > FIRST) | (low == high)), (low <= high) & (high < tops[at])
            by_column[column] = cuts_of_column(
                low[bounded[0]], high[bounded[1] | ((low == FIRST) & (low <= high))] + 1
            )
    return by_column


def cuts_of_column(starts: Keys, ends: Keys) -> ColumnCuts:
    """The cuts of one column for intervals from keys in `starts` to keys before those in `ends`."""
    cuts = np.sort(
        np.concatenate([starts, ends])
    )  # np.unique hashes, and takes ten times as long with float keys
    if len(cuts):
        cuts = cuts[np.concatenate([[True], cuts[1:] != cuts[:-1]])]
        span = int(cuts[-1]) - int(cuts[0]) + 1  # as Python integers: it may exceed 64 bits
        if span <= _LINEAR and cuts[0] > MISSING:
            return ColumnCuts(True, int(cuts[0]), span, np.zeros(0, dtype=np.int64))
    return ColumnCuts(False, 0, len(cuts), cuts)

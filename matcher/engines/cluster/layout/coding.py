"""Cuts: where the codes of a column change. A column with few distinct bounds has a cut at each, and codes
decide everything; one with many has cuts at quantiles.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, NOTHING

_ROWS_PER_CUT = 16
_FEWEST = 256
_SORTED_PER_UNIT = 8


@dataclass(frozen=True, slots=True)
class Coding:
    """Lines of `arrays.CODE_FIELDS` per column, and the cuts that they point into."""

    lines: npt.NDArray[np.int64]
    cuts: Keys

    @classmethod
    def without_cuts(cls, tops: Keys) -> Coding:
        """One code for all keys; `tops` are the highest keys of the columns."""
        lines = np.zeros((len(tops), a.CODE_FIELDS), dtype=np.int64)
        lines[:, a.CODE_TOP] = tops
        return cls(lines, np.zeros(1, dtype=np.int64))

    @classmethod
    def of(cls, samples: Sequence[Keys], rows: int, tops: Keys) -> Generator[int, None, Coding]:
        """From samples of the bounds on each column, of `rows` rows in all; yields units of work."""
        lines = cls.without_cuts(tops).lines
        most = min(a.CUTS, max(_FEWEST, rows // _ROWS_PER_CUT))
        parts, size = [], 0
        for column, sample in enumerate(samples):
            yield len(sample) // _SORTED_PER_UNIT
            cuts = _cuts(sample, most)
            if len(cuts):
                linear = int(cuts[-1]) - int(cuts[0]) == len(cuts) - 1
                lines[column, : a.CODE_TOP] = size, len(cuts), linear
                parts.append(cuts)
                size += len(cuts)
        return cls(lines, np.concatenate(parts) if parts else np.zeros(1, dtype=np.int64))


def _cuts(bounds: Keys, most: int) -> Keys:
    ordered: Keys = np.sort(bounds[(bounds > FIRST) & (bounds != NOTHING) & (bounds != INFINITY_KEY)])
    if not len(ordered):
        return ordered
    distinct: Keys = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    first, last = int(distinct[0]), int(distinct[-1])
    if last - first < min(most, 4 * len(distinct)):
        return np.arange(first, last + 1, dtype=np.int64)
    if len(distinct) <= most:
        return distinct
    chosen = ordered[np.linspace(0, len(ordered) - 1, most).astype(np.int64)]
    cuts: Keys = np.unique(chosen)
    return cuts

"""The ranks of the strings of one attribute: labels in the order of the strings that bound a range.

    constants       "b"         "ba"        "c"
    labels           10          20          30          with gaps, for constants to come
    ranks     -S     10   11     20   21     30   31     of "a" "b" "b!" "ba" "bar" "c" "cat"

Invariant: a constant's rank is its label, any other string's is one above the label of the constant before
it, and labels are two apart at least; so `<` and `<=` between strings are those between ranks. A constant
that comes gets a label inside its gap; where a gap is full, all labels are chosen anew, and whoever keeps
bounds takes the new ones (`Relabelling`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding.buffers import string_buffers
from covey.matcher.encoding.encode_kernels import encode_ranks
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.strings import FEWEST_COLLECTED
from covey.matcher.events.int64 import FIRST, LAST

SPAN = 1 << 61
"""Labels lie between its negative and itself."""
_STRIDE = 1 << 32
"""How far from its predecessor a constant is put that follows it in the order of time, too."""


class Relabelling(NamedTuple):
    """The labels of constants, and those that replace them; both ascend."""

    old: Keys
    new: Keys

    def bounds(self, keys: Keys, *, lower: bool) -> Keys:
        """Bounds by the new labels; a low end is a label or one above, a high end a label or one below."""
        place = (
            np.searchsorted(self.old, keys, side="right") - 1 if lower else np.searchsorted(self.old, keys)
        )
        place = place.clip(0, len(self.old) - 1)
        return np.where((keys <= FIRST) | (keys >= LAST), keys, self.new[place] + (keys - self.old[place]))


class Ranks:
    """Constants in their order, with their labels."""

    def __init__(self, span: int | None = None) -> None:
        self._span = SPAN if span is None else span
        self._ends = np.zeros(1, dtype=np.int64)
        self._text = np.zeros(0, dtype=np.uint8)
        self._labels = np.zeros(0, dtype=np.int64)
        self._ranks = np.zeros(1, dtype=np.int64)
        """Of the strings before the first constant, of that, of those before the second ..."""
        self._newest = 0
        self.collect_at = FEWEST_COLLECTED
        """How many constants there are when those out of use are worth dropping."""
        self._set_labels(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def enter(self, texts: pa.StringArray) -> Relabelling | None:
        """Enter constants, none of them null; known ones have no effect. Cost: linear in all constants."""
        if len(texts) > 1:
            texts = texts.unique().sort()
        places = self._places(texts)
        unknown = places & 1 == 0
        if not unknown.any():
            return None
        texts, gaps = texts.filter(pa.array(unknown)), places[unknown] >> 1
        _, offsets, data = string_buffers(texts)
        lengths = np.diff(offsets).astype(np.int64)
        self._text = np.insert(self._text, np.repeat(self._ends[gaps], lengths), data[: offsets[-1]])
        self._ends = np.concatenate([[0], np.cumsum(np.insert(np.diff(self._ends), gaps, lengths))])
        labels = self._labels_within(gaps)
        if labels is not None:
            self._set_labels(np.insert(self._labels, gaps, labels))
            return None
        old = self._labels
        count = len(self._ends) - 1
        step = 2 * self._span // (count + 1)
        self._set_labels(np.arange(1, count + 1, dtype=np.int64) * step - self._span)
        return Relabelling(old, np.delete(self._labels, gaps + np.arange(len(gaps))))

    def _labels_within(self, gaps: Keys) -> Keys | None:
        """Labels for constants that go to these gaps, in ascending order; None where one is full."""
        ends = np.concatenate([[-self._span], self._labels, [self._span]])
        lows, highs = ends[gaps], ends[gaps + 1]
        if len(gaps) == 1:
            half = int(highs[0] - lows[0]) // 2
            near = min(half, _STRIDE) if self._newest in (int(lows[0]), int(highs[0])) else half
            self._newest = int(highs[0]) - near if self._newest == int(highs[0]) else int(lows[0]) + near
            return np.array([self._newest]) if near >= 2 else None
        _, first, counts = np.unique(gaps, return_index=True, return_counts=True)
        turn = np.arange(1, len(gaps) + 1) - np.repeat(first, counts)
        steps = (highs - lows) // (np.repeat(counts, counts) + 1)
        labels: Keys = lows + turn * steps
        return labels if steps.min() >= 2 else None

    def _set_labels(self, labels: Keys) -> None:
        self._labels = labels
        self._ranks = np.empty(2 * len(labels) + 1, dtype=np.int64)
        self._ranks[0] = -self._span
        self._ranks[1::2], self._ranks[2::2] = labels, labels + 1

    def labels(self, texts: pa.StringArray) -> Keys:
        """The labels of constants that were entered."""
        labels: Keys = self._ranks[self._places(texts)]
        return labels

    def describe(self, low: int, high: int) -> tuple[str, str]:
        """The ends of an interval of ranks, as words and strings; those of open ends mean nothing."""
        least = int(np.searchsorted(self._labels, low, side="right")) - 1
        most = min(int(np.searchsorted(self._labels, high)), len(self) - 1)
        return (
            f"{'at least' if low == self._labels[least] else 'above'} {self._constant(least)!r}",
            f"{'at most' if high == self._labels[most] else 'below'} {self._constant(most)!r}",
        )

    def _constant(self, place: int) -> str:
        return bytes(self._text[self._ends[place] : self._ends[place + 1]]).decode()

    def labels_of_bounds(self, lows: Keys, highs: Keys) -> Keys:
        """The labels that bounds are made of, open ends excepted; a low end is a label or one above, a high
        end a label or one below.
        """
        lows, highs = lows[(lows > FIRST) & (lows < LAST)], highs[(highs > FIRST) & (highs < LAST)]
        places = np.searchsorted(self._labels, lows, side="right") - 1, np.searchsorted(self._labels, highs)
        labels: Keys = np.unique(self._labels[np.concatenate(places).clip(0, max(len(self) - 1, 0))])
        return labels

    def keep(self, labels: Keys) -> None:
        """Drop all constants but those of these labels."""
        kept = np.isin(self._labels, labels)
        lengths = np.diff(self._ends)
        self._text = self._text[np.repeat(kept, lengths)]
        self._ends = np.concatenate([[0], np.cumsum(lengths[kept])])
        self._set_labels(self._labels[kept])
        self.collect_at = max(FEWEST_COLLECTED, 2 * len(self) + 1)

    def encode(self, column: pa.StringArray, number: int, keys: npt.NDArray[np.int64]) -> None:
        """Write the ranks of a batch's column into column `number` of the key matrix."""
        self._search(column, self._ranks, number, keys)

    def _places(self, texts: pa.StringArray) -> Keys:
        """2i + 1 for the i-th constant, 2i for strings between it and its predecessor."""
        places = np.empty((len(texts), 1), dtype=np.int64)
        self._search(texts, np.arange(len(self._ranks), dtype=np.int64), 0, places)
        return places[:, 0]

    def _search(self, column: pa.StringArray, ranks: Keys, number: int, keys: npt.NDArray[np.int64]) -> None:
        valid, offsets, data = string_buffers(column)
        encode_ranks(offsets, data, valid, column.offset, number, self._ends, self._text, ranks, keys)

    def memory_bytes(self) -> int:
        return self._ends.nbytes + self._text.nbytes + self._labels.nbytes + self._ranks.nbytes

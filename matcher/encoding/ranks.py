"""The ranks of one attribute's strings: labels in the order of the strings that bound a range.

    constants       "b"         "ba"        "c"
    labels           10          20          30          with gaps, for constants to come
    ranks     -S     10   11     20   21     30   31     of "a" "b" "b!" "ba" "bar" "c" "cat"

Invariant: a constant's rank is its label, another string's is one above the label of the constant before it,
and labels are at least two apart; so `<` and `<=` between strings hold between ranks. A new constant gets a
label inside its gap; if the gap is full, all labels are chosen anew, and callers must convert their bounds
(`Relabelling`).

Constants lie in two runs, each in order: insertion is cheap in the run of recent ones, which is small and
merged into the other from time to time. A string's rank is the higher of its ranks in the two."""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding.encode_kernels import encode_ranks
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.strings import FEWEST_COLLECTED, string_buffers
from covey.matcher.events.int64 import FIRST, LAST

SPAN = 1 << 61  # labels lie between -SPAN and SPAN
_STRIDE = 1 << 32
"""The distance from the predecessor of a constant that also follows it in the order of time."""
_FEWEST = 64  # recent constants may be so many; or four times the root of all, if that is more


class Relabelling(NamedTuple):
    """The labels of constants, and their replacements; both ascend."""

    old: Keys
    new: Keys

    def bounds(self, keys: Keys, *, lower: bool) -> Keys:
        """Bounds by the new labels; a low end is a label or one above, a high end a label or one below."""
        place = (
            np.searchsorted(self.old, keys, side="right") - 1 if lower else np.searchsorted(self.old, keys)
        )
        place = place.clip(0, len(self.old) - 1)
        return np.where((keys <= FIRST) | (keys >= LAST), keys, self.new[place] + (keys - self.old[place]))


class _Run:
    def __init__(self, span: int) -> None:
        self._span = span
        self.clear()

    def clear(self) -> None:
        self.ends = np.zeros(1, dtype=np.int64)
        self.text = np.zeros(0, dtype=np.uint8)
        self.set_labels(np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def set_labels(self, labels: Keys) -> None:
        self.labels = labels
        self.ranks = np.empty(2 * len(labels) + 1, dtype=np.int64)
        """Of the strings before the first constant, of that constant, of the strings before the second ..."""
        self.ranks[0] = -self._span
        self.ranks[1::2], self.ranks[2::2] = labels, labels + 1

    def insert(self, gaps: Keys, text: npt.NDArray[np.uint8], lengths: Keys, labels: Keys) -> None:
        """Insert constants, in ascending order, before the constants at places `gaps`."""
        if len(gaps) == 1:  # np.insert takes 30 us
            gap, ends = int(gaps[0]), self.ends
            self.text = np.concatenate([self.text[: ends[gap]], text, self.text[ends[gap] :]])
            self.ends = np.concatenate([ends[: gap + 1], ends[gap:] + lengths])
            self.set_labels(np.concatenate([self.labels[:gap], labels, self.labels[gap:]]))
            return
        self.text = np.insert(self.text, np.repeat(self.ends[gaps], lengths), text)
        self.ends = np.concatenate([[0], np.cumsum(np.insert(np.diff(self.ends), gaps, lengths))])
        self.set_labels(np.insert(self.labels, gaps, labels))

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        lengths = np.diff(self.ends)
        self.text = self.text[np.repeat(kept, lengths)]
        self.ends = np.concatenate([[0], np.cumsum(lengths[kept])])
        self.set_labels(self.labels[kept])

    def places(self, texts: pa.StringArray) -> Keys:
        """2i + 1 for the i-th constant, 2i for strings between it and its predecessor."""
        ranks = np.empty((len(texts), 1), dtype=np.int64)
        self.encode(texts, 0, ranks)
        return np.searchsorted(self.ranks, ranks[:, 0])

    def limits(self, places: Keys) -> tuple[Keys, Keys]:
        """The labels before and after strings at these places that are no constants."""
        lows = np.where(places == 0, -self._span, self.ranks[places] - 1)
        above = np.minimum(places + 1, len(self.ranks) - 1)
        return lows, np.where(above == places, self._span, self.ranks[above])

    def encode(self, column: pa.StringArray, number: int, keys: npt.NDArray[np.int64]) -> None:
        valid, offsets, data = string_buffers(column)
        encode_ranks(offsets, data, valid, column.offset, number, self.ends, self.text, self.ranks, keys)

    def constant(self, place: int) -> str:
        return bytes(self.text[self.ends[place] : self.ends[place + 1]]).decode()

    def memory_bytes(self) -> int:
        return self.ends.nbytes + self.text.nbytes + self.labels.nbytes + self.ranks.nbytes


class Ranks:
    def __init__(self, span: int | None = None) -> None:
        self._span = SPAN if span is None else span
        self._most, self._recent = _Run(self._span), _Run(self._span)
        self._newest = 0
        self.collect_at = FEWEST_COLLECTED  # constants from which on unused ones are worth dropping

    def __len__(self) -> int:
        return len(self._most) + len(self._recent)

    def enter(self, texts: pa.StringArray) -> Relabelling | None:
        """Enter constants without nulls; known ones have no effect. One costs about the root of their number,
        on average; many are linear in all."""
        if len(texts) > 1:
            texts = texts.unique().sort()
        if len(self._recent) + len(texts) > max(_FEWEST, 4 * isqrt(len(self._most))):
            self._join()
            run = self._most
        else:
            run = self._recent
        places, others = self._most.places(texts), self._recent.places(texts)
        unknown = (places | others) & 1 == 0
        if not unknown.any():
            return None
        texts, places, others = texts.filter(pa.array(unknown)), places[unknown], others[unknown]
        _, offsets, data = string_buffers(texts)
        text, lengths = data[: offsets[-1]], np.diff(offsets).astype(np.int64)
        (low, high), (other_low, other_high) = self._most.limits(places), self._recent.limits(others)
        labels = self._labels_within(np.maximum(low, other_low), np.minimum(high, other_high))
        if labels is not None:
            run.insert((places if run is self._most else others) >> 1, text, lengths, labels)
            return None
        run = self._join()
        gaps = run.places(texts) >> 1
        old = run.labels
        count = len(old) + len(gaps)
        step = 2 * self._span // (count + 1)
        run.insert(gaps, text, lengths, np.zeros(len(gaps), dtype=np.int64))
        run.set_labels(np.arange(1, count + 1, dtype=np.int64) * step - self._span)
        return Relabelling(old, np.delete(run.labels, gaps + np.arange(len(gaps))))

    def _join(self) -> _Run:
        most, recent = self._most, self._recent
        if len(recent):
            gaps = np.searchsorted(most.labels, recent.labels)
            most.insert(gaps, recent.text, np.diff(recent.ends), recent.labels)
            recent.clear()
        return most

    def _labels_within(self, lows: Keys, highs: Keys) -> Keys | None:
        """Labels for constants in ascending order between these; None if a gap is full."""
        if len(lows) == 1:
            half = int(highs[0] - lows[0]) // 2
            near = min(half, _STRIDE) if self._newest in (int(lows[0]), int(highs[0])) else half
            self._newest = int(highs[0]) - near if self._newest == int(highs[0]) else int(lows[0]) + near
            return np.array([self._newest]) if near >= 2 else None
        _, first, counts = np.unique(lows, return_index=True, return_counts=True)
        turn = np.arange(1, len(lows) + 1) - np.repeat(first, counts)
        steps = (highs - lows) // (np.repeat(counts, counts) + 1)
        labels: Keys = lows + turn * steps
        return labels if steps.min() >= 2 else None

    def labels(self, texts: pa.StringArray) -> Keys:
        keys = np.empty((len(texts), 1), dtype=np.int64)
        self.encode(texts, 0, keys)
        return keys[:, 0]

    def describe(self, low: int, high: int) -> tuple[str, str]:
        """The ends of an interval of ranks, in words; meaningless for an open end."""
        run = self._join()
        least = int(np.searchsorted(run.labels, low, side="right")) - 1
        most = min(int(np.searchsorted(run.labels, high)), len(run) - 1)
        return (
            f"{'at least' if low == run.labels[least] else 'above'} {run.constant(least)!r}",
            f"{'at most' if high == run.labels[most] else 'below'} {run.constant(most)!r}",
        )

    def labels_of_bounds(self, lows: Keys, highs: Keys) -> Keys:
        """The labels in bounds, open ends excepted; a low end is a label or one above, a high end a label or
        one below."""
        known = self._join().labels
        lows, highs = lows[(lows > FIRST) & (lows < LAST)], highs[(highs > FIRST) & (highs < LAST)]
        places = np.searchsorted(known, lows, side="right") - 1, np.searchsorted(known, highs)
        labels: Keys = np.unique(known[np.concatenate(places).clip(0, max(len(known) - 1, 0))])
        return labels

    def keep(self, labels: Keys) -> None:
        """Drop all constants without one of these labels."""
        run = self._join()
        run.keep(np.isin(run.labels, labels))
        self.collect_at = max(FEWEST_COLLECTED, 2 * len(self) + 1)

    def encode(self, column: pa.StringArray, number: int, keys: npt.NDArray[np.int64]) -> None:
        self._most.encode(column, number, keys)
        if len(self._recent):
            recent = np.empty((len(column), 1), dtype=np.int64)
            self._recent.encode(column, 0, recent)
            np.maximum(keys[:, number], recent[:, 0], out=keys[:, number])

    def memory_bytes(self) -> int:
        return self._most.memory_bytes() + self._recent.memory_bytes()

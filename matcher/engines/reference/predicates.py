"""The predicate table: predicates that subscriptions share, counted, indexed and found by events (Fabret et
al. 2001, 2).

Phase one of the two-phase algorithms. Invariants: equal predicates share a number while one is in use; number
0 is the predicate that always holds; predicates are sorted before a match, once enough have changed. The
layout is drawn in `predicate_kernels.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.reference import predicate_kernels as k
from covey.matcher.engines.rows.arrays import grown
from covey.matcher.events.int64 import FIRST, LAST, MISSING

PredicateNumbers = npt.NDArray[np.int32]

_SMALLEST = 64
_FEW_YOUNG = 1024


class PredicateTable:
    """Distinct predicates over the columns of one engine."""

    def __init__(self, schema: SchemaColumns) -> None:
        tops = schema.tops()
        state = np.zeros(k.STATE, dtype=np.int64)
        state[k.FREE_HEAD], state[k.TOP] = -1, 1
        self.arrays = k.Predicates(
            state=state,
            tops=tops,
            columns=np.full(_SMALLEST, k.FREE, dtype=np.int32),
            bounds=np.zeros((_SMALLEST, 2), dtype=np.int64),
            users=np.zeros(_SMALLEST, dtype=np.int32),
            hashed=np.full(_SMALLEST, k.FREE, dtype=np.int32),
            young=np.zeros(_SMALLEST, dtype=np.int32),
            points=np.zeros(len(tops), dtype=np.int64),
            segments=np.zeros((len(tops), k.SORTED_CLASSES, 2), dtype=np.int64),
            ordered=np.zeros(0, dtype=np.int32),
            edges=np.zeros(0, dtype=np.int64),
            highs=np.zeros(0, dtype=np.int64),
            near=np.zeros(1, dtype=np.int64),
            far=np.zeros(1, dtype=np.int64),
        )
        self.arrays.bounds[k.TRUE] = (MISSING, LAST)
        self.arrays.users[k.TRUE] = 1

    @property
    def capacity(self) -> int:
        """One more than the highest number a predicate may have before the table grows."""
        return len(self.arrays.columns)

    @property
    def top(self) -> int:
        """One more than the highest number ever given out."""
        return int(self.arrays.state[k.TOP])

    def acquire(self, columns: Keys, lows: Keys, highs: Keys) -> PredicateNumbers:
        """The numbers [t, i] of `lows[t, i] <= columns[t] <= highs[t, i]`, each with one user more."""
        if len(columns) and int(columns.max()) >= len(self.arrays.tops):
            self._widen(int(columns.max()) + 1)
        out = np.empty(lows.shape, dtype=np.int32)
        done = 0
        while True:
            done = k.acquire_predicates(self.arrays, columns, lows, highs, done, out)
            if done == lows.shape[1]:
                return out
            self._make_room(len(columns))

    def release(self, numbers: PredicateNumbers) -> None:
        """One user less for each of these numbers."""
        k.release_predicates(self.arrays, np.ascontiguousarray(numbers).reshape(-1))

    def sort(self) -> None:
        """Sort young predicates in, and dead ones out, where there are many of them."""
        young, dead = int(self.arrays.state[k.YOUNG]), int(self.arrays.state[k.DEAD])
        sorted_ones = len(self.arrays.ordered)
        if young > max(_FEW_YOUNG, sorted_ones >> 8) or (
            dead > _FEW_YOUNG and 2 * dead > sorted_ones + young
        ):
            self._sort()

    def buffers(self) -> tuple[PredicateNumbers, PredicateNumbers]:
        """Room for the predicates that one event satisfies: single ones, and ranges in the order."""
        a = self.arrays
        return (
            np.empty(len(a.points) + int(a.state[k.YOUNG]) + 1, dtype=np.int32),
            np.empty((len(a.ordered) + 1, 2), dtype=np.int32),
        )

    def memory_bytes(self) -> dict[str, int]:
        a = self.arrays
        ordering = (a.young, a.segments, a.ordered, a.edges, a.highs, a.near, a.far)
        return {
            "predicates": a.columns.nbytes + a.bounds.nbytes + a.users.nbytes,
            "predicate hash": a.hashed.nbytes,
            "predicate order": sum(part.nbytes for part in ordering),
        }

    def __len__(self) -> int:
        a, top = self.arrays, self.top
        return int(np.count_nonzero((a.users[1:top] > 0) & (a.columns[1:top] >= 0)))

    def widen(self, schema: SchemaColumns) -> None:
        """Take predicates over the columns of a widened schema."""
        tops = schema.tops()
        if len(tops) > len(self.arrays.tops):
            self._widen(len(tops))
        self.arrays.tops[: len(tops)] = tops

    # --- room and order ---------------------------------------------------------------------------

    def _widen(self, columns: int) -> None:
        """Derived columns have keys 0 and 1."""
        old = self.arrays
        tops = np.full(columns, LAST, dtype=np.int64)
        points = np.zeros(columns, dtype=np.int64)
        segments = np.zeros((columns, k.SORTED_CLASSES, 2), dtype=np.int64)
        tops[: len(old.tops)], points[: len(old.points)] = old.tops, old.points
        segments[: len(old.segments)] = old.segments
        self.arrays = old._replace(tops=tops, points=points, segments=segments)

    def _make_room(self, tests: int) -> None:
        a = self.arrays
        if a.state[k.TOP] + tests > len(a.columns):
            size = 2 * len(a.columns) + tests
            self.arrays = a = a._replace(
                columns=grown(a.columns, size, -1),
                bounds=grown(a.bounds, size),
                users=grown(a.users, size),
            )
        if a.state[k.YOUNG] + tests > len(a.young) and 2 * a.state[k.DEAD] > len(a.young) > _FEW_YOUNG:
            self._sort()
            a = self.arrays
        if a.state[k.YOUNG] + tests > len(a.young):
            self.arrays = a = a._replace(young=grown(a.young, 2 * len(a.young) + tests))
        if 2 * (a.state[k.INDEX_USED] + tests) > len(a.hashed):
            index = np.full(1 << (3 * (len(self) + tests) + _SMALLEST).bit_length(), k.FREE, dtype=np.int32)
            a.state[k.INDEX_USED] = k.rehash_predicates(a, index)
            self.arrays = a._replace(hashed=index)

    def _sort(self) -> None:
        a = self.arrays
        young = a.young[: a.state[k.YOUNG]]
        alive, young_alive = a.users[a.ordered] > 0, a.users[young] > 0
        k.free_predicates(a, np.concatenate([a.ordered[~alive], young[~young_alive]]))
        young = young[young_alive]
        kinds = self._segment(young)
        segments = np.zeros_like(a.segments)
        pieces, end = [np.zeros(0, dtype=np.int32)], 0
        for column in range(len(a.tops)):
            for kind in range(k.SORTED_CLASSES):
                first, last = a.segments[column, kind]
                piece = a.ordered[first:last][alive[first:last]]
                fresh = young[kinds == column * k.SORTED_CLASSES + kind]
                if len(fresh):  # what is sorted already costs next to nothing to sort again
                    piece = np.concatenate([piece, fresh])
                    piece = piece[np.argsort(a.bounds[piece, 1 if kind == 0 else 0], kind="stable")]
                segments[column, kind] = end, end + len(piece)
                end += len(piece)
                pieces.append(piece)
        ordered = np.concatenate(pieces)
        below = np.zeros(end, dtype=np.int64)
        for first, last in segments[:, 0]:
            below[first:last] = 1
        highs = a.bounds[ordered, 1]
        a.state[k.YOUNG] = a.state[k.DEAD] = 0
        self.arrays = a._replace(
            young=np.zeros(max(_SMALLEST, 2 * _FEW_YOUNG, end >> 6), dtype=np.int32),
            segments=segments,
            ordered=ordered,
            edges=np.where(below == 1, highs, a.bounds[ordered, 0]),
            highs=highs,
            near=_zones(highs, k.NEAR),
            far=_zones(highs, k.FAR),
        )

    def _segment(self, numbers: PredicateNumbers) -> Keys:
        """The segment that each predicate, which is none of the classes POINT and EMPTY, belongs in."""
        a = self.arrays
        columns = a.columns[numbers]
        kinds = np.where(
            a.bounds[numbers, 0] == FIRST, 0, np.where(a.bounds[numbers, 1] == a.tops[columns], 1, 2)
        )
        return columns.astype(np.int64) * k.SORTED_CLASSES + kinds


def _zones(highs: Keys, bits: int) -> Keys:
    """The largest of every 2**bits values."""
    padded = np.full(((len(highs) >> bits) + 1) << bits, MISSING, dtype=np.int64)
    padded[: len(highs)] = highs
    zones: Keys = padded.reshape(-1, 1 << bits).max(axis=1)
    return zones

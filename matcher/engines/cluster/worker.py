"""What the cluster engine needs for matching besides its store: buffers, and memory for answers."""

from __future__ import annotations

from sys import getrefcount

import numpy as np

from covey.matcher.engines.cluster import arrays as a
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster.leaves.leaves import empty_leaves, leaf_buffers
from covey.matcher.engines.cluster.search_kernels import STEP
from covey.matcher.engines.rows.store import Numbers

_UNSHARED = 2
"""References to an array that its attribute alone refers to, as `getrefcount` counts them."""


class Worker:
    """What one thread needs to match; `room` is how many ids it makes room for.

    The memory of an answer is used again once the caller has let go of it: fresh memory costs more than what
    is written into it.
    """

    def __init__(self) -> None:
        words = np.zeros((a.MOST + STEP) // 8, dtype=np.uint64)
        self.buffers = m.Buffers(
            np.zeros((a.ACCESS, m.PROBE_FIELDS), dtype=np.int64),
            np.zeros((1, m.QUEUE_FIELDS), dtype=np.int64),
            words.view(np.uint8),
            words,
            np.zeros(a.MOST + 8, dtype=np.int32),
            np.zeros(m.SPAN_FIELDS, dtype=np.int64),
            leaf_buffers(empty_leaves((), np.zeros((0, a.CODE_FIELDS), dtype=np.int64), 0)),
        )
        self.seen = np.zeros(1, dtype=np.int64)
        self.room = 1024
        self._answer: Numbers = np.empty(0, dtype=np.int64)

    def answer(self) -> Numbers:
        """Memory for an answer of `room` ids, that no other answer is in."""
        fits = 3 * self.room <= 4 * len(self._answer) <= 16 * self.room
        if not fits or getrefcount(self._answer) > _UNSHARED:
            self._answer = np.empty(self.room, dtype=np.int64)
        return self._answer

    def enlarge(self, used: int) -> Numbers:
        """The memory of the answer in the making, twice as large, with so much of it kept."""
        larger = np.empty(2 * len(self._answer), dtype=np.int64)
        larger[:used] = self._answer[:used]
        self._answer = larger
        return larger

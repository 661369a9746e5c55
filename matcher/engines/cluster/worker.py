"""The working memory of a matching thread: buffers, and memory for answers."""

from __future__ import annotations

from sys import getrefcount

import numpy as np

from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster.buckets.search_kernels import STEP
from covey.matcher.engines.cluster.buckets.zone_kernels import SPAN_FIELDS
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.leaf_arrays import Leaves
from covey.matcher.engines.cluster.leaves.leaves import leaf_buffers, leaf_matches
from covey.matcher.engines.cluster.probe_kernels import PROBE_FIELDS, QUEUE_FIELDS
from covey.matcher.engines.rows.arrays import Numbers, grown

_AHEAD, _MOST_PROBES = 16, 4096
"""Events that look up their buckets at once, and the most look-ups of these."""
_UNSHARED = 2
"""References to an array that its attribute alone refers to, as `getrefcount` counts them."""


class Worker:
    """What one thread needs to match; `room` is how many ids it makes room for.

    The memory of an answer is reused once the caller has dropped it: fresh memory costs more than the writes.
    """

    def __init__(self) -> None:
        words = np.zeros((a.MOST + STEP) // 8, dtype=np.uint64)
        self.buffers = m.Buffers(
            np.zeros((a.ACCESS, PROBE_FIELDS), dtype=np.int64),
            np.zeros((1, QUEUE_FIELDS), dtype=np.int64),
            words.view(np.uint8),
            words,
            np.zeros(a.MOST + 8, dtype=np.int32),
            np.zeros(SPAN_FIELDS, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            leaf_matches(0),
        )
        self.leaf = leaf_buffers(0, 0)
        self.ahead = self.probes = 0
        self.fitted: Leaves | None = None
        """The leaves that there is room for."""
        self.room = 1024
        self._answer: Numbers = np.empty(0, dtype=np.int64)

    def fit(self, probes: int, leaves: Leaves) -> None:
        """Make room for events that search so many buckets, and these leaves; `ahead` becomes how many events
        may look up their buckets at once.
        """
        self.ahead = max(1, min(_AHEAD, _MOST_PROBES // max(probes, 1)))
        if len(self.buffers.queue) < self.ahead * probes:
            queue = np.zeros((self.ahead * probes, QUEUE_FIELDS), dtype=np.int64)
            self.buffers = self.buffers._replace(queue=queue)
        lines, columns = len(leaves.lines), len(leaves.columns)
        if len(self.leaf.listed) <= lines or self.leaf.lines.shape[1] < columns:
            lines, columns = max(lines, len(self.leaf.listed)), max(columns, self.leaf.lines.shape[1])
            self.leaf = leaf_buffers(lines, columns)
        self.probes, self.fitted = probes, leaves

    def fit_matches(self, room: int) -> None:
        """Make room for so many matches of a slice of events in leaves; those there are kept."""
        if len(self.leaf.ids) < room:
            leaf = self.leaf
            self.leaf = leaf._replace(
                events=grown(leaf.events, room), rows=grown(leaf.rows, room), ids=grown(leaf.ids, room)
            )
            self.buffers = self.buffers._replace(leaf=leaf_matches(room))

    def fit_seen(self, rows: int) -> None:
        """Make room to note the subscriptions seen, by first row."""
        if len(self.buffers.seen) <= rows:
            self.buffers = self.buffers._replace(seen=np.zeros(rows + 1, dtype=np.int64))

    def answer(self) -> Numbers:
        """Memory for an answer of `room` ids, shared with no other answer."""
        fits = 3 * self.room <= 4 * len(self._answer) <= 16 * self.room
        if not fits or getrefcount(self._answer) > _UNSHARED:
            self._answer = np.empty(self.room, dtype=np.int64)
        return self._answer

    def enlarge(self, used: int) -> Numbers:
        """The memory of the current answer, twice as large, with the first `used` ids kept."""
        larger = np.empty(2 * len(self._answer), dtype=np.int64)
        larger[:used] = self._answer[:used]
        self._answer = larger
        return larger

"""The working memory of a matching thread: buffers, and memory for answers.

A few events have a search of their own, valid while no row changes, in which all is prepared that depends on
no event: an event that comes alone finds cold caches, and costs what code and memory it touches.
"""

from __future__ import annotations

from sys import getrefcount

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.buckets.search_kernels import STEP
from covey.matcher.engines.cluster.buckets.zone_kernels import SPAN_FIELDS
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.arrays import LEAF_ROWS, Leaves
from covey.matcher.engines.cluster.leaves.search_kernels import IDS, INTERFACES
from covey.matcher.engines.cluster.match_kernels import PROBE_FIELDS, QUEUE_FIELDS
from covey.matcher.engines.cluster.room import leaf_buffers, leaf_matches
from covey.matcher.engines.rows.arrays import Numbers, grown
from covey.matcher.engines.rows.store import ALL
from covey.matcher.jit.kernel import entry_point

_AHEAD, _MOST_PROBES = 16, 4096  # events that look up their buckets at once, and the most look-ups of these
_UNSHARED = 2  # `getrefcount` of an array to which one attribute alone refers


class Worker:
    """What one thread needs to match; answers have room for `room` ids. The memory of an answer is reused
    once the caller has dropped it: fresh memory costs more than the writes.
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
        self.fitted: Leaves | None = None  # that there is room for
        self.room = 1024
        self._answer: Numbers = np.empty(0, dtype=np.int64)

    def fit(self, probes: int, leaves: Leaves) -> None:
        """Make room for events of `probes` buckets, and for leaves; `ahead` events may look up at once."""
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
        """Make room for matches of a slice of events in leaves; matches are kept."""
        if len(self.leaf.ids) < room:
            leaf = self.leaf
            self.leaf = leaf._replace(
                events=grown(leaf.events, room), rows=grown(leaf.rows, room), ids=grown(leaf.ids, room)
            )
            self.buffers = self.buffers._replace(leaf=leaf_matches(room))

    def fit_seen(self, rows: int) -> None:
        """Make room for the subscriptions seen, by first row."""
        if len(self.buffers.seen) <= rows:
            self.buffers = self.buffers._replace(seen=np.zeros(rows + 1, dtype=np.int64))

    def answer(self) -> Numbers:
        """Memory for `room` ids that no other answer shares."""
        fits = 3 * self.room <= 4 * len(self._answer) <= 16 * self.room
        if not fits or getrefcount(self._answer) > _UNSHARED:
            self._answer = np.empty(self.room, dtype=np.int64)
        return self._answer

    def enlarge(self, used: int) -> Numbers:
        """The memory of the current answer, twice as large, with the first `used` ids."""
        larger = np.empty(2 * len(self._answer), dtype=np.int64)
        larger[:used] = self._answer[:used]
        self._answer = larger
        return larger


MOST_FEW = 16
_ROOM = 512
_NO_IDS = np.zeros(0, dtype=np.int64)
_NO_BITS = np.zeros((0, 1), dtype=np.uint64)

_Memory = tuple[npt.NDArray[np.uint16], Numbers, Numbers]  # codes, what is left to find per event, offsets


class FewSearch:
    """Searches for up to `MOST_FEW` events with keys of `width` columns, with the memory of a worker."""

    __slots__ = (
        "_ahead",
        "_code_events",
        "_columns",
        "_match_events",
        "_memory",
        "_out",
        "_worker",
        "shared",
        "width",
    )

    def __init__(self, columns: int, width: int, worker: Worker, *, shared: bool, lookahead: int) -> None:
        self._code_events, self._match_events = entry_point(m.code_events), entry_point(m.match_events)
        self._columns = columns
        self.width = width
        self.shared = shared
        self._worker = worker
        self._ahead = worker.ahead * lookahead
        self._memory: dict[int, _Memory] = {}
        self._out = np.zeros(_ROOM, dtype=np.int64)

    @classmethod
    def of(
        cls, arrangement: Arrangement, worker: Worker, keys: Keys, *, shared: bool, lookahead: int
    ) -> FewSearch | None:
        """A search for such events; None where rows lie in leaves, which it does not search."""
        columns, arrays = arrangement.codes(keys).shape[1], arrangement.arrays
        if arrays.leaves.state[LEAF_ROWS] or columns > keys.shape[1]:
            return None
        worker.fit(arrangement.probes, arrays.leaves)
        if shared:
            worker.fit_seen(len(arrays.ids))
        return cls(columns, keys.shape[1], worker, shared=shared, lookahead=lookahead)

    def ids(self, arrays: a.StoreArrays, keys: Keys) -> tuple[Numbers, Numbers] | None:
        """As `RowStore.ids`; None where the ids are too many."""
        offsets = self._search(arrays, keys, IDS, ALL, self.shared, self._out, _NO_BITS)
        return None if offsets is None else (offsets.copy(), self._out[: offsets[-1]].copy())

    def set_interfaces(
        self, arrays: a.StoreArrays, keys: Keys, bits: npt.NDArray[np.uint64], in_use: int
    ) -> None:
        """As `RowStore.set_interfaces`."""
        self._search(arrays, keys, INTERFACES, in_use, False, _NO_IDS, bits)

    def _search(
        self,
        arrays: a.StoreArrays,
        keys: Keys,
        product: int,
        most: int,
        shared: bool,
        out: Numbers,
        bits: npt.NDArray[np.uint64],
    ) -> Numbers | None:
        """The offsets of ids, valid until the next search; None where `out` is too short."""
        events = len(keys)
        memory = self._memory.get(events)
        if memory is None:
            codes = np.zeros((events, self._columns), dtype=np.uint16)
            left, offsets = np.zeros(events, dtype=np.int64), np.zeros(events + 1, dtype=np.int64)
            memory = self._memory[events] = codes, left, offsets
        codes, left, offsets = memory
        self._code_events(arrays.coding, arrays.cuts, keys, codes)
        left.fill(most)
        searched = self._match_events(
            arrays, keys, codes, 0, events, product, most, self._ahead, shared, self._worker.buffers,
            left, offsets, out, bits,
        )  # fmt: skip
        return offsets if searched == events else None

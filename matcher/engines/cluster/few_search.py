"""The search for a few events, with everything prepared that depends on no event.

It stands beside `ClusterStore._search`, since an event that comes alone finds cold caches: how much code and
memory it touches then decides what it costs. Invariant: it serves while no row changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.leaf_arrays import LEAF_ROWS
from covey.matcher.engines.cluster.leaves.search_kernels import IDS, INTERFACES
from covey.matcher.engines.cluster.worker import Worker
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.store import ALL
from covey.matcher.jit.kernel import entry_point

MOST_FEW = 16
_ROOM = 512
_NO_IDS = np.zeros(0, dtype=np.int64)
_NO_BITS = np.zeros((0, 1), dtype=np.uint64)

_Memory = tuple[npt.NDArray[np.uint16], Numbers, Numbers]
"""For codes, for what is left of the search of each event, and for offsets."""


class FewSearch:
    """Searches for up to `MOST_FEW` events with keys of `width` columns, with the memory of a worker and some
    of its own.
    """

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

    def __init__(self, columns: int, width: int, worker: Worker, *, shared: bool, lookahead: bool) -> None:
        self._code_events, self._match_events = entry_point(m.code_events), entry_point(m.match_events)
        self._columns = columns
        self.width = width
        self.shared = shared
        self._worker = worker
        self._ahead = worker.ahead if lookahead else 0
        self._memory: dict[int, _Memory] = {}
        self._out = np.zeros(_ROOM, dtype=np.int64)

    @classmethod
    def of(
        cls, arrangement: Arrangement, worker: Worker, keys: Keys, *, shared: bool, lookahead: bool
    ) -> FewSearch | None:
        """A search for events with such keys; None where rows lie in leaves, which are searched before."""
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

"""The search for one event, with everything prepared that depends on no event.

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

_ROOM = 256
_NO_IDS = np.zeros(0, dtype=np.int64)
_NO_BITS = np.zeros((0, 1), dtype=np.uint64)


class EventSearch:
    """Searches for events with keys of `width` columns, with the memory of a worker and some of its own."""

    __slots__ = (
        "_ahead",
        "_code_events",
        "_codes",
        "_left",
        "_match_events",
        "_offsets",
        "_out",
        "_shared",
        "_worker",
        "width",
    )

    def __init__(
        self, codes: npt.NDArray[np.uint16], width: int, worker: Worker, *, shared: bool, lookahead: bool
    ) -> None:
        self._code_events, self._match_events = entry_point(m.code_events), entry_point(m.match_events)
        self._codes = codes
        self.width = width
        self._worker = worker
        self._shared = shared
        self._ahead = worker.ahead if lookahead else 0
        self._left = np.zeros(1, dtype=np.int64)
        self._offsets = np.zeros(2, dtype=np.int64)
        self._out = np.zeros(_ROOM, dtype=np.int64)

    @classmethod
    def of(
        cls, arrangement: Arrangement, worker: Worker, keys: Keys, *, shared: bool, lookahead: bool
    ) -> EventSearch | None:
        """A search for events with such keys; None where rows lie in leaves: those are for many events at a
        time.
        """
        codes, arrays = arrangement.codes(keys), arrangement.arrays
        if arrays.leaves.state[LEAF_ROWS] or codes.shape[1] > keys.shape[1]:
            return None
        worker.fit(arrangement.probes, arrays.leaves)
        if shared:
            worker.fit_seen(len(arrays.ids))
        return cls(codes, keys.shape[1], worker, shared=shared, lookahead=lookahead)

    def ids(self, arrays: a.StoreArrays, keys: Keys) -> Numbers | None:
        """The ids that an event matches, in no order; None where these are too many."""
        if not self._search(arrays, keys, IDS, ALL, self._shared, self._out, _NO_BITS):
            return None
        return self._out[: self._offsets[1]].copy()

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
    ) -> int:
        """How many events were searched for: 0 where `out` is too short, else 1."""
        self._code_events(arrays.coding, arrays.cuts, keys, self._codes)
        self._left[0] = most
        searched: int = self._match_events(
            arrays, keys, self._codes, 0, 1, product, most, self._ahead, shared, self._worker.buffers,
            self._left, self._offsets, out, bits,
        )  # fmt: skip
        return searched

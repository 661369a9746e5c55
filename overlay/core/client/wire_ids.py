"""Which ids the broker knows subscriptions by.

In the static mode an update is a new subscription for the old one: the id that a user knows stays, the id on
the wire changes, and events may still come for the retired one until its Unsubscribe has settled. Invariant:
every id that events may come for maps to the id its user knows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class WireIds:
    """The ids that users know, by the ids on the wire."""

    def __init__(self) -> None:
        self.by_wire: dict[int, int] = {}
        self._retired: dict[int, int] = {}
        """Retired ids, and the epoch of their Unsubscribe."""
        self._array: Int64s | None = None
        """`by_wire` as an array, -1 where there is none; rebuilt after a change, where ids lie dense."""

    def add(self, wire_id: int, uid: int) -> None:
        self.by_wire[wire_id] = uid
        self._array = None

    def retire(self, wire_id: int, epoch: int) -> None:
        """Keep the id until `epoch` has settled."""
        self._retired[wire_id] = epoch

    def settle(self, epoch: int) -> None:
        """Drop the retired ids whose Unsubscribe has taken effect."""
        for wire_id in [w for w, retired_at in self._retired.items() if retired_at <= epoch]:
            del self._retired[wire_id], self.by_wire[wire_id]
            self._array = None

    def discard(self, wire_id: int) -> None:
        """Drop an id, and those retired for it."""
        uid = self.by_wire.pop(wire_id)
        for retired in [w for w in self._retired if self.by_wire[w] == uid]:
            del self._retired[retired], self.by_wire[retired]
        self._array = None

    def uid(self, wire_id: int) -> int | None:
        return self.by_wire.get(wire_id)

    def uids(self, wire_ids: Int64s) -> Int64s:
        """The ids that users know, -1 for cancelled ones."""
        if self._array is None:
            size = max(self.by_wire, default=0) + 1
            if size > 64 + 4 * len(self.by_wire):
                distinct, where = np.unique(wire_ids, return_inverse=True)
                return np.array([self.by_wire.get(w, -1) for w in distinct.tolist()], dtype=np.int64)[where]
            self._array = np.full(size, -1, dtype=np.int64)
            self._array[list(self.by_wire)] = list(self.by_wire.values())
        within = wire_ids < len(self._array)
        if within.all():
            return self._array[wire_ids]
        return np.where(within, self._array[np.where(within, wire_ids, 0)], -1)

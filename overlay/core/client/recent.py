"""Which events a subscription has had lately, so that what is replayed to it is not handed out twice.

A client that updates without gaps gets some events out of their order, and the highest sequence number seen
says nothing of those. Events are known by (publisher, sequence). Invariant: the last `KEPT` events are
remembered at least; memory is bounded by twice that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

KEPT = 65_536


class Recent:
    """The recent events of one subscription.

    `seen` are the highest sequence numbers by publisher of what it, or another subscription of its client,
    has had before: nothing up to them is fresh.
    """

    def __init__(self, seen: Mapping[str, int] | None = None) -> None:
        self._seen = dict(seen or {})
        self._new: dict[str, list[Int64s]] = {}
        self._old: dict[str, list[Int64s]] = {}
        self._count = 0

    def fresh(self, publisher: str, sequences: Int64s) -> npt.NDArray[np.bool_]:
        """Which of these events were not there before; remembers them. One pass over what is kept of this
        publisher.
        """
        fresh = sequences > self._seen.get(publisher, -1)
        for kept in (self._new, self._old):
            chunks = kept.get(publisher)
            if chunks:
                if len(chunks) > 8:
                    chunks[:] = [np.concatenate(chunks)]
                for chunk in chunks:
                    if len(chunk) and len(sequences) and sequences.min() <= chunk.max():
                        fresh &= ~np.isin(sequences, chunk)
        self._new.setdefault(publisher, []).append(sequences[fresh])
        self._count += int(fresh.sum())
        if self._count > KEPT:
            self._old, self._new, self._count = self._new, {}, 0
        return fresh

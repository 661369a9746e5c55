"""The recent events of a subscription, so that none is handed out twice when it is replayed.

A client that updates without gaps gets some events out of order, for which the highest sequence number is not
enough. The identity of an event is (publisher, sequence). Invariant: at least the last `KEPT` events are
stored, and at most twice as many.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

KEPT = 65_536


class Recent:
    """The recent events of one subscription.

    `seen` are the highest sequence numbers, by publisher, that its client received before: no event up to
    them is fresh.
    """

    def __init__(self, seen: Mapping[str, int] | None = None) -> None:
        self._seen = dict(seen or {})
        self._new: dict[str, list[Int64s]] = {}
        self._old: dict[str, list[Int64s]] = {}
        self._count = 0

    def fresh(self, publisher: str, sequences: Int64s) -> npt.NDArray[np.bool_]:
        """Which of these events are new, each once; stores them. One pass over the stored events of this
        publisher."""
        fresh = self.unseen(publisher, sequences)
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        fresh &= first
        self._new.setdefault(publisher, []).append(sequences[fresh])
        self._count += int(fresh.sum())
        if self._count > KEPT:
            self._old, self._new, self._count = self._new, {}, 0
        return fresh

    def unseen(self, publisher: str, sequences: Int64s) -> npt.NDArray[np.bool_]:
        """Which of these events are new."""
        fresh = sequences > self._seen.get(publisher, -1)
        for generation in (self._new, self._old):
            chunks = generation.get(publisher)
            if chunks:
                if len(chunks) > 8:
                    chunks[:] = [np.concatenate(chunks)]
                for chunk in chunks:
                    if len(chunk) and len(sequences) and sequences.min() <= chunk.max():
                        fresh &= ~np.isin(sequences, chunk)
        return fresh

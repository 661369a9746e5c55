"""The changes of one view that wait for a browser. Pure.

Changes of a view are never dropped, or what the browser has inside would be wrong from then on. Those of a
key become one: a browser that has not got the key yet gets an enter or nothing, one that has it a change or a
leave, with the newest event. Invariant: keys leave in the order in which they first came, so whatever waits
at some moment leaves, in its newest state, however much comes meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.overlay.core.client.view_state import CHANGE, ENTER, LEAVE
from covey.overlay.core.link.conflating import codes_of

_FEW_ROWS = 1_024
"""So many may wait before those of a key become one."""


class _Part(NamedTuple):
    events: pa.RecordBatch
    kinds: npt.NDArray[np.int8]
    numbers: npt.NDArray[np.int64]
    """When the key of each came first."""

    def rows(self, start: int, stop: int) -> _Part:
        cut = slice(start, stop)
        return _Part(self.events.slice(start, stop - start), self.kinds[cut], self.numbers[cut])


class PendingChanges:
    """`key` is the attribute that is the key of the event type."""

    def __init__(self, key: str) -> None:
        self.lost = 0
        """Changes that later ones have superseded, for the caller to take."""
        self._key = key
        self._parts: deque[_Part] = deque()
        self._came = 0
        self._together_at = _FEW_ROWS

    def __len__(self) -> int:
        return sum(len(part.kinds) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Of the events that wait."""
        return sum(part.events.nbytes for part in self._parts)

    def put(self, events: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> None:
        """O(log n) per change: they are conflated whenever twice as many wait as after the last time."""
        numbers = np.arange(self._came, self._came + len(kinds))
        self._came += len(kinds)
        self._parts.append(_Part(events, kinds, numbers))
        if len(self) > self._together_at:
            self._conflate()
            self._together_at = 2 * len(self) + _FEW_ROWS

    def take(self, most: int) -> tuple[pa.RecordBatch, npt.NDArray[np.int8]] | None:
        """The next changes, at most so many; None where nothing waits."""
        if not self._parts:
            return None
        part = self._parts.popleft()
        if len(part.kinds) > most:
            self._parts.appendleft(part.rows(most, len(part.kinds)))
            part = part.rows(0, most)
        return part.events, part.kinds

    def clear(self) -> None:
        self._parts.clear()

    @property
    def came(self) -> int:
        """How many changes have come so far."""
        return self._came

    def has_left(self, came: int) -> bool:
        """Whether nothing waits of the keys that waited when so many had come."""
        return not self._parts or int(self._parts[0].numbers[0]) >= came

    def _conflate(self) -> None:
        parts = [*self._parts]
        codes = codes_of([part.events.column(self._key) for part in parts])
        kinds = np.concatenate([part.kinds for part in parts])
        numbers = np.concatenate([part.numbers for part in parts])
        _, first = np.unique(codes, return_index=True)
        _, from_end = np.unique(codes[::-1], return_index=True)
        last = len(codes) - 1 - from_end
        known, inside = kinds[first] != ENTER, kinds[last] != LEAVE
        stays = known | inside
        order = np.argsort(first[stays])
        first, last = first[stays][order], last[stays][order]
        told = np.where(inside, np.where(known, CHANGE, ENTER), LEAVE)[stays][order].astype(np.int8)
        self.lost += len(codes) - len(last)
        self._parts.clear()
        if not len(last):
            return
        table = pa.Table.from_batches([part.events for part in parts])
        (events,) = table.take(pa.array(last)).combine_chunks().to_batches()
        self._parts.append(_Part(events, told, numbers[first]))

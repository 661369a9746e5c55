"""The map from subscription ids to rows, and how many subscriptions each interface has. Invariant: an id is
in the map while its row is entered. The ids are stored with the rows (`row_kernels.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import MAX_INTERFACE
from covey.matcher.engines.rows.arrays import Ids, Numbers
from covey.matcher.engines.rows.row_kernels import (
    FREE,
    count_interfaces,
    enter_rows,
    find_row,
    find_rows,
    first_known,
    rehash_rows,
    remove_rows,
)

_SMALLEST = 64
_FULL, _SPARSE, _FITTED = 0.8, 0.2, 0.6
"""Load factors: above which the map grows, below which it shrinks, and afterwards."""


class IdMap:
    """Rows by id; every method takes `ids`, the id of each row."""

    def __init__(self) -> None:
        self._places = np.full(_SMALLEST, FREE, dtype=np.int32)
        self._bits = 0  # of an entry, for the row's number
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._places.nbytes

    def find(self, ids: Ids, looked_up: Numbers) -> Numbers:
        """The row of every id looked up, -1 for the unknown."""
        rows = np.empty(len(looked_up), dtype=np.int64)
        find_rows(self._places, self._bits, ids, looked_up, rows)
        return rows

    def first_known(self, ids: Ids, looked_up: Numbers) -> int:
        """The position of the first known id; NONE without one, UNORDERED if the ids do not ascend."""
        return int(first_known(self._places, self._bits, ids, looked_up))

    def find_one(self, ids: Ids, subscription_id: int) -> int:
        return int(find_row(self._places, self._bits, ids, subscription_id))

    def enter(self, ids: Ids, rows: Numbers) -> None:
        """Enter rows whose ids are not in the map."""
        count, bits = self._count + len(rows), max(self._bits, len(ids).bit_length())
        if count > _FULL * len(self._places) or bits > self._bits:
            self._rehash(ids, count, bits)
        self._count = count
        enter_rows(self._places, self._bits, ids, rows)

    def _rehash(self, ids: Ids, count: int, bits: int) -> None:
        size = len(self._places)
        if not _SPARSE * size <= count <= _FULL * size:
            size = max(_SMALLEST, int(count / _FITTED))
        places = np.full(size, FREE, dtype=np.int32)
        rehash_rows(self._places, self._bits, places, bits, ids)
        self._places, self._bits = places, bits

    def remove(self, ids: Ids, rows: Numbers) -> None:
        self._count -= len(rows)
        remove_rows(self._places, self._bits, ids, rows)
        if self._count < _SPARSE * len(self._places) and len(self._places) > _SMALLEST:
            self._rehash(ids, self._count, self._bits)


class Interfaces:
    """Counts subscriptions by interface; `highest` is the highest ever used, `in_use` how many have any."""

    def __init__(self) -> None:
        self.highest = self.in_use = 0
        self._counts = np.zeros(64, dtype=np.int64)

    def count(self, interfaces: npt.NDArray[np.int64], sign: int) -> None:
        """`sign` is 1 for added subscriptions, -1 for removed ones."""
        while not count_interfaces(interfaces, sign, self._counts):
            grown = np.zeros(min(2 * int(interfaces.max()) + 2, MAX_INTERFACE + 1), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self.in_use = int(np.count_nonzero(self._counts))

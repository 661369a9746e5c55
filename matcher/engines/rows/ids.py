"""The map from subscription ids to rows: a few bytes per subscription, thousands of lookups in one call.

Invariant: an id is in the map exactly while its row is entered; ids themselves lie with the rows (see
`id_kernels`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.rows.id_kernels import (
    enter_rows,
    find_row,
    find_rows,
    first_known,
    leave_rows,
    rehash_rows,
)

Numbers = npt.NDArray[np.int64]

_SMALLEST = 64


class IdMap:
    """Rows by id; every call is given `ids`, the id of every row."""

    def __init__(self) -> None:
        self._places = np.full(_SMALLEST, -1, dtype=np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._places.nbytes

    def find(self, ids: Numbers, wanted: Numbers) -> Numbers:
        """The row of every wanted id, -1 for the unknown."""
        rows = np.empty(len(wanted), dtype=np.int64)
        find_rows(self._places, ids, wanted, rows)
        return rows

    def first_known(self, ids: Numbers, wanted: Numbers) -> int:
        """The position of the first wanted id that is in the map, NONE if there is no such, UNORDERED if the
        wanted ones do not ascend, each once.
        """
        return int(first_known(self._places, ids, wanted))

    def find_one(self, ids: Numbers, wanted: int) -> int:
        """The row of an id, -1 if it is unknown."""
        return int(find_row(self._places, ids, wanted))

    def enter(self, ids: Numbers, rows: Numbers) -> None:
        """Enter rows; none of their ids is in the map."""
        self._count += len(rows)
        if 2 * self._count > len(self._places):
            old, self._places = self._places, np.full(1 << (2 * self._count).bit_length(), -1, dtype=np.int32)
            rehash_rows(old, self._places, ids)
        enter_rows(self._places, ids, rows)

    def leave(self, ids: Numbers, rows: Numbers) -> None:
        """Take rows out."""
        self._count -= len(rows)
        leave_rows(self._places, ids, rows)

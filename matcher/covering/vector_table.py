"""The vectors of a `VectorTree` in one table, compared column by column: for the time without kernels.

A search of 16,000 vectors of eight columns takes about 0.1 ms. Answers are in the order of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from covey.matcher.events.int64 import INT64_MIN

_NONE = -1
_FIRST_ROOM = 64


class VectorTable:
    """As `VectorTree`: vectors of `width` columns; `vector` is the buffer that all calls read."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.vector = np.zeros(width, np.int64)
        self._columns = np.zeros((width, _FIRST_ROOM), np.int64)
        self._ids = np.zeros(_FIRST_ROOM, np.int64)
        self._places: dict[int, int] = {}

    def put(self, identity: int) -> None:
        """Add an id with the vector in the buffer, or replace its vector."""
        place = self._places.setdefault(identity, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._ids[place] = identity
        self._columns[:, place] = self.vector

    def take(self, identity: int) -> None:
        """Remove a known id; the last one moves into its place."""
        place, last = self._places.pop(identity), len(self._places)
        if place != last:
            moved = int(self._ids[last])
            self._places[moved] = place
            self._ids[place] = moved
            self._columns[:, place] = self._columns[:, last]

    def widen(self, columns: int) -> None:
        """Append columns; the vectors of the table have the least number in them."""
        self._columns = np.concatenate(
            [self._columns, np.full((columns, len(self._ids)), INT64_MIN, np.int64)], axis=0
        )
        self.width += columns
        self.vector = np.zeros(self.width, np.int64)

    def ask(self, covering: bool, covered: bool, exclude: int = _NONE) -> tuple[Iterable[int], Iterable[int]]:
        """As `VectorTree.ask`."""
        return (
            self._nowhere(np.greater, exclude) if covering else (),
            self._nowhere(np.less, exclude) if covered else (),
        )

    def _nowhere(self, differs: np.ufunc, exclude: int) -> list[int]:
        count = len(self._places)
        outside: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        for column, value in zip(self._columns, self.vector, strict=True):
            outside |= differs(column[:count], value)
        ids: list[int] = self._ids[:count][~outside].tolist()
        return [identity for identity in ids if identity != exclude]

    @property
    def blocks(self) -> int:
        return 1 if self._places else 0

    def __contains__(self, identity: int) -> bool:
        return identity in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

"""The sets of values of one attribute that filters test by `in` and `not in`, found by one look-up per event.

An event's key in a column of sets is the number of the set that contains its value. Disjoint sets share a
column, so that they cost an event no more than one of them; without a set, the key is MISSING, for which
engines look nothing up. In the column of a set alone, for `not in`, that key is 0. Invariant: a value is in
at most one set of a column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from covey.matcher.encoding import encode_kernels as k
from covey.matcher.encoding.keys import Keys

ALONE = 1  # the number of a set that shares its column with no other
_SMALLEST = 64


class MemberTable:
    """The sets of one attribute, as keys, by column and number."""

    def __init__(self) -> None:
        self.sets: dict[int, dict[int, Keys]] = {}
        self._alone: set[int] = set()  # columns of one set
        self._constants = 0  # of all sets
        self._allocate()

    def _allocate(self) -> None:
        size = max(_SMALLEST, 1 << (4 * self._constants).bit_length())
        self._slots = np.full((size, 2), k.EMPTY, dtype=np.int64)
        self._entries = np.zeros((size // 2, 3), dtype=np.int64)
        self._state = np.array([0, 0, k.END], dtype=np.int64)

    def column_for(self, keys: Keys) -> int | None:
        """A column whose sets contain none of these keys."""
        taken = np.zeros(max(self.sets, default=0) + 1, dtype=np.bool_)
        k.mark_columns(keys, self._slots, self._entries, taken)
        return next((c for c in self.sets if c not in self._alone and not taken[c]), None)

    def enter(self, keys: Keys, column: int, *, alone: bool) -> int:
        """Enter a set in a column, `alone` if no other set may share it; returns its number."""
        sets = self.sets.setdefault(column, {})
        number = next(n for n in range(len(sets) + 1, 0, -1) if n not in sets)
        sets[number] = keys
        self._constants += len(keys)
        if alone:
            self._alone.add(column)
        room = 2 * (int(self._state[k.SLOTS_USED]) + len(keys)) <= len(self._slots)
        if room and int(self._state[k.ENTRY_TOP]) + len(keys) <= len(self._entries):
            k.enter_set(keys, column, number, self._slots, self._entries, self._state)
        else:
            self._rebuild()
        return number

    def leave(self, column: int, number: int) -> bool:
        """Remove a set; returns whether its column is empty then."""
        keys = self.sets[column].pop(number)
        self._constants -= len(keys)
        k.leave_set(keys, column, self._slots, self._entries, self._state)
        if 4 * self._constants < len(self._entries) and len(self._slots) > _SMALLEST:
            self._rebuild()
        if self.sets[column]:
            return False
        del self.sets[column]
        self._alone.discard(column)
        return True

    def _rebuild(self) -> None:
        self._allocate()
        for column, sets in self.sets.items():
            for number, keys in sets.items():
                k.enter_set(keys, column, number, self._slots, self._entries, self._state)

    def each(self) -> Iterator[Keys]:
        for sets in self.sets.values():
            yield from sets.values()

    def encode(self, attribute: int, keys: Keys) -> None:
        shared = [column for column in self.sets if column not in self._alone]
        columns = np.array([*shared, *self._alone], dtype=np.int64)
        k.encode_members(self._slots, self._entries, attribute, columns, len(shared), keys)

    def memory_bytes(self) -> int:
        return self._slots.nbytes + self._entries.nbytes + 8 * self._constants

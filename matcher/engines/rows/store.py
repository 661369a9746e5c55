"""What the rivals' structures have in common: rows by number, and signatures, the columns that a row's tests
are on.

A store takes rows of interval tests, `lows[t, i] <= key of columns[t] <= highs[t, i]`, and answers which rows
a key matrix matches; `RowEngine` makes rows of subscriptions. Invariant: a row's number is its own until it
is freed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.rows import kernels as k
from covey.matcher.events.event_type import EventType

Numbers = npt.NDArray[np.int64]

_SMALLEST = 16
SPARE = 128
"""One part in so many is left as room when the rest is given back."""
_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(slots=True)
class RowArrays:
    """Lines of `rows` are drawn in `rows/kernels.py`."""

    rows: npt.NDArray[np.int32]
    ids: Numbers
    seen: Numbers


class Stretches:
    """Numbers in stretches of equal length, taken and given back many at a time."""

    def __init__(self) -> None:
        self.top = 0
        self._free: dict[int, list[Numbers]] = {}

    def take(self, count: int, each: int) -> Numbers:
        """The first numbers of `count` stretches of `each` numbers."""
        stack, got = self._free.get(each, []), []
        while stack and count:
            last = stack.pop()
            if len(last) > count:
                stack.append(last[count:])
                last = last[:count]
            got.append(last)
            count -= len(last)
        if count:
            start, self.top = self.top, self.top + count * each
            got.append(np.arange(start, self.top, each, dtype=np.int64))
        return np.concatenate(got) if len(got) != 1 else got[0]

    def give(self, firsts: Numbers, each: int) -> None:
        """Give stretches of `each` numbers back."""
        if each:
            self._free.setdefault(each, []).append(firsts)


class RowStore(ABC):
    """Rows of interval tests, by row number."""

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.arrays = RowArrays(
            np.full((_SMALLEST, k.ROW_FIELDS), -1, dtype=np.int32),
            np.zeros(_SMALLEST, dtype=np.int64),
            np.zeros(0, dtype=np.int64),
        )
        self.columns_of: list[tuple[int, ...]] = []
        self.signature_rows: list[int] = []
        self.shapes_of: list[tuple[int, ...]] = []
        self.is_long: list[bool] = []
        self._signatures: dict[tuple[tuple[int, ...], tuple[int, ...], bool], int] = {}
        self._free_signatures: list[int] = []
        self._rows = Stretches()
        self._stamp = 0
        self._found: Numbers = np.empty(1024, dtype=np.int64)

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def row_top(self) -> int:
        """One more than the highest row number ever given out."""
        return self._rows.top

    def signature(self, columns: tuple[int, ...], shapes: tuple[int, ...] = (), *, long: bool = False) -> int:
        """The number of a tuple of columns (and of the tests' `plan.Shape`s, if given), made if there is
        none; it lives while rows have it. `long` sets rows apart whose bounds take more room, where a store
        makes a difference.
        """
        found = self._signatures.get((columns, shapes, long))
        if found is None:
            found = self._free_signatures.pop() if self._free_signatures else len(self.columns_of)
            if found == len(self.columns_of):
                self.columns_of.append(columns)
                self.shapes_of.append(shapes)
                self.signature_rows.append(0)
                self.is_long.append(long)
            self.columns_of[found] = columns
            self.shapes_of[found] = shapes
            self.is_long[found] = long
            self._signatures[columns, shapes, long] = found
            self._new_signature(found)
        return found

    def _leave_signature(self, signature: int, rows: int) -> None:
        """So many rows less have a signature, which goes with the last."""
        self.signature_rows[signature] -= rows
        if self.signature_rows[signature] == 0:
            key = self.columns_of[signature], self.shapes_of[signature], self.is_long[signature]
            del self._signatures[key]
            self._free_signatures.append(signature)

    def signature_columns(self, signature: int) -> list[int]:
        """The columns that a signature tests."""
        return list(self.columns_of[signature])

    def signatures_of(self, rows: Numbers) -> Numbers:
        """The signature number of every row."""
        signatures: Numbers = self.arrays.rows[rows, k.ROW_SIGNATURE].astype(np.int64)
        return signatures

    def tests_of(self, rows: Numbers) -> int:
        """How many tests rows have that have equally many."""
        return len(self.columns_of[self.arrays.rows[rows[0], k.ROW_SIGNATURE]])

    def new_rows(self, count: int, each: int) -> Numbers:
        """The first rows of `count` stretches of `each` rows."""
        firsts = self._rows.take(count, each)
        capacity = len(self.arrays.ids)
        if self._rows.top > capacity:
            size = max(self._rows.top, capacity + capacity // 4)
            a = self.arrays
            self.arrays = RowArrays(grown(a.rows, size, -1), grown(a.ids, size), a.seen)
            self._grow_rows(size)
        return firsts

    def trim_rows(self) -> None:
        """Give back what rows have room for beyond a little."""
        size = self._rows.top + self._rows.top // SPARE + _SMALLEST
        if size < len(self.arrays.ids):
            a = self.arrays
            self.arrays = RowArrays(a.rows[:size].copy(), a.ids[:size].copy(), a.seen)
            self._grow_rows(size)

    def free_rows(self, firsts: Numbers, each: int) -> None:
        """Give stretches of rows back."""
        self._rows.give(firsts, each)

    # --- rows in the structure --------------------------------------------------------------------

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        """Insert rows by their bounds lows[t, i], highs[t, i] on the columns of their signature."""
        k.sign_rows(self.arrays.rows, rows, signature)
        self.signature_rows[signature] += len(rows)
        self._insert(rows, np.array(self.columns_of[signature], dtype=np.int64), lows, highs)

    def insert_part(self, rows: Numbers, signature: int, lows: Keys, highs: Keys, chosen: Numbers) -> None:
        """Insert the rows at these positions alone."""
        parts = [np.ascontiguousarray(matrix[:, chosen]) for matrix in (lows, highs)]
        self.insert(rows[chosen], signature, *parts)

    def remove(self, rows: Numbers) -> None:
        """Take rows that have equally many tests out of the structure; their numbers stay theirs."""
        self._remove(rows)
        for signature, count in self._count_signatures(rows):
            self._leave_signature(signature, count)
        self.arrays.rows[rows, k.ROW_SIGNATURE] = -1

    def _count_signatures(self, rows: Numbers) -> list[tuple[int, int]]:
        """The signatures of rows, each with how many have it."""
        signatures = self.arrays.rows[rows, k.ROW_SIGNATURE]
        if len(rows) == 1:
            return [(int(signatures[0]), 1)]
        found, counts = np.unique(signatures, return_counts=True)
        return list(zip(found.tolist(), counts.tolist(), strict=True))

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Give rows several bounds, values[p, i] for parts[p]: 1 + 2t is test t's low end, 2 + 2t its high
        end, in this order. Their plans may differ, but not in the tests that these parts are of.
        """
        tests = dict.fromkeys((part - 1) // 2 for part in parts)
        for _, chosen, lows, highs in self._with_parts(rows, parts, values):
            for test in tests:
                self._change(chosen, test, lows, highs)

    def _with_parts(
        self, rows: Numbers, parts: list[int], values: Keys
    ) -> Iterator[tuple[int, Numbers, Keys, Keys]]:
        """(signature, those of the rows that have it, their bounds as they will be)"""
        signatures = self.signatures_of(rows)
        for signature in np.unique(signatures).tolist():
            chosen = np.flatnonzero(signatures == signature)
            lows, highs = self._read(rows[chosen], len(self.columns_of[signature]))
            for part, line in zip(parts, values, strict=True):
                (lows if part % 2 else highs)[(part - 1) // 2] = line[chosen]
            yield signature, rows[chosen], lows, highs

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        """lows[tests, n] and highs[tests, n] of rows that have so many tests."""
        return self._read(rows, tests)

    def match(self, keys: Keys, *, shared: bool, ordered: bool) -> tuple[Numbers, Numbers]:
        """CSR offsets and ids of the subscriptions that each event's keys match, each id once."""
        offsets, found = self._match_all(keys)
        a = self.arrays
        if shared and len(a.seen) < len(a.ids):  # most engines never have a subscription of several rows
            a.seen = grown(a.seen, len(a.ids))
        self._stamp = k.resolve_rows(a.rows, a.ids, a.seen, self._stamp, shared, ordered, offsets, found)
        return offsets, found[: offsets[-1]].copy()

    def match_bits(self, keys: Keys, bits: npt.NDArray[np.uint64]) -> None:
        """Set the bits of the interfaces that each event's keys match."""
        k.interface_bits(self.arrays.rows, *self._match_all(keys), bits)

    def _match_all(self, keys: Keys) -> tuple[Numbers, Numbers]:
        self._prepare()
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        if len(self._found) < self.row_top + 64:  # room for an event that matches everything
            self._found = np.empty(self.row_top + self.row_top // 2 + 64, dtype=np.int64)
        done = 0
        while True:
            done = self._match(keys, done, offsets, self._found)
            if done == len(keys):
                return offsets, self._found
            larger = np.empty(2 * len(self._found), dtype=np.int64)
            larger[: offsets[done]] = self._found[: offsets[done]]
            self._found = larger

    # --- what a structure says --------------------------------------------------------------------

    @abstractmethod
    def _read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]: ...

    @abstractmethod
    def mark_codes(self, is_string: npt.NDArray[np.bool_], live: npt.NDArray[np.bool_]) -> None:
        """Mark the string codes that rows name; `is_string` says so of every column."""

    @abstractmethod
    def structure_bytes(self) -> dict[str, int]:
        """What the structure takes, in bytes, by part."""

    @abstractmethod
    def render(self, columns: Columns) -> list[str]:
        """The structure, for people."""

    @abstractmethod
    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None: ...

    @abstractmethod
    def _remove(self, rows: Numbers) -> None: ...

    @abstractmethod
    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        """Give test `test` of these rows, which have equally many, new bounds."""

    @abstractmethod
    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        """Rows matching events `start` and later into `found`; the first event that has no room for `row_top`
        rows.
        """

    def _prepare(self) -> None:  # noqa: B027 - not every structure has something to do
        """Called before a match: what can wait until then."""

    def _new_signature(self, signature: int) -> None:  # noqa: B027
        """This number stands for other columns now."""

    def _grow_rows(self, size: int) -> None:  # noqa: B027
        """Arrays with a place per row must have `size` places."""

    def row_bytes(self) -> int:
        """What rows take whatever the structure."""
        return self.arrays.rows.nbytes + self.arrays.ids.nbytes + self.arrays.seen.nbytes


def grown(old: npt.NDArray[_Kind], size: int, fill: int = 0) -> npt.NDArray[_Kind]:
    """A copy with `size` lines, new ones filled, or those beyond cut off."""
    new = (np.empty if fill else np.zeros)((size, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old[:size]
    if fill:
        new[len(old) :] = fill
    return new

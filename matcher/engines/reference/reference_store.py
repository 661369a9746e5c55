"""The base of the reference engines' stores: structures that find matching rows, not subscriptions.

Row numbers become subscription ids, or interfaces, after the search. An update writes one test at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference.answer_kernels import interface_bits, resolve_rows
from covey.matcher.engines.rows.arrays import Ids, Numbers, grown, wide
from covey.matcher.engines.rows.row_kernels import ROW_FIELDS, ROW_SIGNATURE
from covey.matcher.engines.rows.store import ALL, RowStore
from covey.matcher.events.event_type import EventType

_SMALLEST = 16


@dataclass(slots=True)
class Rows:
    """The fields of rows (`rows/row_kernels.py`), and their subscriptions' ids."""

    rows: npt.NDArray[np.int32]
    ids: Ids


class SearchedStore(RowStore):
    """Rows in a structure that answers with row numbers."""

    arrays: Rows

    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        fields = np.full((_SMALLEST, ROW_FIELDS), -1, dtype=np.int32)
        self.arrays = Rows(fields, np.zeros((_SMALLEST, 1), dtype=np.int32))
        self._seen = np.zeros(0, dtype=np.int64)
        self._stamp = 0
        self._matching_rows: Numbers = np.empty(1024, dtype=np.int64)

    def _resize_rows(self, size: int) -> None:
        rows, ids = self.arrays.rows, self.arrays.ids
        self.arrays = Rows(grown(rows, size, -1), grown(ids, size))

    def widen_ids(self) -> None:
        self.arrays = Rows(self.arrays.rows, wide(self.arrays.ids))

    def row_bytes(self) -> int:
        return super().row_bytes() + self._seen.nbytes

    # --- matching ---------------------------------------------------------------------------------

    def begin_match(self, keys: Keys) -> None:
        self._prepare()

    def ids(self, keys: Keys, *, shared: bool) -> tuple[Numbers, Numbers]:
        offsets, matching = self._match_all(keys)
        a = self.arrays
        if shared and len(self._seen) < len(a.ids):  # few engines have subscriptions of several rows
            self._seen = grown(self._seen, len(a.ids))
        self._stamp = resolve_rows(a.rows, a.ids, self._seen, self._stamp, shared, offsets, matching)
        return offsets, matching[: offsets[-1]].copy()

    def counts(self, keys: Keys, *, shared: bool, most: int = ALL) -> Numbers:
        offsets, _ = self.ids(keys, shared=True) if shared else self._match_all(keys)
        return np.diff(offsets)

    def set_interfaces(self, keys: Keys, bits: npt.NDArray[np.uint64], in_use: int) -> None:
        interface_bits(self.arrays.rows, *self._match_all(keys), bits)

    def _match_all(self, keys: Keys) -> tuple[Numbers, Numbers]:
        """CSR offsets and rows."""
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        if len(self._matching_rows) < self.row_top + 64:  # room for an event that matches everything
            self._matching_rows = np.empty(self.row_top + self.row_top // 2 + 64, dtype=np.int64)
        done = 0
        while True:
            done = self._match(keys, done, offsets, self._matching_rows)
            if done == len(keys):
                return offsets, self._matching_rows
            larger = np.empty(2 * len(self._matching_rows), dtype=np.int64)
            larger[: offsets[done]] = self._matching_rows[: offsets[done]]
            self._matching_rows = larger

    @abstractmethod
    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        """Write the rows that match events `start` and later to `found`; returns the first event without
        room for `row_top` rows.
        """

    def _prepare(self) -> None:
        """Do the work deferred to the next match."""


class ReferenceStore(SearchedStore):
    """One whose structure takes the tests of a row one by one."""

    def tests_of(self, rows: Numbers) -> int:
        """How many tests each of these rows has, all equally many."""
        return len(self.signatures.columns[self.arrays.rows[rows[0], ROW_SIGNATURE]])

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        self._sign(rows, signature)
        self._insert(rows, np.array(self.signatures.columns[signature], dtype=np.int64), lows, highs)

    def remove(self, rows: Numbers) -> None:
        self._remove(rows)
        self._release_signatures(rows)

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        tests = dict.fromkeys((part - 1) // 2 for part in parts)
        for _, chosen, lows, highs in self._with_parts(rows, parts, values):
            for test in tests:
                self._change(chosen, test, lows, highs)

    @abstractmethod
    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None: ...

    @abstractmethod
    def _remove(self, rows: Numbers) -> None: ...

    @abstractmethod
    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        """Give these rows of one signature new bounds on one test."""

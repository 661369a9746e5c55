"""An arrangement: the places of rows in buckets and leaves, under one coding and one hashing configuration.

Arrays by row are the store's, shared with the arrangement that replaces this one (`placement.py`). Invariant:
kernels find room for at least one more of everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.arrays import FILLED, LEAF, SLACK
from covey.matcher.engines.cluster.layout.code_kernels import HASHED
from covey.matcher.engines.cluster.layout.coding import Coding
from covey.matcher.engines.cluster.room import (
    empty_leaves,
    used_parts,
    with_columns,
    with_more,
    with_room,
    with_signature,
    with_table,
)
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.cluster.tuning.steps import Steps, in_steps
from covey.matcher.engines.rows.arrays import Numbers

Codes = npt.NDArray[np.uint16]
_NO_CODES = np.empty((0, 0), dtype=np.uint16)
_NO_SIZES = np.empty(0, dtype=np.int64)


class Arrangement:
    """`arrays` have no rows yet; `ordered` keeps large buckets in order."""

    def __init__(self, arrays: a.StoreArrays, configuration: Configuration, *, ordered: bool) -> None:
        self.arrays = arrays
        self.configuration = configuration
        self.cut_columns: frozenset[int] = frozenset()  # with bounds to choose cuts from
        self.probes = 1  # the most buckets that an event may search
        self.scratch = np.zeros(HASHED + 2 * arrays.signatures.shape[1], dtype=np.int64)
        self._unassigned: dict[int, None] = {}
        self._ordered = ordered

    # --- coding and configuration -----------------------------------------------------------------

    def recode(self, coding: Coding, cut_columns: frozenset[int]) -> None:
        """Replace the cuts; there must be no rows."""
        columns = len(self.arrays.coding)
        self.arrays = self.arrays._replace(coding=coding.lines, cuts=coding.cuts)
        if columns > len(coding.lines):
            self.arrays = with_columns(self.arrays, columns)
        self.cut_columns = cut_columns

    def configure(self, configuration: Configuration, signatures: Sequence[int]) -> Steps[None]:
        """Change the configuration, and assign templates to these signatures. Rows stay where they are."""
        self.configuration = configuration
        for units, some in in_steps(signatures):
            self.assign(some)
            yield units

    def write_signatures(
        self, signatures: Sequence[int], columns: Sequence[tuple[int, ...]], size: int, tests: list[int]
    ) -> None:
        """Write lines of signatures that differ in columns alone; `size` is in bytes of bounds per row."""
        width = len(columns[0])
        self.arrays = with_signature(self.arrays, max(signatures), width)
        self.scratch = np.zeros(HASHED + 2 * self.arrays.signatures.shape[1], dtype=np.int64)
        lines = np.zeros((len(signatures), self.arrays.signatures.shape[1]), dtype=np.int32)
        end = a.SIGN_TESTS + len(tests)
        lines[:, a.SIGN_TESTS : end] = tests
        if width:
            lines[:, a.SIGN_TESTS + a.TEST_COLUMN : end : a.TEST_FIELDS] = columns
        lines[:, a.SIGN_SIZE], lines[:, a.SIGN_BYTES] = width, size
        self.arrays.signatures[list(signatures)] = lines
        highest = max(map(max, columns)) if width else 0
        if highest >= len(self.arrays.coding):
            self.arrays = with_columns(self.arrays, max(highest + 1, 2 * len(self.arrays.coding)))
        self._unassigned.update(dict.fromkeys(signatures))

    def widen(self, tops: Keys, first: int) -> None:
        """Allow tests on columns from `first` on; `tops` are as in `empty_arrays`."""
        if len(tops) > len(self.arrays.coding):
            self.arrays = with_columns(self.arrays, len(tops))
        self.arrays.coding[first : len(tops), a.CODE_TOP] = tops[first:]

    def assign(self, signatures: Sequence[int]) -> None:
        """Assign templates."""
        self.configuration.assign(self.arrays.signatures, np.array(signatures, dtype=np.int64))
        for signature in signatures:
            self._unassigned.pop(signature, None)

    # --- rows -------------------------------------------------------------------------------------

    def order(self, start: int, stop: int, codes: Codes, orders: Numbers) -> None:
        """The order in which to place rows start:stop, and their codes, as `placing_kernels.order_rows`."""
        while (start := k.order_rows(self.arrays, start, stop, codes, orders, self.scratch)) < stop:
            self._make_room()

    def place(self, rows: Numbers, codes: Codes = _NO_CODES, sizes: Numbers = _NO_SIZES) -> None:
        """Place the waiting ones of `rows`; with `codes` and `sizes`, rows are in the order of `order`."""
        if self._unassigned:
            self.assign(list(self._unassigned))
        state = self.arrays.leaves.state
        state[FILLED] = LEAF - SLACK if len(sizes) else LEAF
        done = 0
        while (done := k.place_rows(self.arrays, rows, done, codes, sizes, self.scratch)) < len(rows):
            self._make_room()
        state[FILLED] = LEAF

    def update(self, rows: Numbers) -> None:
        """Move rows that are placed here to where their new bounds belong; most stay, with new codes."""
        done = 0
        while (done := k.update_rows(self.arrays, rows, done, self.scratch)) < len(rows):
            self._make_room()

    def remove(self, rows: Numbers, mark: int = a.ABSENT) -> None:
        """Remove rows that are placed here or wait; `mark`, ABSENT or WAITING, is their place then."""
        k.remove_rows(self.arrays, rows, mark)

    def reserve_leaves(self, rows: int) -> None:
        leaves = self.arrays.leaves
        count = 4 * rows // (LEAF - SLACK) + len(leaves.columns) + 2
        if rows and count > len(leaves.lines):
            self.arrays = self.arrays._replace(leaves=with_room(leaves, count))

    def begin(self) -> None:
        """Prepare for rows; coding and configuration are chosen."""
        leaves = empty_leaves(self.configuration.leaves, self.arrays.coding)
        self.arrays = self.arrays._replace(leaves=leaves)

    def _make_room(self) -> None:
        """Add the table that a kernel misses, or room for more of everything."""
        state = self.arrays.state
        schema = int(state[a.MISSING_TABLE])
        if schema == a.NONE:
            self.arrays = with_more(self.arrays)
            return
        self.arrays, probes = with_table(self.arrays, schema, self.configuration, ordered=self._ordered)
        self.probes += probes
        state[a.MISSING_TABLE] = a.NONE

    # --- events and inspection --------------------------------------------------------------------

    def codes(self, keys: Keys) -> Codes:
        codes = np.empty((len(keys), min(keys.shape[1], a.NARROW_COLUMNS)), dtype=np.uint16)
        if keys.shape[1] > len(self.arrays.coding):  # derived columns without codes yet
            self.arrays = with_columns(self.arrays, keys.shape[1])
        m.code_events(self.arrays.coding, self.arrays.cuts, keys, codes)
        width = max(self.configuration.leaves, default=-1) + 1
        if width > codes.shape[1]:  # bitmaps of derived columns that nothing tests any more: all rows pass
            codes = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        return codes

    def parts(self) -> dict[str, tuple[npt.NDArray[Any], ...]]:
        """The arrays of its own that are in use, by part of the structure."""
        arrays, state = self.arrays, self.arrays.state
        return {
            "slots and directories": (arrays.longs[: state[a.UNIT_TOP]],),
            "access index": (
                arrays.places,
                arrays.buckets[: state[a.BUCKET_TOP]],
                arrays.blocks[: state[a.BLOCK_TOP]],
            ),
            "codes": (arrays.coding, arrays.cuts),
            "signatures and tables": (arrays.signatures, arrays.tables),
            "leaves": used_parts(arrays.leaves),
        }

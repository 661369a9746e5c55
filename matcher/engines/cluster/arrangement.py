"""An arrangement: the places of rows in buckets and leaves, under one coding and one hashing configuration.

Its arrays by row are the store's. Invariant: kernels find room for at least one more of everything.
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
from covey.matcher.engines.cluster.layout.code_kernels import HASHED
from covey.matcher.engines.cluster.layout.leaf_arrays import FILLED, LEAF
from covey.matcher.engines.cluster.leaves.leaves import empty_leaves
from covey.matcher.engines.cluster.room import trimmed, with_columns, with_more, with_signature, with_table
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.rows.arrays import Numbers

_KEPT_TESTS = 8
"""Tests of a row whose codes are kept while rows are placed anew."""
_NO_CODES = np.empty((0, 0), dtype=np.uint16)


class Arrangement:
    """Places of rows; `ordered`: large buckets are kept in order."""

    def __init__(self, arrays: a.StoreArrays, configuration: Configuration, *, ordered: bool) -> None:
        self.arrays = arrays
        self.configuration = configuration
        self.cut_columns: frozenset[int] = frozenset()
        """The columns that had bounds to choose cuts from."""
        self.probes = 1
        """The most buckets that an event may search."""
        self.unassigned: dict[int, None] = {}
        """Signatures without a template."""
        self._ordered = ordered
        self.scratch = np.zeros(HASHED + 2 * arrays.signatures.shape[1], dtype=np.int64)
        """Working memory of the kernels that place rows."""
        self.clear()

    def clear(self) -> None:
        """Forget all places."""
        state = self.arrays.state
        self.probes = 1
        state[:] = 0
        state[[a.BLOCK_FREE, a.BUCKET_FREE]] = a.NONE
        self.arrays.free[:] = a.NONE
        self.arrays.places[:] = a.NONE
        leaves = empty_leaves(self.configuration.leaves, self.arrays.coding, 0)
        self.arrays = self.arrays._replace(leaves=leaves)

    # --- signatures -------------------------------------------------------------------------------

    def write_signature(self, signature: int, columns: Sequence[int], size: int, tests: list[int]) -> None:
        """Write the line of a signature, of so many bytes of bounds; its tests as in `layout/arrays.py`."""
        self.arrays = with_signature(self.arrays, signature, len(columns))
        self.scratch = np.zeros(HASHED + 2 * self.arrays.signatures.shape[1], dtype=np.int64)
        line = self.arrays.signatures[signature]
        line[:] = 0
        line[a.SIGN_TESTS : a.SIGN_TESTS + len(tests)] = tests
        line[a.SIGN_SIZE], line[a.SIGN_BYTES] = len(columns), size
        if columns and max(columns) >= len(self.arrays.coding):
            self.arrays = with_columns(self.arrays, max(max(columns) + 1, 2 * len(self.arrays.coding)))
        self.unassigned[signature] = None

    def assign(self, signatures: Sequence[int]) -> None:
        """Give signatures their templates."""
        self.configuration.assign(self.arrays.signatures, np.array(signatures, dtype=np.int64))
        self.unassigned.clear()

    # --- rows -------------------------------------------------------------------------------------

    def place(self, rows: Numbers) -> None:
        """Place those of these rows that wait."""
        self.assign(list(self.unassigned))
        self._place(rows, self.scratch, _NO_CODES, rows, k.AT_ONCE)

    def place_together(self, rows: Numbers, most_tests: int) -> None:
        """Place rows that wait, the first ones, so that those of a bucket lie together; they have up to
        `most_tests` tests.
        """
        codes = np.empty((len(rows), 2 * min(most_tests, _KEPT_TESTS)), dtype=np.uint16)
        targets = np.full(len(rows), a.NONE, dtype=np.int64)
        self._place(rows, targets, codes, rows, k.COUNT)
        in_leaves = int(np.count_nonzero(targets >= k.IN_LEAVES))
        if in_leaves:
            leaves = empty_leaves(self.configuration.leaves, self.arrays.coding, in_leaves)
            self.arrays = self.arrays._replace(leaves=leaves)
        order = np.argsort(targets, kind="stable")
        self._place(rows[order], targets[order], codes, order, k.PUT)
        self.arrays.leaves.state[FILLED] = LEAF

    def _place(
        self, rows: Numbers, targets: Numbers, codes: npt.NDArray[np.uint16], order: Numbers, stage: int
    ) -> None:
        """Place rows that wait; see `placing_kernels.place_rows`."""
        done = 0
        while True:
            done = k.place_rows(self.arrays, rows, targets, codes, order, done, stage, self.scratch)
            if done == len(rows):
                return
            self._make_room()

    def update(self, rows: Numbers) -> None:
        """Move rows to where their new bounds belong; most stay, with new codes."""
        done = 0
        while True:
            done = k.update_rows(self.arrays, rows, done, self.scratch)
            if done == len(rows):
                return
            self._make_room()

    def remove(self, rows: Numbers) -> None:
        """Remove rows."""
        k.remove_rows(self.arrays, rows)

    def _make_room(self) -> None:
        """Make the table that a kernel misses, or room for more of everything."""
        state = self.arrays.state
        schema = int(state[a.MISSING_TABLE])
        if schema == a.NONE:
            self.arrays = with_more(self.arrays)
            return
        self.arrays, probes = with_table(self.arrays, schema, self.configuration, ordered=self._ordered)
        self.probes += probes
        state[a.MISSING_TABLE] = a.NONE

    def trim(self, bounds: int, signatures: int) -> None:
        """Shrink arrays with much room; so many bounds and signatures are used."""
        self.arrays = trimmed(self.arrays, bounds, signatures)

    # --- events and inspection --------------------------------------------------------------------

    def codes(self, keys: Keys) -> npt.NDArray[np.uint16]:
        """The codes of events' keys."""
        codes = np.empty((len(keys), min(keys.shape[1], a.NARROW_COLUMNS)), dtype=np.uint16)
        if keys.shape[1] > len(self.arrays.coding):  # derived columns without codes yet
            self.arrays = with_columns(self.arrays, keys.shape[1])
        m.code_events(self.arrays.coding, self.arrays.cuts, keys, codes)
        width = max(self.configuration.leaves, default=-1) + 1
        if width > codes.shape[1]:  # bitmaps of derived columns that nothing tests any more: all rows pass
            codes = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        return codes

    def parts(self) -> dict[str, tuple[npt.NDArray[Any], ...]]:
        """Its own arrays, by part of the structure."""
        arrays = self.arrays
        return {
            "slots and directories": (arrays.bytes,),
            "access index": (arrays.places, arrays.buckets, arrays.blocks),
            "codes": (arrays.coding, arrays.cuts),
            "signatures and tables": (arrays.signatures, arrays.tables),
            "leaves": tuple(arrays.leaves),
        }

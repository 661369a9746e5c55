"""The arrays of the cluster engine, and what makes them larger: tables, signatures, rows, and rows in
clusters.

Invariant: kernels find room for at least one more of everything; numbers of rows, tables and signatures
stay valid while what they stand for lives. The layout is drawn in `cluster_kernels.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.columns import Columns
from covey.matcher.engine import MAX_INTERFACE
from covey.matcher.engines import cluster_kernels as k
from covey.matcher.keys import Keys

Numbers = npt.NDArray[np.int64]

_SMALLEST = 16


class ClusterStore:
    """Rows with access keys and bounds, by row number."""

    def __init__(self) -> None:
        state = np.zeros(k.STATE, dtype=np.int64)
        state[[k.BLOCK_FREE, k.CLUSTER_FREE, k.BUCKET_FREE]] = k.NONE
        self.arrays = k.Store(
            state=state,
            free=np.full((3, k.LARGEST + 1), k.NONE, dtype=np.int64),
            tables=np.zeros((_SMALLEST, k.TABLE_COLUMNS + k.ACCESS), dtype=np.int64),
            signatures=np.zeros((_SMALLEST, k.SIGNATURE_COLUMNS + 2), dtype=np.int64),
            places=np.full(2 * _SMALLEST, k.NONE, dtype=np.int32),
            buckets=np.zeros((_SMALLEST, k.BUCKET_KEYS + k.ACCESS), dtype=np.int64),
            clusters=np.zeros((_SMALLEST, k.CLUSTER_FIELDS), dtype=np.int64),
            blocks=np.zeros((_SMALLEST, k.BLOCK_FIELDS), dtype=np.int64),
            pool=np.zeros(1024, dtype=np.int64),
            rows=np.full((_SMALLEST, k.ROW_FIELDS), k.NONE, dtype=np.int32),
            ids=np.zeros(_SMALLEST, dtype=np.int64),
            seen=np.zeros(_SMALLEST, dtype=np.int64),
        )
        self.tables: dict[tuple[int, ...], int] = {}
        self._signatures: dict[tuple[int, ...], int] = {}
        self._free_signatures: list[int] = []
        self._purge_at = 64
        self._out = np.empty(1024, dtype=np.int64)
        self._row_top = 0
        self._free_rows: dict[int, list[Numbers]] = {}
        self.table(())

    # --- numbers ----------------------------------------------------------------------------------

    def table(self, columns: tuple[int, ...]) -> int:
        """The table whose access attributes are these columns, made if there is none."""
        found = self.tables.get(columns)
        if found is None:
            found = self.tables[columns] = len(self.tables)
            if found >= len(self.arrays.tables):
                self._grow("tables")
            self.arrays.tables[found, k.TABLE_WIDTH] = len(columns)
            self.arrays.tables[found, k.TABLE_COLUMNS : k.TABLE_COLUMNS + len(columns)] = columns
        return found

    def signature(self, columns: tuple[int, ...]) -> int:
        """The signature of tests on these columns, in this order, made if there is none."""
        found = self._signatures.get(columns)
        if found is not None:
            return found
        if len(self._signatures) >= self._purge_at:
            self._purge()
        width = k.SIGNATURE_COLUMNS + len(columns)
        if width > self.arrays.signatures.shape[1]:
            self._widen(len(columns))
        found = self._free_signatures.pop() if self._free_signatures else len(self._signatures)
        if found >= len(self.arrays.signatures):
            self._grow("signatures")
        self._signatures[columns] = found
        self.arrays.signatures[found, :] = 0
        self.arrays.signatures[found, k.SIGNATURE_SIZE] = len(columns)
        self.arrays.signatures[found, k.SIGNATURE_COLUMNS : width] = columns
        return found

    def _purge(self) -> None:
        """Forget signatures that no row has; they come and go where texts are variables."""
        rows = self.arrays.signatures[:, k.SIGNATURE_ROWS]
        for columns, number in [item for item in self._signatures.items() if rows[item[1]] == 0]:
            del self._signatures[columns]
            self._free_signatures.append(number)
        self._purge_at = max(64, 2 * len(self._signatures))

    def new_rows(self, count: int, each: int) -> Numbers:
        """The first rows of `count` stretches of `each` rows."""
        stack, got = self._free_rows.get(each, []), []
        while stack and count:
            last = stack.pop()
            if len(last) > count:
                stack.append(last[count:])
                last = last[:count]
            got.append(last)
            count -= len(last)
        if count:
            start, self._row_top = self._row_top, self._row_top + count * each
            capacity = len(self.arrays.ids)
            if self._row_top > capacity:
                for name in ("rows", "ids", "seen"):
                    self._grow(name, max(self._row_top, capacity + capacity // 2))
            got.append(np.arange(start, self._row_top, each, dtype=np.int64))
        return np.concatenate(got) if len(got) != 1 else got[0]

    def free_rows(self, firsts: Numbers, each: int) -> None:
        """Give stretches of rows back."""
        self._free_rows.setdefault(each, []).append(firsts)

    # --- rows in clusters -------------------------------------------------------------------------

    def insert(self, rows: Numbers, table: int, signature: int, keys: Keys, lows: Keys, highs: Keys) -> None:
        """Insert rows by their access keys[a, i] and their bounds lows[t, i], highs[t, i]."""
        done = 0
        while True:
            done = k.insert_rows(self.arrays, rows, table, signature, keys, lows, highs, done)
            if done == len(rows):
                return
            self._make_room(int(self.arrays.signatures[signature, k.SIGNATURE_SIZE]))

    def remove(self, rows: Numbers) -> None:
        k.remove_rows(self.arrays, rows)

    def write(self, rows: Numbers, part: int, values: Keys) -> None:
        """Write one bound of each row in place: part 1 + 2t is test t's low end, 2 + 2t its high end."""
        a = self.arrays
        k.write_bounds(a.rows, a.blocks, a.pool, rows, part, values)

    def read(self, rows: Numbers, access: int, tests: int) -> tuple[Keys, Keys, Keys]:
        """keys[access, n], lows[tests, n] and highs[tests, n] of rows that are of one plan."""
        keys = np.empty((access, len(rows)), dtype=np.int64)
        lows = np.empty((tests, len(rows)), dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        k.read_rows(self.arrays, rows, keys, lows, highs)
        return keys, lows, highs

    def signatures_of(self, rows: Numbers) -> Numbers:
        """The signature number of every row."""
        a = self.arrays
        clusters = a.blocks[a.rows[rows, k.ROW_BLOCK], k.BLOCK_CLUSTER]
        numbers: Numbers = a.clusters[clusters, k.CLUSTER_SIGNATURE]
        return numbers

    def signature_columns(self, signature: int) -> list[int]:
        """The columns that a signature tests."""
        line = self.arrays.signatures[signature]
        size = int(line[k.SIGNATURE_SIZE])
        return [int(c) for c in line[k.SIGNATURE_COLUMNS : k.SIGNATURE_COLUMNS + size]]

    def mark_codes(self, is_string: npt.NDArray[np.bool_], live: npt.NDArray[np.bool_]) -> None:
        """Mark the string codes that rows name."""
        k.mark_codes(self.arrays, is_string, len(self.tables), live)

    # --- matching -------------------------------------------------------------------------------

    def match(self, keys: Keys, *, shared: bool, ordered: bool) -> tuple[Numbers, Numbers]:
        """CSR offsets and ids of the subscriptions that each event's keys match, each id once."""
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        tables = len(self.tables)
        done = 0
        while True:
            done = k.match_events(self.arrays, tables, keys, done, shared, ordered, offsets, self._out)
            if done == len(keys):
                return offsets, self._out[: offsets[-1]].copy()
            larger = np.empty(2 * len(self._out), dtype=np.int64)
            larger[: offsets[done]] = self._out[: offsets[done]]
            self._out = larger

    def match_bits(
        self, keys: Keys, bits: npt.NDArray[np.uint64], interfaces: int = MAX_INTERFACE + 1
    ) -> None:
        """Set the bits of the interfaces that each event's keys match; `interfaces` is how many are in
        use.
        """
        k.match_bits(self.arrays, len(self.tables), keys, interfaces, bits)

    # --- what a structure says ------------------------------------------------------------------

    def row_bytes(self) -> int:
        """What rows take whatever their tests."""
        return self.arrays.rows.nbytes + self.arrays.ids.nbytes + self.arrays.seen.nbytes

    def structure_bytes(self) -> dict[str, int]:
        """What the structure takes, in bytes, by part."""
        a = self.arrays
        return {
            "tests in blocks": a.pool.nbytes,
            "clusters and blocks": a.clusters.nbytes + a.blocks.nbytes,
            "access index": a.places.nbytes + a.buckets.nbytes,
            "signatures and tables": a.signatures.nbytes + a.tables.nbytes + a.free.nbytes,
            "output": self._out.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        """The structure, a line per table with access predicates and per signature with rows."""
        a = self.arrays
        lines = []
        for attributes, number in self.tables.items():
            buckets = int(a.tables[number, k.TABLE_BUCKETS])
            if buckets:
                names = ", ".join(columns.describe(c) for c in attributes) or "no access predicate"
                lines.append(f"table ({names}): {buckets} bucket{'s' if buckets != 1 else ''}")
        for tested, number in self._signatures.items():
            rows = int(a.signatures[number, k.SIGNATURE_ROWS])
            if rows:
                names = ", ".join(columns.describe(c) for c in tested) or "nothing left to test"
                lines.append(f"tests ({names}): {rows} row{'s' if rows != 1 else ''}")
        return lines

    # --- room -------------------------------------------------------------------------------------

    def _make_room(self, tests: int) -> None:
        a = self.arrays
        top = a.state
        if top[k.POOL_TOP] + (1 << k.LARGEST) * (1 + 2 * tests) > len(a.pool):
            self._grow("pool", max(len(a.pool) * 3 // 2, len(a.pool) + (1 << k.LARGEST) * (1 + 2 * tests)))
        for name, field in (("blocks", k.BLOCK_TOP), ("clusters", k.CLUSTER_TOP), ("buckets", k.BUCKET_TOP)):
            if top[field] >= len(getattr(a, name)):
                self._grow(name)
        if 2 * top[k.PLACES_USED] >= len(a.places):
            live = int(a.tables[:, k.TABLE_BUCKETS].sum())
            places = np.full(max(2 * _SMALLEST, 1 << (4 * live).bit_length()), k.NONE, dtype=np.int32)
            top[k.PLACES_USED] = k.rehash_buckets(a.buckets, top[k.BUCKET_TOP], places)
            self.arrays = self.arrays._replace(places=places)

    def _grow(self, name: str, size: int = 0) -> None:
        old = getattr(self.arrays, name)
        new = np.zeros((size or 2 * len(old), *old.shape[1:]), dtype=old.dtype)
        new[: len(old)] = old
        self.arrays = self.arrays._replace(**{name: new})

    def _widen(self, tests: int) -> None:
        old, free = self.arrays.signatures, self.arrays.free
        signatures = np.zeros((len(old), k.SIGNATURE_COLUMNS + tests), dtype=np.int64)
        signatures[:, : old.shape[1]] = old
        more = np.full((tests + 1, k.LARGEST + 1), k.NONE, dtype=np.int64)
        more[: len(free)] = free
        self.arrays = self.arrays._replace(signatures=signatures, free=more)

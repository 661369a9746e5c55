"""The store of the reference engines: rows of shared predicates, and a structure, each engine's own, that
finds rows.

The structure is built of all rows at once. Rows added or changed since are *young* and compared one by one;
removed and changed rows leave gaps. Invariant: every row is either young, or unchanged and in the structure
once. When one row in 32 is young, the structure is rebuilt.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import store_kernels as k
from covey.matcher.engines.reference.store_kernels import interface_bits, resolve_rows
from covey.matcher.engines.rows.arrays import Ids, Numbers, Runs, grown, wide
from covey.matcher.engines.rows.row_kernels import ROW_FIELDS, ROW_PLACE, ROW_SIGNATURE
from covey.matcher.engines.rows.store import ALL, RowStore
from covey.matcher.events.event_type import EventType
from covey.matcher.events.int64 import FIRST, LAST, MISSING

_SMALLEST = 16
_FEW_YOUNG = 8
_ABSENT, _YOUNG = -1, -2


@dataclass(slots=True)
class RowFields:
    rows: npt.NDArray[np.int32]
    ids: Ids


class SearchedStore(RowStore):
    """A structure that answers with row numbers, which become ids or interfaces after the search."""

    arrays: RowFields

    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        fields = np.full((_SMALLEST, ROW_FIELDS), -1, dtype=np.int32)
        self.arrays = RowFields(fields, np.zeros((_SMALLEST, 1), dtype=np.int32))
        self._seen = np.zeros(0, dtype=np.int64)
        self._stamp = 0
        self._matching_rows: Numbers = np.empty(1024, dtype=np.int64)

    def _resize_rows(self, size: int) -> None:
        rows, ids = self.arrays.rows, self.arrays.ids
        self.arrays = RowFields(grown(rows, size, -1), grown(ids, size))

    def widen_ids(self) -> None:
        self.arrays = RowFields(self.arrays.rows, wide(self.arrays.ids))

    def row_bytes(self) -> int:
        return super().row_bytes() + self._seen.nbytes

    # --- matching ---------------------------------------------------------------------------------

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
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        room = self._most_matches()
        if len(self._matching_rows) < room + 64:
            self._matching_rows = np.empty(room + room // 2 + 64, dtype=np.int64)
        done = 0
        while True:
            done = self._match(keys, done, offsets, self._matching_rows)
            if done == len(keys):
                return offsets, self._matching_rows
            larger = np.empty(2 * len(self._matching_rows), dtype=np.int64)
            larger[: offsets[done]] = self._matching_rows[: offsets[done]]
            self._matching_rows = larger

    def _most_matches(self) -> int:
        """Places that the search of one event may write."""
        return self.row_top

    @abstractmethod
    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        """Matching rows of events from `start` on, CSR; returns the first without `_most_matches` places."""


@dataclass(slots=True)
class Tests:
    """The tests of many rows in sequence: rows[i] has sizes[i] of them, from starts[i] on."""

    rows: Numbers
    sizes: Numbers
    starts: Numbers
    predicates: npt.NDArray[np.int32]
    columns: Numbers
    lows: Keys
    highs: Keys

    @property
    def owners(self) -> Numbers:
        """By test: the position of its row in `rows`."""
        return np.repeat(np.arange(len(self.rows)), self.sizes)


class ReferenceStore(SearchedStore):
    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        state = np.zeros(k.STATE, dtype=np.int64)
        state[k.FREE_HEAD] = -1
        self.predicates = k.Table(
            state=state,
            columns=np.full(64, k.FREE, dtype=np.int32),
            bounds=np.zeros((64, 2), dtype=np.int64),
            users=np.zeros(64, dtype=np.int32),
            hashed=np.full(64, k.FREE, dtype=np.int32),
        )
        self._links: npt.NDArray[np.int32] = np.zeros(64, dtype=np.int32)
        self._runs = Runs("links")
        self._where: npt.NDArray[np.int32] = np.full(len(self.arrays.ids), _ABSENT, dtype=np.int32)
        self._members: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._young = self._arranged = self._width = 0
        self._rows: k.Rows | None = None
        self._build(self._tests(np.zeros(0, dtype=np.int64)))

    # --- rows -------------------------------------------------------------------------------------

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        columns = np.array(self.signatures.columns[signature], dtype=np.int64)
        places = self._runs.allocate(len(rows), max(len(columns), 1))
        if self._runs.top > len(self._links):
            self._links = grown(self._links, max(self._runs.top, len(self._links) * 3 // 2))
        self._links[places + np.arange(len(columns))[:, None]] = self._acquire(columns, lows, highs)
        self._sign(rows, signature)
        self.arrays.rows[rows, ROW_PLACE] = places
        self._become(rows, _YOUNG)

    def remove(self, rows: Numbers) -> None:
        tests = len(self.signatures.columns[self.arrays.rows[rows[0], ROW_SIGNATURE]])
        self._become(rows, _ABSENT)
        k.release_predicates(self.predicates, self._links_of(rows, tests).reshape(-1))
        self._runs.free(self.arrays.rows[rows, ROW_PLACE].astype(np.int64), max(tests, 1))
        self._release_signatures(rows)

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        tests = sorted({(part - 1) // 2 for part in parts})
        for signature, chosen, lows, highs in self._with_parts(rows, parts, values):
            columns = np.array(self.signatures.columns[signature], dtype=np.int64)[tests]
            old = self._links_of(chosen, len(lows))[tests]
            places = self.arrays.rows[chosen, ROW_PLACE].astype(np.int64)
            fresh = self._acquire(columns, lows[tests], highs[tests])
            self._links[places + np.array(tests)[:, None]] = fresh
            k.release_predicates(self.predicates, old.reshape(-1))
            self._become(chosen, _YOUNG)

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        bounds = self.predicates.bounds[self._links_of(rows, tests)]
        return np.ascontiguousarray(bounds[:, :, 0]), np.ascontiguousarray(bounds[:, :, 1])

    def _links_of(self, rows: Numbers, tests: int) -> npt.NDArray[np.int32]:
        """[t, i]: the predicate of test t of rows[i]."""
        links: npt.NDArray[np.int32] = self._links[
            self.arrays.rows[rows, ROW_PLACE] + np.arange(tests)[:, None]
        ]
        return links

    def _become(self, rows: Numbers, state: int) -> None:
        """Set the state of rows, and take them out of the structure."""
        before = self._where[rows]
        placed = before[before >= 0]
        self._members[placed] = -1
        self._arranged -= len(placed)
        self._young += (len(rows) if state == _YOUNG else 0) - int(np.count_nonzero(before == _YOUNG))
        self._where[rows] = state
        self._rows = None

    def _resize_rows(self, size: int) -> None:
        super()._resize_rows(size)
        self._where = grown(self._where, size, _ABSENT)
        self._rows = None

    def _acquire(self, columns: Keys, lows: Keys, highs: Keys) -> npt.NDArray[np.int32]:
        out = np.empty(lows.shape, dtype=np.int32)
        done, lows, highs = 0, np.ascontiguousarray(lows), np.ascontiguousarray(highs)
        while (done := k.acquire_predicates(self.predicates, columns, lows, highs, done, out)) < len(out.T):
            table, tests = self.predicates, len(columns)
            if table.state[k.TOP] + tests > len(table.columns):
                size = 2 * len(table.columns) + tests
                table = table._replace(
                    columns=grown(table.columns, size, -1),
                    bounds=grown(table.bounds, size),
                    users=grown(table.users, size),
                )
            if 2 * (table.state[k.USED] + tests) > len(table.hashed):
                live = int(np.count_nonzero(table.columns >= 0))
                index = np.full(1 << (3 * (live + tests) + 64).bit_length(), k.FREE, dtype=np.int32)
                table.state[k.USED] = k.rehash_predicates(table, index)
                table = table._replace(hashed=index)
            self.predicates = table
        self._rows = None
        return out

    # --- the structure ----------------------------------------------------------------------------

    @abstractmethod
    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        """Build the structure; returns the row at each place, -1 for none. The search answers with places."""

    def begin_match(self, keys: Keys) -> None:
        if self._young > max(_FEW_YOUNG, self._arranged >> 5) or (
            len(self._members) > 4 * (self._arranged + self._young) + 1024
        ):
            tests = self._tests(np.flatnonzero(self._where[: self.row_top] != _ABSENT))
            self._members = self._build(tests)
            self._width = int(tests.columns.max(initial=-1)) + 1
            placed = np.flatnonzero(self._members >= 0)
            self._where[self._members[placed]] = placed
            self._arranged, self._young, self._rows = len(placed), 0, None

    def rows(self) -> k.Rows:
        if self._rows is None:
            self._rows = k.Rows(
                fields=self.arrays.rows,
                links=self._links,
                sizes=np.array([*map(len, self.signatures.columns), 0], dtype=np.int32),
                columns=self.predicates.columns,
                bounds=self.predicates.bounds,
                members=self._members,
                young=np.flatnonzero(self._where[: self.row_top] == _YOUNG).astype(np.int32),
            )
        return self._rows

    def tops_of(self, columns: Numbers) -> Keys:
        """By column: the key of its largest value; of a derived column the largest key."""
        tops = np.append(self.schema.tops(), LAST)
        return tops[np.minimum(columns, len(tops) - 1)]

    def _tests(self, rows: Numbers) -> Tests:
        lengths = np.array([*map(len, self.signatures.columns), 0], dtype=np.int64)
        sizes = lengths[self.arrays.rows[rows, ROW_SIGNATURE]]
        starts = np.cumsum(sizes) - sizes
        places = np.repeat(self.arrays.rows[rows, ROW_PLACE] - starts, sizes) + np.arange(int(sizes.sum()))
        predicates = self._links[places]
        bounds = self.predicates.bounds[predicates]
        columns = self.predicates.columns[predicates].astype(np.int64)
        return Tests(rows, sizes, starts, predicates, columns, bounds[:, 0], bounds[:, 1])

    def _match_all(self, keys: Keys) -> tuple[Numbers, Numbers]:
        return super()._match_all(self._padded(keys))

    def _padded(self, keys: Keys) -> Keys:
        """With MISSING in the columns that only removed rows tested."""
        missing = self._width - keys.shape[1]
        return keys if missing <= 0 else np.pad(keys, ((0, 0), (0, missing)), constant_values=MISSING)

    def _most_matches(self) -> int:
        return max(self.row_top, len(self._members))

    # --- inspection -------------------------------------------------------------------------------

    def row_bytes(self) -> int:
        return super().row_bytes() + self._where.nbytes + self._members.nbytes

    def structure_bytes(self) -> dict[str, int]:
        table = self.predicates
        return {
            "predicates": table.columns.nbytes + table.bounds.nbytes + table.users.nbytes,
            "predicate hash": table.hashed.nbytes,
            "subscription-predicate table": self._links.nbytes,
        }

    def summary(self) -> str:
        return f"{int(np.count_nonzero(self.predicates.columns >= 0))} predicates, {self._young} young rows"


# --- the index of predicates ----------------------------------------------------------------------


def classes_of(lows: Keys, highs: Keys, tops: Keys) -> Numbers:
    classes = np.where(lows == FIRST, k.BELOW, np.where(highs == tops, k.ABOVE, k.RANGE))
    return np.where(lows > highs, k.EMPTY, np.where(lows == highs, k.POINT, classes)).astype(np.int64)


def index_predicates(tests: Tests, store: ReferenceStore) -> tuple[k.Index, Numbers]:
    """An index of the distinct predicates, and the rank of each test's predicate."""
    _, first, of_test = np.unique(tests.predicates, return_index=True, return_inverse=True)
    columns, lows, highs = tests.columns[first], tests.lows[first], tests.highs[first]
    width = int(columns.max(initial=-1)) + 1
    classes = classes_of(lows, highs, store.tops_of(columns))
    edges = np.where(classes == k.BELOW, highs, lows)
    segments = columns * k.CLASSES + classes
    order = np.lexsort((edges, segments))
    ends = np.searchsorted(segments[order], np.arange(width * k.CLASSES + 1))
    highs = highs[order]
    index = k.Index(
        segments=np.stack([ends[:-1], ends[1:]], axis=1).reshape(width, k.CLASSES, 2),
        tops=store.tops_of(np.arange(width)),
        edges=edges[order],
        highs=highs,
        near=_zones(highs, k.NEAR),
        far=_zones(highs, k.FAR),
        spans=np.zeros((len(order) + 1, 2), dtype=np.int64),
    )
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return index, ranks[of_test.reshape(-1)]


def index_bytes(index: k.Index) -> int:
    """Without working memory."""
    return sum(part.nbytes for part in index[:-1])


def _zones(highs: Keys, bits: int) -> Keys:
    padded = np.full(((len(highs) >> bits) + 1) << bits, MISSING, dtype=np.int64)
    padded[: len(highs)] = highs
    zones: Keys = padded.reshape(-1, 1 << bits).max(axis=1)
    return zones

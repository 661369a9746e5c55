"""The search tree engine: the parallel search tree of Aguilera et al. (1999), the engine of Gryphon.

Equalities are edges of the tree (drawn in `search_tree_layout.py`); what is no equality is *don't care* at
its level and is checked in the leaf: the paper does not cover ranges, and edges per range would be tried one
by one. The order of levels is chosen at the first match and whenever the subscriptions have
doubled since: attributes that most rows test for equality come first, so that star edges are few. Invariant:
every row is either in the leaf of its own equalities, or waiting to be put there before the next match.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import search_tree_kernels as kernels
from covey.matcher.engines.reference import search_tree_layout as k
from covey.matcher.engines.reference.reference_store import ReferenceStore
from covey.matcher.engines.rows.arrays import Numbers, Runs, grown
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.evaluation.options import EvaluationOptions
from covey.matcher.events.event_type import EventType

_SMALLEST = 64
_ALMOST_ALL = 0.9
_FACTORS_BY_ITSELF = 2


class SearchTreeStore(ReferenceStore):
    """Rows in the leaves of a search tree."""

    def __init__(
        self, event_type: EventType, factoring: int | None, skip_trivial_tests: bool, delayed_branching: bool
    ) -> None:
        super().__init__(event_type)
        self._attributes = len(event_type.names)
        self._factoring = factoring
        self._options = np.array([factoring or 0, skip_trivial_tests, delayed_branching], dtype=np.int64)
        self._levels = np.arange(self._attributes, dtype=np.int64)
        self._runs = Runs("bounds")
        self._waiting: npt.NDArray[np.bool_] = np.zeros(len(self.arrays.ids), dtype=np.bool_)
        self._placed = 0
        self._placed_at_arrangement = 0
        self._residuals: dict[tuple[int, ...], int] = {}
        self._tree = self._empty_tree()

    def _empty_tree(self) -> k.Tree:
        state = np.zeros(k.STATE, dtype=np.int64)
        state[[k.NODE_FREE, k.BUCKET_FREE, k.ROOT_FREE]] = k.NONE
        ranks = np.empty(self._attributes, dtype=np.int64)
        ranks[self._levels] = np.arange(self._attributes)
        roots = np.full((_SMALLEST, k.ROOT_FIELDS), k.NONE, dtype=np.int64)
        old = getattr(self, "_tree", None)
        size = len(self.arrays.ids)
        return k.Tree(
            state=state,
            nodes=np.full((_SMALLEST, k.NODE_FIELDS), k.UNUSED, dtype=np.int64),
            edges=np.full(_SMALLEST, k.FREE, dtype=np.int64),
            roots=roots,
            root_index=np.full(_SMALLEST, k.FREE, dtype=np.int64),
            masks=np.zeros(2**k.FACTORS, dtype=np.int64),
            levels=self._levels,
            ranks=ranks,
            buckets=np.zeros((_SMALLEST, k.BUCKET_FIELDS), dtype=np.int64),
            pool=np.zeros(1024, dtype=np.int64),
            free=np.full((2, k.SIZES), k.NONE, dtype=np.int64)
            if old is None
            else np.full_like(old.free, k.NONE),
            residuals=np.zeros((_SMALLEST, 2), dtype=np.int64) if old is None else old.residuals,
            bucket_of=np.full(size, k.NONE, dtype=np.int64),
            masks_of=np.zeros(size, dtype=np.int64) if old is None else old.masks_of,
            bounds=np.zeros((_SMALLEST, 2), dtype=np.int64) if old is None else old.bounds,
            signatures=np.zeros(1, dtype=np.int64),
            columns=np.zeros(1, dtype=np.int64),
            scratch=np.zeros((3, k.MASKED), dtype=np.int64),
            options=self._options,
        )

    # --- rows -------------------------------------------------------------------------------------

    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None:
        tests = len(columns)
        places = self._runs.allocate(len(rows), max(tests, 1))
        bounds = self._tree.bounds
        if self._runs.top > len(bounds):
            bounds = grown(bounds, max(self._runs.top, len(bounds) * 3 // 2))
            self._tree = self._tree._replace(bounds=bounds)
        for t in range(tests):
            bounds[places + t, 0], bounds[places + t, 1] = lows[t], highs[t]
        self.arrays.rows[rows, ROW_PLACE] = places
        self._tree.masks_of[rows] = self._edges(columns, lows, highs)
        self._waiting[rows] = True

    def _edges(self, columns: Keys, lows: Keys, highs: Keys) -> Numbers:
        """Which tests of each row are edges, a bit per test: equalities on attributes, one per attribute."""
        masks = np.zeros(lows.shape[1], dtype=np.int64)
        taken: dict[int, npt.NDArray[np.bool_]] = {}
        for t, column in enumerate(columns[: k.MASKED].tolist()):
            if column < self._attributes:
                edge = lows[t] == highs[t]
                if column in taken:
                    edge &= ~taken[column]
                taken[column] = edge | taken.get(column, np.zeros_like(edge))
                masks |= edge.astype(np.int64) << t
        return masks

    def _remove(self, rows: Numbers) -> None:
        self._leave(rows)
        self._waiting[rows] = False
        tests = max(self.tests_of(rows), 1)
        self._runs.free(self.arrays.rows[rows, ROW_PLACE].astype(np.int64), tests)

    def _leave(self, rows: Numbers) -> None:
        placed = rows[self._tree.bucket_of[rows] != k.NONE]
        if len(placed):
            kernels.take_rows(self._tree, placed)
            self._placed -= len(placed)

    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        tree = self._tree
        edge = (tree.masks_of[rows] >> min(test, k.MASKED)) & 1 == 1
        moving = rows[edge]
        if len(moving):
            self._leave(moving)
            self._waiting[moving] = True
        places = self.arrays.rows[rows, ROW_PLACE].astype(np.int64) + test
        tree.bounds[places, 0], tree.bounds[places, 1] = lows[test], highs[test]
        if len(moving):
            columns = np.array(
                self.signatures.columns[int(self.arrays.rows[rows[0], ROW_SIGNATURE])], dtype=np.int64
            )
            tree.masks_of[moving] = self._edges(
                columns, np.ascontiguousarray(lows[:, edge]), np.ascontiguousarray(highs[:, edge])
            )
        still = ~edge & (tree.bucket_of[rows] != k.NONE)
        if still.any():
            staying = rows[still]
            below = tree.masks_of[staying] & ((1 << min(test, k.MASKED)) - 1)
            before = test - np.array([int(mask).bit_count() for mask in below.tolist()], dtype=np.int64)
            bucket, position = tree.bucket_of[staying] >> 32, tree.bucket_of[staying] & 0xFFFFFFFF
            capacity = np.int64(1) << tree.buckets[bucket, k.BUCKET_SIZE]
            word = tree.buckets[bucket, k.BUCKET_START] + position + (1 + 2 * before) * capacity
            tree.pool[word], tree.pool[word + capacity] = lows[test, still], highs[test, still]

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        places = self.arrays.rows[rows, ROW_PLACE][None, :] + np.arange(tests)[:, None]
        bounds = self._tree.bounds[places]
        return np.ascontiguousarray(bounds[:, :, 0]), np.ascontiguousarray(bounds[:, :, 1])

    def _resize_rows(self, size: int) -> None:
        super()._resize_rows(size)
        self._waiting = grown(self._waiting, size)
        self._tree = self._tree._replace(
            bucket_of=grown(self._tree.bucket_of, size, k.NONE), masks_of=grown(self._tree.masks_of, size)
        )

    # --- planting ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        waiting = np.flatnonzero(self._waiting[: self.row_top])
        if not len(waiting):
            return
        self._waiting[waiting] = False
        flat = [column for columns in self.signatures.columns for column in columns]
        starts = np.cumsum([0, *map(len, self.signatures.columns)]).astype(np.int64)
        self._tree = self._tree._replace(signatures=starts, columns=np.array([*flat, 0], dtype=np.int64))
        if self._placed + len(waiting) > 2 * self._placed_at_arrangement:
            placed = np.flatnonzero(self._tree.bucket_of[: self.row_top] != k.NONE)
            everything = np.concatenate([placed, waiting])
            self._placed_at_arrangement = len(everything)
            if self._choose_levels(everything) or not len(placed):
                tree = self._empty_tree()
                self._tree = tree._replace(signatures=self._tree.signatures, columns=self._tree.columns)
                waiting, self._placed = everything, 0
        self._place(waiting)

    def _choose_levels(self, rows: Numbers) -> bool:
        """Put attributes that many rows have edges for first, and factor out those that almost all have; True
        if new.
        """
        counts = np.zeros(self._attributes, dtype=np.int64)
        for (signature, mask), members in self._by_kind(rows):
            columns = self.signatures.columns[signature]
            edges = [column for t, column in enumerate(columns[: k.MASKED]) if mask >> t & 1]
            counts[edges] += len(members)
        levels = np.argsort(-counts, kind="stable").astype(np.int64)
        factors = self._factoring
        if factors is None:
            common = int(np.count_nonzero(counts >= max(_ALMOST_ALL * len(rows), 1)))
            factors = min(common, _FACTORS_BY_ITSELF)
        factors = min(factors, self._attributes)
        new = bool((levels != self._levels).any()) or factors != self._options[k.OPTION_FACTORS]
        self._levels = levels
        self._options[k.OPTION_FACTORS] = factors
        return new

    def _by_kind(self, rows: Numbers) -> list[tuple[tuple[int, int], Numbers]]:
        """Positions in `rows` by (signature, which tests are edges)."""
        signatures = self.arrays.rows[rows, ROW_SIGNATURE].astype(np.int64)
        masks = self._tree.masks_of[rows]
        order = np.lexsort((masks, signatures))
        changes = (np.diff(signatures[order]) != 0) | (np.diff(masks[order]) != 0)
        parts = np.split(order, np.flatnonzero(changes) + 1)
        return [((int(signatures[p[0]]), int(masks[p[0]])), p) for p in parts if len(p)]

    def _place(self, rows: Numbers) -> None:
        residuals = np.empty(len(rows), dtype=np.int64)
        for (signature, mask), members in self._by_kind(rows):
            left = [
                c
                for t, c in enumerate(self.signatures.columns[signature])
                if t >= k.MASKED or not mask >> t & 1
            ]
            residuals[members] = self._residual(tuple(left))
        done = 0
        while True:
            done = kernels.place_rows(self._tree, self.arrays.rows, rows, residuals, done)
            if done == len(rows):
                break
            self._make_room(residuals[done])
        self._placed += len(rows)

    def _residual(self, columns: tuple[int, ...]) -> int:
        """The number of a tuple of columns left to test."""
        number = self._residuals.get(columns)
        if number is None:
            number = self._residuals[columns] = len(self._residuals)
            table, free = self._tree.residuals, self._tree.free
            width = max(table.shape[1], 1 + len(columns))
            if number >= len(table) or width > table.shape[1]:
                larger = np.zeros((max(2 * len(table), number + 1), width), dtype=np.int64)
                larger[: len(table), : table.shape[1]] = table
                table = larger
            if len(columns) >= len(free):
                free = grown(free, len(columns) + 1, k.NONE)
            self._tree = self._tree._replace(residuals=table, free=free)
            table[number, 0] = len(columns)
            table[number, 1 : 1 + len(columns)] = columns
        return number

    def _make_room(self, residual: int) -> None:
        tree, state = self._tree, self._tree.state
        deep = self._attributes + 2 + k.MASKED
        if state[k.NODE_TOP] + deep > len(tree.nodes):
            tree = tree._replace(nodes=grown(tree.nodes, len(tree.nodes) * 3 // 2 + deep, k.UNUSED))
        if 2 * (state[k.EDGES_USED] + deep) > len(tree.edges):
            size = 1 << (4 * (int(state[k.NODES]) + deep)).bit_length() - 1
            edges = np.full(max(size, _SMALLEST), k.FREE, dtype=np.int64)
            state[k.EDGES_USED] = k.rehash_edges(tree.nodes, int(state[k.NODE_TOP]), edges)
            tree = tree._replace(edges=edges)
        if state[k.ROOT_TOP] >= len(tree.roots):
            tree = tree._replace(roots=grown(tree.roots, 2 * len(tree.roots), k.NONE))
        if 2 * (state[k.ROOTS_USED] + 1) > len(tree.root_index):
            live = int(tree.masks.sum())
            index = np.full(1 << (4 * live + _SMALLEST).bit_length(), k.FREE, dtype=np.int64)
            state[k.ROOTS_USED] = k.rehash_roots(tree.roots, int(state[k.ROOT_TOP]), index)
            tree = tree._replace(root_index=index)
        if state[k.BUCKET_TOP] >= len(tree.buckets):
            tree = tree._replace(buckets=grown(tree.buckets, 2 * len(tree.buckets)))
        largest = int(tree.buckets[:, k.BUCKET_COUNT].max())
        words = (2 * largest + 2) * (1 + 2 * int(tree.residuals[residual, 0]))
        if state[k.POOL_TOP] + words > len(tree.pool):
            tree = tree._replace(pool=grown(tree.pool, len(tree.pool) * 3 // 2 + words))
        self._tree = tree

    # --- matching ---------------------------------------------------------------------------------

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        stack = np.zeros(self._attributes + k.MASKED + 8, dtype=np.int64)
        done: int = kernels.search(self._tree, keys, start, self.row_top, stack, offsets, found)
        return done

    def structure_bytes(self) -> dict[str, int]:
        t = self._tree
        return {
            "nodes": t.nodes.nbytes,
            "edges": t.edges.nbytes + t.roots.nbytes + t.root_index.nbytes,
            "leaves": t.buckets.nbytes + t.pool.nbytes,
            "bounds": t.bounds.nbytes,
            "places": t.bucket_of.nbytes + t.masks_of.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        state, factors = self._tree.state, int(self._options[k.OPTION_FACTORS])
        names = [columns.describe(int(column)) for column in self._levels]
        nodes = self._tree.nodes[: state[k.NODE_TOP], k.COLUMN]
        tests, leaves = int((nodes >= 0).sum()), int((nodes == k.LEAF).sum())
        lines = [
            f"factored: {', '.join(names[:factors]) or 'nothing'}",
            f"{int(self._tree.masks.sum())} trees, {tests} tests, {leaves} leaves",
        ]
        for level, column in enumerate(self._levels):
            count = int((nodes == column).sum())
            if count:
                lines.append(f"level {level + 1}, {names[level]}: {count} nodes")
        return [*lines, f"waiting: {int(self._waiting.sum())} rows"]


class SearchTreeEngine(RowEngine):
    """Follows values and don't-care edges from the root to the leaves; see the module.

    `factoring` is how many leading attributes are hashed together instead of being levels (at most 4; by
    itself, up to two that almost all rows test for equality).
    """

    name: ClassVar[str] = "search_tree"

    def __init__(
        self,
        event_type: EventType,
        *,
        factoring: int | None = None,
        skip_trivial_tests: bool = True,
        delayed_branching: bool = True,
        **options: Unpack[EvaluationOptions],
    ) -> None:
        if factoring is not None and not 0 <= factoring <= k.FACTORS:
            raise ValueError(f"factoring {factoring}: expected 0 to {k.FACTORS} attributes")
        self._tree_options = factoring, skip_trivial_tests, delayed_branching
        super().__init__(event_type, **options)

    def empty(self) -> SearchTreeEngine:
        factoring, skip_trivial_tests, delayed_branching = self._tree_options
        return SearchTreeEngine(
            self.event_type,
            factoring=factoring,
            skip_trivial_tests=skip_trivial_tests,
            delayed_branching=delayed_branching,
        )

    def _new_store(self) -> SearchTreeStore:
        return SearchTreeStore(self.event_type, *self._tree_options)

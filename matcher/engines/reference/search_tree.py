"""The search tree engine: the parallel search tree of Aguilera et al. (1999), the engine of Gryphon.

Equalities are edges (drawn in `search_tree_kernels.py`). Other tests are *don't care* at their level and
checked in the leaf: the paper does not cover ranges, and edges per range would be tried one by one.
Attributes that most rows test for equality are the first levels, so that star edges are few.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import search_tree_kernels as k
from covey.matcher.engines.reference.reference_store import ReferenceStore, Tests
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.evaluation.evaluator import EvaluationOptions
from covey.matcher.events.event_type import EventType

_ALMOST_ALL = 0.9
_FACTORS_BY_ITSELF = 2


class SearchTreeStore(ReferenceStore):
    def __init__(
        self, event_type: EventType, factoring: int | None, skip_trivial_tests: bool, delayed_branching: bool
    ) -> None:
        self._attributes = len(event_type.names)
        self._factoring, self._skips, self._delays = factoring, skip_trivial_tests, delayed_branching
        super().__init__(event_type)

    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        owners, count = tests.owners, len(tests.rows)
        edges = np.flatnonzero((tests.columns < self._attributes) & (tests.lows == tests.highs))
        _, first = np.unique(owners[edges] * self._attributes + tests.columns[edges], return_index=True)
        edges = edges[first]  # one per row and attribute
        frequency = np.bincount(tests.columns[edges], minlength=self._attributes)
        self._levels = np.argsort(-frequency, kind="stable")
        self._factors = self._factoring
        if self._factors is None:
            common = int(np.count_nonzero(frequency >= max(_ALMOST_ALL * count, 1)))
            self._factors = min(common, _FACTORS_BY_ITSELF)
        self._factors = min(self._factors, self._attributes)

        group = np.zeros(count, dtype=np.int64)
        roots = np.zeros((count, k.ROOT_FIELDS), dtype=np.int64)  # of every row, then of every group
        nodes: list[Numbers] = []
        lines = np.zeros((0, k.NODE_FIELDS), dtype=np.int64)  # of the node that every group will be
        top = 0
        for level, column in enumerate(self._levels.tolist()):
            wanting = edges[tests.columns[edges] == column]
            rows, keys = owners[wanting], tests.lows[wanting]
            if level < self._factors:
                roots[rows, k.ROOT_MASK] |= 1 << level
                roots[rows, k.ROOT_KEYS + level] = keys
                continue
            if level == self._factors:
                group, roots, lines = _by_root(roots)
            tested = np.ones(len(lines), dtype=np.bool_)
            if self._skips:
                tested = np.bincount(group[rows], minlength=len(lines)) > 0
            number = top + np.cumsum(tested) - 1  # of the node that a group becomes
            made = lines[tested]
            made[:, k.COLUMN] = column
            nodes.append(made)
            top += len(made)
            order = np.lexsort((keys, group[rows]))
            rows, keys, parents = rows[order], keys[order], number[group[rows[order]]]
            new = np.ones(len(rows), dtype=np.bool_)
            new[1:] = (parents[1:] != parents[:-1]) | (keys[1:] != keys[:-1])
            has_edge = np.zeros(count, dtype=np.bool_)
            has_edge[rows] = True
            stays = np.bincount(group[~has_edge], minlength=len(lines)) > 0
            left = np.cumsum(stays) - 1
            stayed = lines[stays]
            below = tested[stays]
            stayed[below] = _lines(
                k.BY_STAR, number[stays][below], np.zeros(int(below.sum()), dtype=np.int64)
            )
            group[~has_edge] = left[group[~has_edge]]
            group[rows] = len(stayed) + np.cumsum(new) - 1
            lines = np.concatenate([stayed, _lines(k.BY_VALUE, parents[new], keys[new])])
        if len(self._levels) == self._factors:
            group, roots, lines = _by_root(roots)
        self._plant(tests, np.setdiff1d(np.arange(len(owners)), edges), [*nodes, lines], roots, group)
        return tests.rows.astype(np.int32)

    def _plant(
        self, tests: Tests, left: Numbers, nodes: list[Numbers], roots: Numbers, leaf_of: Numbers
    ) -> None:
        """Fill the leaves, the last of `nodes`, with the tests `left` of their rows."""
        count, owners = len(tests.rows), tests.owners[left]
        sizes = np.bincount(owners, minlength=count)
        starts = np.cumsum(sizes) - sizes
        residual = np.zeros(count, dtype=np.int64)  # rows that have the same columns left to test share one
        width = int(sizes.max(initial=0))
        for t in range(width):
            has = np.flatnonzero(sizes > t)
            code = np.zeros(count, dtype=np.int64)
            code[has] = tests.columns[left[starts[has] + t]] + 1
            residual = np.unique(residual * (int(code.max()) + 1) + code, return_inverse=True)[1].reshape(-1)
        residuals = np.zeros((int(residual.max(initial=-1)) + 1, 1 + max(width, 1)), dtype=np.int64)
        residuals[residual, 0] = sizes
        for t in range(width):
            has = np.flatnonzero(sizes > t)
            residuals[residual[has], 1 + t] = tests.columns[left[starts[has] + t]]
        order = np.lexsort((residual, leaf_of))
        new = np.ones(count, dtype=np.bool_)
        leaf, kind = leaf_of[order], residual[order]
        new[1:] = (leaf[1:] != leaf[:-1]) | (kind[1:] != kind[:-1])
        first = np.flatnonzero(new)
        rows = np.diff(np.append(first, count))
        words = rows * (1 + 2 * sizes[order[first]])
        begin = np.cumsum(words) - words
        bucket = np.cumsum(new) - 1
        pool = np.zeros(int(words.sum()), dtype=np.int64)
        word = begin[bucket] + np.arange(count) - first[bucket]
        pool[word] = order
        for t in range(width):
            has = np.flatnonzero(sizes[order] > t)
            test, size = left[starts[order[has]] + t], rows[bucket[has]]
            pool[word[has] + (1 + 2 * t) * size] = tests.lows[test]
            pool[word[has] + (2 + 2 * t) * size] = tests.highs[test]
        every = np.concatenate(nodes)
        leaves = every[len(every) - len(nodes[-1]) :]
        leaves[:, k.COLUMN] = k.LEAF
        leaves[:, k.STAR] = np.searchsorted(leaf[first], np.arange(len(leaves)))
        leaves[:, k.EDGES] = np.bincount(leaf[first], minlength=len(leaves))
        values = int(np.count_nonzero(every[:, k.VIA] == k.BY_VALUE))
        self._tree = k.Tree(
            nodes=every,
            edges=np.full(1 << (2 * values + 1).bit_length(), k.FREE, dtype=np.int64),
            roots=roots,
            root_index=np.full(1 << (2 * len(roots) + 1).bit_length(), k.FREE, dtype=np.int64),
            masks=np.zeros(1 << (self._factors or 0), dtype=np.int64),
            factors=self._levels[: self._factors].copy(),
            buckets=np.stack([kind[first], begin, rows], axis=1),
            pool=pool,
            residuals=residuals,
            wanted=np.zeros(k.FACTORS, dtype=np.int64),
            stack=np.zeros(len(self._levels) + 2, dtype=np.int64),
        )
        k.link_nodes(self._tree, self._delays)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        done: int = k.search(self.rows(), self._tree, keys, start, self._most_matches(), offsets, found)
        return done

    def structure_bytes(self) -> dict[str, int]:
        t = self._tree
        return {
            **super().structure_bytes(),
            "nodes": t.nodes.nbytes,
            "edges": t.edges.nbytes + t.roots.nbytes + t.root_index.nbytes,
            "leaves": t.buckets.nbytes + t.pool.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        names = [columns.describe(int(column)) for column in self._levels]
        tested = self._tree.nodes[:, k.COLUMN]
        leaves = int((tested == k.LEAF).sum())
        lines = [
            f"factored: {', '.join(names[: self._factors]) or 'nothing'}",
            f"{len(self._tree.roots)} trees, {len(tested) - leaves} tests, {leaves} leaves",
        ]
        for level, column in enumerate(self._levels.tolist()):
            count = int((tested == column).sum())
            if count:
                lines.append(f"level {level + 1}, {names[level]}: {count} nodes")
        return [*lines, self.summary()]


def _by_root(roots: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Each row's group by its factors, each group's root, and the line of its first node."""
    order = np.lexsort(roots.T)
    ordered = roots[order]
    new = np.ones(len(roots), dtype=np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.empty(len(roots), dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    distinct = np.ascontiguousarray(ordered[new])
    return group, distinct, _lines(k.BY_ROOT, np.arange(len(distinct)), np.zeros(len(distinct), np.int64))


def _lines(via: int, parents: Numbers, keys: Keys) -> Numbers:
    lines = np.zeros((len(parents), k.NODE_FIELDS), dtype=np.int64)
    lines[:, k.VIA], lines[:, k.PARENT], lines[:, k.KEY] = via, parents, keys
    lines[:, [k.STAR, k.STAR_COLUMN]] = k.NONE
    return lines


class SearchTreeEngine(RowEngine):
    """`factoring` is how many leading attributes are hashed together instead of being levels: at most 4, by
    default up to two that almost all rows test for equality.
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

"""A k-d tree of int64 vectors under ids: finds vectors nowhere greater than a given one, and nowhere less.

Vectors lie in blocks of at most `BLOCK`. A block that overflows is split near the median of the column in
which it spreads most. Each node stores the least and the greatest value per column of its subtree, so a
search descends only where an answer may be. A change or search is one kernel call; nodes are split and merged
here. Invariants: every id is in one leaf, the one to which the thresholds lead its vector; a leaf without
vectors exists only during a change. Answers and their order depend on the history of changes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from covey.matcher.covering import region_kernels as kernels
from covey.matcher.covering.region_kernels import ABOVE, BELOW, COUNT, NONE, PARENT, ZONE
from covey.matcher.events.int64 import INT64_MAX, INT64_MIN

BLOCK = 128

_Vector = npt.NDArray[np.int64]


class VectorTree:
    """Vectors of `width` columns; `vector` is the buffer that all calls read."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.vector: _Vector = np.zeros(width, np.int64)
        self._nodes = np.zeros((4, ZONE + 2 * width), np.int64)
        self._ids = np.zeros((4, BLOCK), np.int64)
        self._rows = np.zeros((4, BLOCK, width), np.int64)
        self._root = NONE
        self._allocated = [0, 0]  # numbers of nodes and of blocks
        self._free: tuple[list[int], list[int]] = ([], [])
        self._leaves: dict[int, int] = {}
        self._out = np.zeros((2, BLOCK), np.int64)

    # --- changes --------------------------------------------------------------------------------------------

    def put(self, identity: int) -> None:
        """Add an id with the vector in the buffer, or replace its vector."""
        leaf = self._leaves.get(identity, NONE)
        if leaf != NONE:
            if self._put(identity, leaf) == leaf:
                return
            self.take(identity)
        if self._root == NONE:
            self._root = self._new_leaf(NONE)
        while (leaf := self._put(identity, NONE)) < 0:
            self._split(-2 - leaf)
        self._leaves[identity] = leaf
        if len(self._leaves) >= self._out.shape[1]:
            self._out = np.zeros((2, 2 * len(self._leaves)), np.int64)

    def _put(self, identity: int, leaf: int) -> int:
        result: int = kernels.put(self._nodes, self._ids, self._rows, self._root, leaf, identity, self.vector)
        return result

    def take(self, identity: int) -> None:
        """Remove an id, which must be in the tree."""
        leaf = self._leaves.pop(identity)
        if not kernels.take(self._nodes, self._ids, self._rows, leaf, identity):
            self._drop(leaf)

    def widen(self, columns: int) -> None:
        """Append columns; present vectors get the least number in them."""
        nodes, rows, old_width = self._nodes, self._rows, self.width
        width = self.width = old_width + columns
        self.vector = np.zeros(width, np.int64)
        self._rows = np.full((*rows.shape[:2], width), INT64_MIN)
        self._rows[:, :, :old_width] = rows
        self._nodes = np.full((len(nodes), ZONE + 2 * width), INT64_MIN)
        self._nodes[:, : ZONE + old_width] = nodes[:, : ZONE + old_width]
        self._nodes[:, ZONE + width : ZONE + width + old_width] = nodes[:, ZONE + old_width :]

    # --- the tree -------------------------------------------------------------------------------------------

    def _new(self, pool: int) -> int:
        if self._free[pool]:
            return self._free[pool].pop()
        self._allocated[pool] += 1
        if self._allocated[0] > len(self._nodes):
            self._nodes = np.concatenate([self._nodes, np.zeros_like(self._nodes)])
        if self._allocated[1] > len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        return self._allocated[pool] - 1

    def _new_leaf(self, parent: int) -> int:
        node, block = self._new(0), self._new(1)
        self._nodes[node, :ZONE] = (parent, block, NONE, NONE, 0, 0)
        self._nodes[node, ZONE : ZONE + self.width] = INT64_MAX
        self._nodes[node, ZONE + self.width :] = INT64_MIN
        return node

    def _split(self, leaf: int) -> None:
        zone = self._nodes[leaf, ZONE:]
        varied = zone[: self.width] < zone[self.width :]
        if not varied.any():
            self._stand_beside(leaf)
            return
        column = self._widest(leaf, varied)
        block = int(self._nodes[leaf, BELOW])
        values = np.sort(self._rows[block, :, column])
        distinct = np.flatnonzero(values[1:] > values[:-1]) + 1
        cut = int(distinct[np.argmin(np.abs(distinct - BLOCK // 2))])
        above = self._fork(leaf, column, int(values[cut]))
        goes = self._rows[block, :, column] >= values[cut]
        other = int(self._nodes[above, BELOW])
        for node, to, which in ((above, other, goes), (leaf, block, ~goes)):
            count = int(np.count_nonzero(which))
            self._rows[to, :count] = self._rows[block, which]
            self._ids[to, :count] = self._ids[block, which]
            self._nodes[node, COUNT] = count
            kernels.refit(self._nodes, self._rows, node)
        self._leaves.update(dict.fromkeys(self._ids[other, : BLOCK - cut].tolist(), above))

    def _stand_beside(self, leaf: int) -> None:
        """Where all vectors of a full leaf are equal: gives the one in the buffer another leaf."""
        row = self._rows[self._nodes[leaf, BELOW], 0]
        column = int(np.argmax(row != self.vector))
        present, new = int(row[column]), int(self.vector[column])
        self._fork(leaf, column, max(present, new), above=present <= new)

    def _fork(self, leaf: int, column: int, threshold: int, *, above: bool = True) -> int:
        """Put a fork in a leaf's place, over the leaf and a new one, which it returns."""
        fork = self._new(0)
        new_leaf = self._new_leaf(fork)
        nodes = self._nodes
        self._replace(leaf, fork)
        sides = (leaf, new_leaf) if above else (new_leaf, leaf)
        nodes[fork, BELOW:ZONE] = (*sides, column, threshold, 0)
        nodes[fork, ZONE:] = nodes[leaf, ZONE:]
        nodes[leaf, PARENT] = fork
        return new_leaf

    def _widest(self, leaf: int, varied: npt.NDArray[np.bool_]) -> int:
        """The column in which a leaf spreads most, relative to all vectors, among its `varied` columns. A
        column whose partner is the same for all, one end of one-sided intervals, counts a quarter: half of
        all searches lie on either side of a split there."""
        zones = self._nodes[[self._root, leaf], ZONE:].astype(np.float64)
        whole, spread = zones[:, self.width :] - zones[:, : self.width]
        share = spread / np.maximum(whole, 1.0)
        partner = share.reshape(-1, 2)[:, ::-1].ravel()
        share = np.where(partner > 0.0, share, share / 4)
        return int(np.argmax(np.where(varied, share, -1.0)))

    def _replace(self, old: int, new: int) -> None:
        parent = int(self._nodes[old, PARENT])
        self._nodes[new, PARENT] = parent
        if parent == NONE:
            self._root = new
        else:
            self._nodes[parent, BELOW if self._nodes[parent, BELOW] == old else ABOVE] = new

    def _drop(self, leaf: int) -> None:
        """Remove an empty leaf: its sibling takes their parent's place."""
        nodes, (free_nodes, free_blocks) = self._nodes, self._free
        free_blocks.append(int(nodes[leaf, BELOW]))
        free_nodes.append(leaf)
        fork = int(nodes[leaf, PARENT])
        if fork == NONE:
            self._root = NONE
            return
        self._replace(fork, int(nodes[fork, ABOVE if nodes[fork, BELOW] == leaf else BELOW]))
        free_nodes.append(fork)

    # --- searches ------------------------------------------------------------------------------------------

    def ask(self, covering: bool, covered: bool, exclude: int = NONE) -> tuple[Iterable[int], Iterable[int]]:
        """The ids other than `exclude` of vectors nowhere greater than the buffer, if `covering`; nowhere
        less, if `covered`."""
        out = self._out
        if not kernels.ask(
            self._nodes, self._ids, self._rows, self._root, exclude, self.vector, covering, covered, out
        ):
            return (), ()
        return out[0, 1 : out[0, 0] + 1].tolist(), out[1, 1 : out[1, 0] + 1].tolist()

    @property
    def blocks(self) -> int:
        return self._allocated[1] - len(self._free[1])

    def __contains__(self, identity: int) -> bool:
        return identity in self._leaves

    def __iter__(self) -> Iterator[int]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

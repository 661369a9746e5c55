"""Kernels that evaluate trees on the events that access rows let through.

heads  [ leaves words | ... ]              by signature: its first line in `leaves`, its first in `words`
leaves [ column shape offset | ... ]       a line per leaf: the column it tests, the shape of the test
                                           (`plan.Shape`), and where its bounds are, from the row's place
words  [ AND 6 | 0 | OR 2 | 1 | 2 || .. ]  the trees (drawn in `compile/tree_plan.py`)
bounds [ key | low high | ... ]            by place: the bounds of a row's leaves: one key for an equality
                                           or one end, two for both
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.events.int64 import FIRST
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record

LEAVES, WORDS = range(2)
COLUMN, SHAPE, OFFSET = range(3)

_AND = 0
_FIXED, _LOW, _HIGH, _BOTH = int(Shape.FIXED), int(Shape.LOW), int(Shape.HIGH), int(Shape.BOTH)


class Trees(NamedTuple):
    """The trees of all rows; `tops` has the open high end of every column, `stack` fits the deepest tree."""

    heads: npt.NDArray[np.int32]  # [signatures, 2]
    leaves: npt.NDArray[np.int32]  # [lines, 3]
    words: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.int64]
    tops: npt.NDArray[np.int64]  # [columns]
    stack: npt.NDArray[np.int64]  # [levels, 2]


TREES = record(
    [array(int32, 2), array(int32, 2), array(int32), array(int64), array(int64), array(int64, 2)], Trees
)


@inlined
def leaf_holds(trees, line, place, keys, e):  # type: ignore[no-untyped-def]
    key, shape = keys[e, trees.leaves[line, COLUMN]], trees.leaves[line, SHAPE]
    at = place + trees.leaves[line, OFFSET]
    if shape <= _FIXED:
        return key == trees.bounds[at]
    if shape == _LOW:
        return trees.bounds[at] <= key <= trees.tops[trees.leaves[line, COLUMN]]
    if shape == _HIGH:
        return trees.bounds[at] >= key >= FIRST
    return trees.bounds[at] <= key <= trees.bounds[at + 1]


@inlined
def tree_holds(trees, signature, place, keys, e):  # type: ignore[no-untyped-def]
    """Whether a row's tree holds, with short-circuit evaluation."""
    words, stack = trees.words, trees.stack
    at, leaves = np.int64(trees.heads[signature, WORDS]), np.int64(trees.heads[signature, LEAVES])
    depth, value = 0, True
    while True:
        word = np.int64(words[at])
        at += 1
        if word < 0:
            node = -1 - word
            stack[depth, 0], stack[depth, 1] = node & 1, at + (node >> 1)
            value = node & 1 == _AND
            depth += 1
            if node >> 1 > 0:
                continue
        else:
            value = leaf_holds(trees, leaves + word, place, keys, e)
        while depth > 0:
            operator, end = stack[depth - 1, 0], stack[depth - 1, 1]
            if at < end and value == (operator == _AND):
                break
            at = end
            depth -= 1
        if depth == 0:
            return value


@kernel(
    TREES, frozen(int32, 2), frozen(int64, 2), int64, frozen(int64), frozen(int64), array(int64), array(int64)
)
def evaluate_candidates(  # type: ignore[no-untyped-def]
    trees, rows, keys, first, starts, candidates, offsets, found
):
    """Keep rows whose trees hold, CSR; event `first` + i has candidates[starts[i]:starts[i + 1]]. Returns the
    first event whose candidates do not fit into `found`.
    """
    end = offsets[first]
    for e in range(first, keys.shape[0]):
        start, stop = starts[e - first], starts[e - first + 1]
        if end + stop - start > found.size:
            return e
        for i in range(start, stop):
            row = candidates[i]
            if tree_holds(trees, rows[row, ROW_SIGNATURE], np.int64(rows[row, ROW_PLACE]), keys, e):
                found[end] = row
                end += 1
        offsets[e + 1] = end
    return keys.shape[0]

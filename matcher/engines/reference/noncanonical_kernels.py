"""Kernels of the non-canonical engine: count leaves that hold, evaluate the trees that have enough of them.

Counts are those of `counting_kernels.py`; `need` is the least number of leaves that must hold. On top of it:

    shapes [ AND 6 | 0 | OR 2 | 1 | 2 || ... ]   the trees of all plans (drawn in `compile/tree_plan.py`)
    starts [ 0 | 5 | ... ]                       by plan: the first word; `decided`: counting is enough

Leaf t of a row's tree is its predicate t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.counting_kernels import COUNTED, count_down
from covey.matcher.engines.reference.index_kernels import INDEX
from covey.matcher.engines.reference.predicate_kernels import ROWS, test_passes
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import array, boolean, frozen, inlined, int32, int64, kernel, record

AND = 0


class Trees(NamedTuple):
    """The trees of all rows."""

    plans: npt.NDArray[np.int32]  # [signatures]
    shapes: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]  # [plans]
    decided: npt.NDArray[np.bool_]  # [plans]
    stack: npt.NDArray[np.int64]  # [levels, 2]


TREES = record(
    [array(int32), array(int32), array(int32), array(boolean), array(int64, 2)], Trees
)


@inlined
def holds(trees, rows, row, keys, e):  # type: ignore[no-untyped-def]
    """Whether the tree of a row holds; skips what cannot change it."""
    shapes, stack, leaves = trees.shapes, trees.stack, np.int64(rows.fields[row, ROW_PLACE])
    at = np.int64(trees.starts[trees.plans[rows.fields[row, ROW_SIGNATURE]]])
    depth, value = 0, True
    while True:
        word = np.int64(shapes[at])
        at += 1
        if word < 0:
            node = -1 - word
            stack[depth, 0], stack[depth, 1] = node & 1, at + (node >> 1)
            value = node & 1 == AND
            depth += 1
            if node >> 1 > 0:
                continue
        else:
            value = test_passes(rows, leaves + word, keys, e)
        while depth > 0:
            operator, end = stack[depth - 1, 0], stack[depth - 1, 1]
            if at < end and value == (operator == AND):
                break
            at = end
            depth -= 1
        if depth == 0:
            return value


@kernel(ROWS, COUNTED, TREES, INDEX, frozen(int64, 2), int64, int64, array(int64), array(int64))
def evaluate_events(  # type: ignore[no-untyped-def]
    rows, counted, trees, index, keys, start, room, offsets, found
):
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows."""
    for e in range(start, keys.shape[0]):
        end = offsets[e]
        if end + room > found.size:
            return e
        candidates = count_down(counted, index, keys, e, found, end)
        for i in range(end, candidates):
            row = rows.members[found[i]]
            if row >= 0:
                plan = trees.plans[rows.fields[row, ROW_SIGNATURE]]
                if trees.decided[plan] or holds(trees, rows, row, keys, e):
                    found[end] = row
                    end += 1
        for y in range(rows.young.size):
            if holds(trees, rows, rows.young[y], keys, e):
                found[end] = rows.young[y]
                end += 1
        offsets[e + 1] = end
    return keys.shape[0]

"""Kernels of the non-canonical engine: count leaves that hold, evaluate the trees that have enough of them.

The lists and counts are those of the counting engine (`counting_kernels.py`): a row's links are the leaves of
its tree, in order, and `need` is its minimum predicate count (at most 255: more only makes candidates fewer).
On top of them:

    shapes [ AND 6 | 0 | OR 2 | 1 | 2 || ... ]   the trees of all plans (drawn in `compile/tree_plan.py`)
    starts [ 0 | 5 | ... ]                       by plan: the first word; `decided`: counting is enough
    true   [ stamp stamp ... ]                   by predicate: the last event that satisfied it, if kept

Leaf t of a row's tree is its link t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.counting_kernels import ORDER
from covey.matcher.engines.reference.list_kernels import COUNT, LISTS, SIZE, START
from covey.matcher.engines.reference.predicate_kernels import PREDICATES, satisfied
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import array, boolean, frozen, inlined, int32, int64, kernel, record, uint8

AND = 0


class Trees(NamedTuple):
    """The trees of all rows."""

    plans: npt.NDArray[np.int32]  # [signatures]
    shapes: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]  # [plans]
    decided: npt.NDArray[np.bool_]  # [plans]
    true: npt.NDArray[np.int64]  # [predicates]
    stack: npt.NDArray[np.int64]  # [levels, 2]


TREES = record(
    [array(int32), array(int32), array(int32), array(boolean), array(int64), array(int64, 2)], Trees
)


@inlined
def holds(trees, links, leaves, at, stamp):  # type: ignore[no-untyped-def]
    """Whether the tree at a word holds, its leaves being links[leaves:]; skips what cannot change it."""
    shapes, stack, true = trees.shapes, trees.stack, trees.true
    depth, value = 0, True
    while True:
        word = shapes[at]
        at += 1
        if word < 0:
            node = -1 - np.int64(word)
            stack[depth, 0], stack[depth, 1] = node & 1, at + (node >> 1)
            value = node & 1 == AND
            depth += 1
            if node >> 1 > 0:
                continue
        else:
            value = true[links[leaves + word, 0]] == stamp
        while depth > 0:
            operator, end = stack[depth - 1, 0], stack[depth - 1, 1]
            if at < end and value == (operator == AND):
                break
            at = end
            depth -= 1
        if depth == 0:
            return value


@inlined
def count_once(row, left, found, end):  # type: ignore[no-untyped-def]
    """Count a leaf that holds; the row becomes a candidate when its count is reached."""
    if left[row] > 0:
        left[row] -= 1
        if left[row] == 0:
            found[end] = row
            end += 1
    return end


@inlined
def count_list(lists, predicate, left, found, end):  # type: ignore[no-untyped-def]
    count, start = lists.heads[predicate, COUNT], lists.heads[predicate, START]
    if lists.heads[predicate, SIZE] == 0:
        return end if count == 0 else count_once(start, left, found, end)
    for i in range(start, start + count):
        end = count_once(lists.pool[i], left, found, end)
    return end


@kernel(
    PREDICATES, LISTS, ORDER, TREES, boolean, array(int32, 2), frozen(int32, 2), frozen(uint8), array(uint8),
    frozen(int64, 2), int64, array(int32), array(int32, 2), array(int64), array(int64),
)  # fmt: skip
def evaluate_events(  # type: ignore[no-untyped-def]
    table, lists, order, trees, evaluating, links, rows, need, left, keys, start, hits, spans, offsets, found
):
    """Rows that match events `start` and later, CSR; returns the first event without room for `need.size`
    rows.

    `evaluating`: some row is not decided by counting alone. `need` ends where the row numbers in use do.
    true[0], of the predicate that always holds, counts events.
    """
    end, true = offsets[start], trees.true
    for e in range(start, keys.shape[0]):
        if end + need.size > found.size:
            return e
        for row in range(need.size):
            left[row] = need[row]
        true[0] += 1
        stamp = true[0]
        count, stretches = satisfied(table, keys, e, hits, spans)
        candidates = end
        for h in range(count):
            if evaluating and hits[h] > 0:
                true[hits[h]] = stamp
            candidates = count_list(lists, hits[h], left, found, candidates)
        for s in range(stretches):
            for at in range(spans[s, 0], spans[s, 1]):
                if evaluating:
                    true[table.ordered[at]] = stamp
                if order.single[at] >= 0:
                    candidates = count_once(order.single[at], left, found, candidates)
                else:
                    candidates = count_list(lists, table.ordered[at], left, found, candidates)
        for i in range(end, candidates):
            row = found[i]
            plan = trees.plans[rows[row, ROW_SIGNATURE]]
            if trees.decided[plan] or holds(trees, links, rows[row, ROW_PLACE], trees.starts[plan], stamp):
                found[end] = row
                end += 1
        offsets[e + 1] = end
    return keys.shape[0]

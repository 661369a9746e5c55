"""Kernels of the counting engine, and of the non-canonical one, which evaluates the trees of counted rows.

    starts    [ 0 | 2 | 3 | ... ]       by rank of a predicate: the first of its places in
    places    [ 7 9 | 4 | ... ]         the rows that have it (predicate-subscription association)
    need      [ 5 5 3 ... ]             predicates per row;  left: the same, counted down by an event

An event satisfies stretches of ranks, and so of `places`; the row whose count reaches 0 matches. Counting
down takes one random access where the papers' hit vector and count vector take two, and no pass over all rows
at the end. Of a tree, `need` is the least number of leaves that must hold:

    shapes [ AND 6 | 0 | OR 2 | 1 | 2 || ... ]   the trees of all plans (drawn in `compile/tree_plan.py`)
    starts [ 0 | 5 | ... ]                       by plan: the first word; `decided`: counting is enough
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.store_kernels import INDEX, ROWS, finish_event, satisfied, test_passes
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import array, boolean, frozen, inlined, int32, int64, kernel, record, uint16


class Counted(NamedTuple):
    starts: npt.NDArray[np.int64]  # [ranks + 1]
    places: npt.NDArray[np.int32]
    need: npt.NDArray[np.uint16]
    left: npt.NDArray[np.uint16]
    always: npt.NDArray[np.int64]  # places of rows without tests


COUNTED = record([array(int64), array(int32), array(uint16), array(uint16), array(int64)], Counted)


@inlined
def count_down(counted, index, keys, e, found, end):  # type: ignore[no-untyped-def]
    """Append the places of rows with as many satisfied predicates as they need; returns the new end."""
    places, left = counted.places, counted.left
    for place in range(left.size):  # a slice assigned would be copied first, in case the two overlap
        left[place] = counted.need[place]
    for i in range(counted.always.size):
        found[end] = counted.always[i]
        end += 1
    for s in range(satisfied(index, keys, e)):
        for i in range(counted.starts[index.spans[s, 0]], counted.starts[index.spans[s, 1]]):
            place = places[i]
            left[place] -= 1
            if left[place] == 0:
                found[end] = place
                end += 1
    return end


@kernel(ROWS, COUNTED, INDEX, frozen(int64, 2), int64, int64, array(int64), array(int64))
def count_events(rows, counted, index, keys, start, room, offsets, found):  # type: ignore[no-untyped-def]
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows."""
    for e in range(start, keys.shape[0]):
        first = offsets[e]
        if first + room > found.size:
            return e
        end = count_down(counted, index, keys, e, found, first)
        offsets[e + 1] = finish_event(rows, keys, e, found, first, end)
    return keys.shape[0]


AND = 0


class Trees(NamedTuple):
    plans: npt.NDArray[np.int32]  # [signatures]
    shapes: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]  # [plans]
    decided: npt.NDArray[np.bool_]  # [plans]
    stack: npt.NDArray[np.int64]  # [levels, 2]


TREES = record([array(int32), array(int32), array(int32), array(boolean), array(int64, 2)], Trees)


@inlined
def holds(trees, rows, row, keys, e):  # type: ignore[no-untyped-def]
    """Whether a row's tree holds, with short-circuits; leaf t of the tree is the row's predicate t."""
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

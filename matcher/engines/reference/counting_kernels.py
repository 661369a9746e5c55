"""Kernels of the counting engine: which rows have which predicate, and how many of a row's still miss.

    lists  of predicate p             rows that have p (predicate-subscription association)
    links  [ p pos | p pos | ... ]    a row's predicates, and where it stands in their lists
                                      (subscription-predicate association: what makes updates cheap)
    single [ 7 | -1 | 3 | ... ]       beside the predicates in order: the row of one that has one, else -1
    places [ 2 | -1 | 0 | ... ]       where a predicate stands in that order, so that `single` follows it
    need   [ 5 5 3 ... ]              predicates per row;  left: the same, counted down by an event

An event walks the lists of the predicates it satisfies; the row whose count reaches 0 matches. Counting down
needs one array at random where the hit vector and the count vector of the papers are two, and no pass over
all rows at the end. Where predicates hardly repeat, `single` saves the jump to the list: 0.7 ns instead of 4
per predicate (100,000 rows).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.list_kernels import COUNT, LISTS, SIZE, START, growth, pull, push
from covey.matcher.engines.reference.predicate_kernels import PREDICATES, satisfied
from covey.matcher.engines.rows.row_kernels import ROW_PLACE
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record, uint8, uint16

FEW_TESTS = 64
"""Rows of more tests ask for room by a sum that is larger, but linear in their number."""


class Order(NamedTuple):
    """Arrays in the order of the sorted predicates; drawn above."""

    single: npt.NDArray[np.int32]  # [ordered predicates]
    places: npt.NDArray[np.int32]  # [predicates]


ORDER = record([array(int32), array(int32)], Order)


@inlined
def note_single(lists, order, predicate):  # type: ignore[no-untyped-def]
    """Follow a change of a predicate's list in `single`."""
    place = order.places[predicate]
    if place >= 0:
        alone = lists.heads[predicate, COUNT] == 1 and lists.heads[predicate, SIZE] == 0
        order.single[place] = lists.heads[predicate, START] if alone else np.int32(-1)


@kernel(LISTS, ORDER, array(int32, 2), frozen(int32, 2), frozen(int64), frozen(int32, 2), int64)
def attach_rows(  # type: ignore[no-untyped-def]
    lists, order, links, row_table, rows, predicates, start
):
    """Enter rows[start:] in the lists of predicates[t, i]; returns the first row without room."""
    tests = predicates.shape[0]
    for i in range(start, rows.size):
        wanted = np.int64(0)
        for t in range(tests):  # a row may have a predicate more than once
            if tests <= FEW_TESTS:
                wanted += growth(lists, predicates[t, i], tests)
            else:  # as much for each time that it is named is enough, too, and does not grow with the square
                wanted += 4 * (np.int64(lists.heads[predicates[t, i], COUNT]) + 1)
        if lists.state[0] + wanted > lists.pool.size:
            return i
        at = row_table[rows[i], ROW_PLACE]
        for t in range(tests):
            links[at + t, 0] = predicates[t, i]
            links[at + t, 1] = push(lists, predicates[t, i], rows[i])
            note_single(lists, order, predicates[t, i])
    return rows.size


@inlined
def detach(lists, order, links, row_table, at):  # type: ignore[no-untyped-def]
    """Remove the row of a link from its predicate's list, and update the link of the row that moved there."""
    predicate, position = links[at, 0], links[at, 1]
    last = lists.heads[predicate, COUNT] - 1
    moved = pull(lists, predicate, position)
    note_single(lists, order, predicate)
    if moved >= 0:
        there = row_table[moved, ROW_PLACE]
        while links[there, 0] != predicate or links[there, 1] != last:
            there += 1
        links[there, 1] = position


@kernel(LISTS, ORDER, array(int32, 2), frozen(int32, 2), frozen(int64), int64)
def detach_rows(lists, order, links, row_table, rows, tests):  # type: ignore[no-untyped-def]
    """Take rows out of the lists of all their predicates, so many each."""
    for i in range(rows.size):
        at = row_table[rows[i], ROW_PLACE]
        for t in range(tests):
            detach(lists, order, links, row_table, at + t)
            links[at + t, 0] = -1
    return 0


@kernel(LISTS, ORDER, array(int32, 2), frozen(int32, 2), frozen(int64), int64, frozen(int32), int64)
def relink_rows(  # type: ignore[no-untyped-def]
    lists, order, links, table, rows, test, predicates, start
):
    """Give test `test` of rows[start:] another predicate; returns the first row without room."""
    for i in range(start, rows.size):
        if lists.state[0] + growth(lists, predicates[i], 1) > lists.pool.size:
            return i
        at = table[rows[i], ROW_PLACE] + test
        detach(lists, order, links, table, at)
        links[at, 0] = predicates[i]
        links[at, 1] = push(lists, predicates[i], rows[i])
        note_single(lists, order, predicates[i])
    return rows.size


@inlined
def count_down(lists, predicate, left, found, end):  # type: ignore[no-untyped-def]
    count = lists.heads[predicate, COUNT]
    if count == 0:
        return end
    start = lists.heads[predicate, START]
    if lists.heads[predicate, SIZE] == 0:
        left[start] -= 1
        if left[start] == 0:
            found[end] = start
            end += 1
        return end
    for i in range(start, start + count):
        row = lists.pool[i]
        left[row] -= 1
        if left[row] == 0:
            found[end] = row
            end += 1
    return end


def _count_events(  # type: ignore[no-untyped-def]
    table, lists, order, need, left, keys, start, hits, spans, offsets, found
):
    """Rows that match events `start` and later, CSR; returns the first event without room for `need.size`
    rows.

    `need` ends where the row numbers in use do.
    """
    end = offsets[start]
    for e in range(start, keys.shape[0]):
        if end + need.size > found.size:
            return e
        for row in range(need.size):  # a slice assigned would be copied first, in case the two overlap
            left[row] = need[row]
        count, stretches = satisfied(table, keys, e, hits, spans)
        for h in range(count):
            end = count_down(lists, hits[h], left, found, end)
        for s in range(stretches):
            for at in range(spans[s, 0], spans[s, 1]):
                row = order.single[at]
                if row >= 0:
                    left[row] -= 1
                    if left[row] == 0:
                        found[end] = row
                        end += 1
                else:
                    end = count_down(lists, table.ordered[at], left, found, end)
        offsets[e + 1] = end
    return keys.shape[0]


# One byte per row as long as no row has more than 255 tests, and two from then on.
count_events = kernel(
    PREDICATES, LISTS, ORDER, frozen(uint8), array(uint8), frozen(int64, 2), int64,
    array(int32), array(int32, 2), array(int64), array(int64),
)(_count_events)  # fmt: skip
count_events_16 = kernel(
    PREDICATES, LISTS, ORDER, frozen(uint16), array(uint16), frozen(int64, 2), int64,
    array(int32), array(int32, 2), array(int64), array(int64),
)(_count_events)  # fmt: skip

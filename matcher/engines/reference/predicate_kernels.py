"""Kernels of the predicate table: every distinct `lo <= key <= hi` once, and which of them an event
satisfies.

    hashed [ -1 | 4 | 0 | -2 | ... ]      predicate numbers by hash of (column, lo, hi); FREE, GONE
    bounds [ lo hi | lo hi | ... ]        two words per predicate, side by side: they are read together

A predicate is of one class, and each class of a column has its own way to be found by an event's key k:

    POINT   lo = hi                       one probe of `hashed` with (column, k, k)
    BELOW   lo = the lowest key there is  sorted by hi: all from the first hi >= k on
    ABOVE   hi = the largest value's key  sorted by lo: all up to the last lo <= k
    RANGE   anything else                 sorted by lo, with the largest hi of every 32 and 1,024 entries:
                                          what lies before the last lo <= k and reaches k
    EMPTY   lo > hi                       never

    ordered [ BELOW of column 0 | ABOVE of column 0 | RANGE of column 0 | BELOW of column 1 | ... ]   numbers
    edges   [ the bound that each is sorted by .......................................... ]
    highs   [ hi of each, so that a RANGE predicate costs no jump to `bounds` ........... ]

Predicates that came after the last sorting are `young` and are tested one by one; those that went stay in
`ordered` with no users until the next sorting, and keep their number till then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.jit.hashing import first_hash, mix, spread
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record

FREE = np.int32(-1)
GONE = np.int32(-2)
MISSING = np.int64(-(2**63))
FIRST = np.int64(-(2**63) + 1)

TRUE = 0
"""The number of the predicate that every event satisfies; it has no column."""

# state: single numbers
TOP, FREE_HEAD, INDEX_USED, YOUNG, DEAD = range(5)
STATE = 5

POINT, BELOW, ABOVE, RANGE, EMPTY = 0, 1, 2, 3, 4
SORTED_CLASSES = 3  # BELOW, ABOVE, RANGE

NEAR, FAR = 5, 10
"""Zones of the RANGE class: the largest hi of 2**5 and of 2**10 entries."""


class Predicates(NamedTuple):
    """The table, and its sorted part as of the last sorting."""

    state: npt.NDArray[np.int64]
    tops: npt.NDArray[np.int64]  # [columns]: the largest key of a value, NaN left out
    columns: npt.NDArray[np.int32]  # [predicates]; FREE where there is none
    bounds: npt.NDArray[np.int64]  # [predicates, 2]
    users: npt.NDArray[np.int32]  # [predicates]
    hashed: npt.NDArray[np.int32]
    young: npt.NDArray[np.int32]
    points: npt.NDArray[np.int64]  # [columns]: POINT predicates per column
    segments: npt.NDArray[np.int64]  # [columns, 3, 2]: first and last + 1 in `ordered`
    ordered: npt.NDArray[np.int32]
    edges: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    near: npt.NDArray[np.int64]  # [(entries >> NEAR) + 1]
    far: npt.NDArray[np.int64]  # [(entries >> FAR) + 1]


PREDICATES = record(
    [array(int64), array(int64), array(int32), array(int64, 2), array(int32), array(int32), array(int32),
     array(int64), array(int64, 3), array(int32), array(int64), array(int64), array(int64), array(int64)],
    Predicates,
)  # fmt: skip


@inlined
def hash_predicate(column, low, high):  # type: ignore[no-untyped-def]
    h = spread(mix(first_hash(np.int64(column) + 1), low) ^ high)
    return h ^ (h >> 29) ^ (h >> 47)


@inlined
def class_of(top, low, high):  # type: ignore[no-untyped-def]
    if low > high:
        return EMPTY
    if low == high:
        return POINT
    if low == FIRST:
        return BELOW
    return ABOVE if high == top else RANGE


@inlined
def find_predicate(table, column, low, high):  # type: ignore[no-untyped-def]
    """The number of a predicate, or -1."""
    mask = np.int64(table.hashed.size - 1)
    place = hash_predicate(column, low, high) & mask
    while table.hashed[place] != FREE:
        p = table.hashed[place]
        if p >= 0 and table.bounds[p, 0] == low and table.bounds[p, 1] == high and table.columns[p] == column:
            return np.int64(p)
        place = (place + 1) & mask
    return np.int64(-1)


@kernel(PREDICATES, frozen(int64), frozen(int64, 2), frozen(int64, 2), int64, array(int32, 2))
def acquire_predicates(table, columns, lows, highs, start, out):  # type: ignore[no-untyped-def]
    """out[t, i] is the number of `lows[t, i] <= columns[t] <= highs[t, i]`, with one user more, for i from
    `start` on.

    Returns the first i for which there was no room, or the number of all.
    """
    state = table.state
    mask = np.int64(table.hashed.size - 1)
    tests = columns.size
    for i in range(start, lows.shape[1]):
        if (
            state[TOP] + tests > table.columns.size
            or state[YOUNG] + tests > table.young.size
            or 2 * (state[INDEX_USED] + tests) > table.hashed.size
        ):
            return i
        for t in range(tests):
            column, low, high = columns[t], lows[t, i], highs[t, i]
            place = hash_predicate(column, low, high) & mask
            vacant = np.int64(-1)
            found = np.int64(-1)
            while table.hashed[place] != FREE:
                p = table.hashed[place]
                if p == GONE:
                    if vacant < 0:
                        vacant = place
                elif table.bounds[p, 0] == low and table.bounds[p, 1] == high and table.columns[p] == column:
                    found = np.int64(p)
                    break
                place = (place + 1) & mask
            if found < 0:
                found = state[FREE_HEAD]
                if found < 0:
                    found = state[TOP]
                    state[TOP] += 1
                else:
                    state[FREE_HEAD] = table.bounds[found, 0]
                table.columns[found] = column
                table.bounds[found, 0] = low
                table.bounds[found, 1] = high
                table.users[found] = 0
                if vacant < 0:
                    vacant = place
                    state[INDEX_USED] += 1
                table.hashed[vacant] = found
                kind = class_of(table.tops[column], low, high)
                if kind == POINT:
                    table.points[column] += 1
                elif kind != EMPTY:
                    table.young[state[YOUNG]] = found
                    state[YOUNG] += 1
            table.users[found] += 1
            out[t, i] = found
    return lows.shape[1]


@kernel(PREDICATES, frozen(int32))
def release_predicates(table, predicates):  # type: ignore[no-untyped-def]
    """One user less for each; what no one uses leaves the index, and its number is free once nothing sorted
    names it.
    """
    state = table.state
    mask = np.int64(table.hashed.size - 1)
    for i in range(predicates.size):
        p = predicates[i]
        if p == TRUE:
            continue
        table.users[p] -= 1
        if table.users[p] > 0:
            continue
        column, low, high = table.columns[p], table.bounds[p, 0], table.bounds[p, 1]
        place = hash_predicate(column, low, high) & mask
        while table.hashed[place] != p:
            place = (place + 1) & mask
        if table.hashed[(place + 1) & mask] == FREE:
            table.hashed[place] = FREE
            state[INDEX_USED] -= 1
        else:
            table.hashed[place] = GONE
        kind = class_of(table.tops[column], low, high)
        if kind in (POINT, EMPTY):
            if kind == POINT:
                table.points[column] -= 1
            table.columns[p] = FREE
            table.bounds[p, 0] = state[FREE_HEAD]
            state[FREE_HEAD] = p
        else:
            state[DEAD] += 1
    return 0


@kernel(PREDICATES, frozen(int32))
def free_predicates(table, predicates):  # type: ignore[no-untyped-def]
    """Give back the numbers of predicates that nothing names any more."""
    for i in range(predicates.size):
        p = predicates[i]
        table.columns[p] = FREE
        table.bounds[p, 0] = table.state[FREE_HEAD]
        table.state[FREE_HEAD] = p
    return 0


@kernel(PREDICATES, array(int32))
def rehash_predicates(table, index):  # type: ignore[no-untyped-def]
    """Enter all predicates with users into a new, empty index; returns how many there are."""
    mask = np.int64(index.size - 1)
    used = 0
    for p in range(1, table.state[TOP]):
        if table.columns[p] != FREE and table.users[p] > 0:
            place = hash_predicate(table.columns[p], table.bounds[p, 0], table.bounds[p, 1]) & mask
            while index[place] != FREE:
                place = (place + 1) & mask
            index[place] = p
            used += 1
    return used


@inlined
def first_at_least(edges, start, end, key):  # type: ignore[no-untyped-def]
    """The first position in edges[start:end], which ascends, whose edge is >= key."""
    while start < end:
        middle = (start + end) >> 1
        if edges[middle] < key:
            start = middle + 1
        else:
            end = middle
    return start


@inlined
def reaching(table, start, end, key, spans, count):  # type: ignore[no-untyped-def]
    """Append stretches of ordered[start:end], RANGE predicates with lo <= key, whose hi reaches the key."""
    at = start
    while at < end:
        if at & ((1 << FAR) - 1) == 0 and table.far[at >> FAR] < key:
            at += 1 << FAR
            continue
        if at & ((1 << NEAR) - 1) == 0 and table.near[at >> NEAR] < key:
            at += 1 << NEAR
            continue
        stop = min(end, ((at >> NEAR) + 1) << NEAR)
        while at < stop:
            if table.highs[at] >= key:
                if count > 0 and spans[count - 1, 1] == at:
                    spans[count - 1, 1] = at + 1
                else:
                    spans[count, 0], spans[count, 1] = at, at + 1
                    count += 1
            at += 1
    return count


@inlined
def satisfied(table, keys, e, hits, spans):  # type: ignore[no-untyped-def]
    """What event e satisfies: numbers in `hits`, and stretches of `ordered` in spans[:, first and last + 1].

    Returns how many of each: at most one hit per column, one per young predicate and one more; at most one
    stretch per entry of `ordered`. Predicates without users may be among them.
    """
    hits[0] = TRUE
    count, stretches = 1, 0
    for column in range(min(table.segments.shape[0], keys.shape[1])):  # a derived column may have been freed
        key = keys[e, column]
        if table.points[column] > 0:
            p = find_predicate(table, column, key, key)
            if p >= 0:
                hits[count] = p
                count += 1
        if key == MISSING:
            continue
        start, end = table.segments[column, 0, 0], table.segments[column, 0, 1]
        if start < end:
            start = first_at_least(table.edges, start, end, key)
            if start < end:
                spans[stretches, 0], spans[stretches, 1] = start, end
                stretches += 1
        if key > table.tops[column]:
            continue
        start, end = table.segments[column, 1, 0], table.segments[column, 1, 1]
        if start < end:
            end = first_at_least(table.edges, start, end, key + 1)
            if start < end:
                spans[stretches, 0], spans[stretches, 1] = start, end
                stretches += 1
        start, end = table.segments[column, 2, 0], table.segments[column, 2, 1]
        if start < end:
            end = first_at_least(table.edges, start, end, key + 1)
            stretches = reaching(table, start, end, key, spans, stretches)
    for y in range(table.state[YOUNG]):
        p = table.young[y]
        column = table.columns[p]
        if table.bounds[p, 0] <= keys[e, column] and keys[e, column] <= table.bounds[p, 1]:
            hits[count] = p
            count += 1
    return count, stretches

"""Kernels that the reference engines share: rows, their predicates, an index of these, and answers.

links   [ 7 2 4 | 2 5 | ... ]         the predicates of a row, from its place on
bounds  [ lo hi | lo hi | ... ]       by predicate; equal ones have one number while rows have it
hashed  [ -1 | 4 | 0 | -2 | ... ]     numbers by hash of (column, lo, hi); FREE, GONE
members [ 12 | -1 | 3 | ... ]         by place in an engine's structure: the row; -1 once it has changed
young   [ 8 | 15 ]                    rows that are in no structure yet, and are compared one by one

The index finds the distinct predicates that an event satisfies (Fabret et al. 2001, 2), as stretches of
*ranks*, their positions in `edges`. Each class of a column's predicates is searched in its own way:

    POINT   lo = hi                       sorted: the one with k
    BELOW   lo = the lowest key there is  sorted by hi: all from the first hi >= k on
    ABOVE   hi = the largest value's key  sorted by lo: all up to the last lo <= k
    RANGE   anything else                 sorted by lo, with the largest hi of every 32 and 1,024 entries:
                                          what lies before the last lo <= k and reaches k
    EMPTY   lo > hi                       never
    edges   [ POINT of column 0 | BELOW of column 0 | ABOVE .. | RANGE .. | POINT of column 1 | ... ]
    highs   [ hi of each ......................................................................... ]

A subscription of several rows is answered once: seen[first row] is the stamp of the last event it matched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE, first_of, id_of, interface_of
from covey.matcher.events.int64 import MISSING
from covey.matcher.jit.kernel import (
    array,
    boolean,
    first_hash,
    frozen,
    inlined,
    int32,
    int64,
    kernel,
    mix,
    record,
    spread,
    uint64,
)

# --- predicates and rows --------------------------------------------------------------------------


FREE = np.int32(-1)
GONE = np.int32(-2)

TOP, FREE_HEAD, USED = range(3)
STATE = 3


class Table(NamedTuple):
    state: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]  # [predicates]; FREE where there is none
    bounds: npt.NDArray[np.int64]  # [predicates, 2]
    users: npt.NDArray[np.int32]  # [predicates]
    hashed: npt.NDArray[np.int32]  # a power of two


class Rows(NamedTuple):
    fields: npt.NDArray[np.int32]  # [rows, ROW_FIELDS]
    links: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int32]  # [signatures]: tests of a row
    columns: npt.NDArray[np.int32]  # of the table, as `bounds`
    bounds: npt.NDArray[np.int64]
    members: npt.NDArray[np.int32]
    young: npt.NDArray[np.int32]


TABLE = record([array(int64), array(int32), array(int64, 2), array(int32), array(int32)], Table)
ROWS = record(
    [array(int32, 2), array(int32), array(int32), array(int32), array(int64, 2), array(int32), array(int32)],
    Rows,
)


@inlined
def hash_predicate(column, low, high):  # type: ignore[no-untyped-def]
    h = spread(mix(first_hash(np.int64(column) + 1), low) ^ high)
    return h ^ (h >> 29) ^ (h >> 47)


@kernel(TABLE, frozen(int64), frozen(int64, 2), frozen(int64, 2), int64, array(int32, 2))
def acquire_predicates(table, columns, lows, highs, start, out):  # type: ignore[no-untyped-def]
    """out[t, i] = the number of `lows[t, i] <= columns[t] <= highs[t, i]`, with one user more, for i >=
    start; returns the first i without room."""
    state, mask, tests = table.state, np.int64(table.hashed.size - 1), columns.size
    for i in range(start, lows.shape[1]):
        if state[TOP] + tests > table.columns.size or 2 * (state[USED] + tests) > table.hashed.size:
            return i
        for t in range(tests):
            column, low, high = columns[t], lows[t, i], highs[t, i]
            place = hash_predicate(column, low, high) & mask
            vacant, found = np.int64(-1), np.int64(-1)
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
                table.columns[found], table.users[found] = column, 0
                table.bounds[found, 0], table.bounds[found, 1] = low, high
                if vacant < 0:
                    vacant = place
                    state[USED] += 1
                table.hashed[vacant] = found
            table.users[found] += 1
            out[t, i] = found
    return lows.shape[1]


@kernel(TABLE, frozen(int32))
def release_predicates(table, predicates):  # type: ignore[no-untyped-def]
    """Subtract a user of each; the number of a predicate without users becomes free."""
    state, mask = table.state, np.int64(table.hashed.size - 1)
    for i in range(predicates.size):
        p = predicates[i]
        table.users[p] -= 1
        if table.users[p] > 0:
            continue
        place = hash_predicate(table.columns[p], table.bounds[p, 0], table.bounds[p, 1]) & mask
        while table.hashed[place] != p:
            place = (place + 1) & mask
        if table.hashed[(place + 1) & mask] == FREE:
            table.hashed[place] = FREE
            state[USED] -= 1
        else:
            table.hashed[place] = GONE
        table.columns[p] = FREE
        table.bounds[p, 0] = state[FREE_HEAD]
        state[FREE_HEAD] = p
    return 0


@kernel(TABLE, array(int32))
def rehash_predicates(table, index):  # type: ignore[no-untyped-def]
    """Enter all predicates into `index`, which is empty; returns how many there are."""
    mask, used = np.int64(index.size - 1), 0
    for p in range(table.state[TOP]):
        if table.columns[p] != FREE:
            place = hash_predicate(table.columns[p], table.bounds[p, 0], table.bounds[p, 1]) & mask
            while index[place] != FREE:
                place = (place + 1) & mask
            index[place] = p
            used += 1
    return used


@inlined
def test_passes(rows, link, keys, e):  # type: ignore[no-untyped-def]
    p = rows.links[link]
    key = keys[e, rows.columns[p]]
    return rows.bounds[p, 0] <= key and key <= rows.bounds[p, 1]


@inlined
def row_passes(rows, row, keys, e):  # type: ignore[no-untyped-def]
    first = rows.fields[row, ROW_PLACE]
    for link in range(first, first + rows.sizes[rows.fields[row, ROW_SIGNATURE]]):
        if not test_passes(rows, link, keys, e):
            return False
    return True


@inlined
def finish_event(rows, keys, e, found, start, end):  # type: ignore[no-untyped-def]
    """Turn places found[start:end] into unchanged rows, and append young rows; returns the new end."""
    kept = start
    for i in range(start, end):
        row = rows.members[found[i]]
        if row >= 0:
            found[kept] = row
            kept += 1
    for y in range(rows.young.size):
        if row_passes(rows, rows.young[y], keys, e):
            found[kept] = rows.young[y]
            kept += 1
    return kept


# --- the index of predicates ----------------------------------------------------------------------


POINT, BELOW, ABOVE, RANGE, EMPTY = range(5)
CLASSES = 5

NEAR, FAR = 5, 10  # zones of the RANGE class: 2**5 and 2**10 entries


class Index(NamedTuple):
    segments: npt.NDArray[np.int64]  # [columns, CLASSES, 2]: first rank and last + 1
    tops: npt.NDArray[np.int64]  # [columns]: the largest key of a value, NaN left out
    edges: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    near: npt.NDArray[np.int64]  # [(entries >> NEAR) + 1]
    far: npt.NDArray[np.int64]  # [(entries >> FAR) + 1]
    spans: npt.NDArray[np.int64]  # [entries + 1, 2]: working memory, for what an event satisfies


INDEX = record(
    [array(int64, 3), array(int64), array(int64), array(int64), array(int64), array(int64), array(int64, 2)],
    Index,
)


@inlined
def first_at_least(edges, start, end, key):  # type: ignore[no-untyped-def]
    """The first position in the ascending edges[start:end] whose edge is >= key."""
    while start < end:
        middle = (start + end) >> 1
        if edges[middle] < key:
            start = middle + 1
        else:
            end = middle
    return start


@inlined
def reaching(index, start, end, key, count):  # type: ignore[no-untyped-def]
    """Append the stretches of RANGE predicates in start:end, where lo <= key, that have hi >= key."""
    spans, at = index.spans, start
    while at < end:
        if at & ((1 << FAR) - 1) == 0 and index.far[at >> FAR] < key:
            at += 1 << FAR
            continue
        if at & ((1 << NEAR) - 1) == 0 and index.near[at >> NEAR] < key:
            at += 1 << NEAR
            continue
        stop = min(end, ((at >> NEAR) + 1) << NEAR)
        while at < stop:
            if index.highs[at] >= key:
                if count > 0 and spans[count - 1, 1] == at:
                    spans[count - 1, 1] = at + 1
                else:
                    spans[count, 0], spans[count, 1] = at, at + 1
                    count += 1
            at += 1
    return count


@inlined
def satisfied(index, keys, e):  # type: ignore[no-untyped-def]
    """Write the stretches of ranks that event e satisfies to `spans`; returns how many."""
    edges, spans, count = index.edges, index.spans, 0
    for column in range(index.segments.shape[0]):
        key, segments = keys[e, column], index.segments[column]
        end = segments[POINT, 1]
        if segments[POINT, 0] < end:
            at = first_at_least(edges, segments[POINT, 0], end, key)
            if at < end and edges[at] == key:
                spans[count, 0], spans[count, 1] = at, at + 1
                count += 1
        if key == MISSING:
            continue
        end = segments[BELOW, 1]
        if segments[BELOW, 0] < end:
            at = first_at_least(edges, segments[BELOW, 0], end, key)
            if at < end:
                spans[count, 0], spans[count, 1] = at, end
                count += 1
        if key > index.tops[column]:
            continue
        start = segments[ABOVE, 0]
        if start < segments[ABOVE, 1]:
            end = first_at_least(edges, start, segments[ABOVE, 1], key + 1)
            if start < end:
                spans[count, 0], spans[count, 1] = start, end
                count += 1
        start = segments[RANGE, 0]
        if start < segments[RANGE, 1]:
            end = first_at_least(edges, start, segments[RANGE, 1], key + 1)
            count = reaching(index, start, end, key, count)
    return count


# --- answers --------------------------------------------------------------------------------------


@kernel(frozen(int32, 2), frozen(int32, 2), array(int64), int64, boolean, array(int64), array(int64))
def resolve_rows(rows, ids, seen, stamp, shared, offsets, found):  # type: ignore[no-untyped-def]
    """Replace rows by subscription ids, CSR, each once per event where `shared`; returns the last stamp."""
    end, start = np.int64(0), np.int64(0)
    for e in range(offsets.size - 1):
        stop = offsets[e + 1]
        stamp += 1
        for i in range(start, stop):
            row = found[i]
            if shared:
                first = first_of(rows, row)
                if seen[first] == stamp:
                    continue
                seen[first] = stamp
            found[end] = id_of(ids, row)
            end += 1
        start = stop
        offsets[e + 1] = end
    return stamp


@kernel(frozen(int32, 2), frozen(int64), frozen(int64), array(uint64, 2))
def interface_bits(rows, offsets, found, bits):  # type: ignore[no-untyped-def]
    for e in range(offsets.size - 1):
        for i in range(offsets[e], offsets[e + 1]):
            interface = interface_of(rows, found[i])
            bits[e, interface >> 6] |= np.uint64(1) << np.uint64(interface & 63)
    return 0

"""Kernels of the store that the reference engines share: rows of predicates, and the predicates themselves.

links   [ 7 2 4 | 2 5 | ... ]         the predicates of a row, from its place on
bounds  [ lo hi | lo hi | ... ]       by predicate; equal ones have one number while rows have it
hashed  [ -1 | 4 | 0 | -2 | ... ]     numbers by hash of (column, lo, hi); FREE, GONE
members [ 12 | -1 | 3 | ... ]         by place in an engine's structure: the row; -1 once it has changed
young   [ 8 | 15 ]                    rows that are in no structure yet, and are compared one by one
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.hashing import first_hash, mix, spread
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record

FREE = np.int32(-1)
GONE = np.int32(-2)

TOP, FREE_HEAD, USED = range(3)
STATE = 3


class Table(NamedTuple):
    """Distinct predicates, with how many tests of rows are each."""

    state: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]  # [predicates]; FREE where there is none
    bounds: npt.NDArray[np.int64]  # [predicates, 2]
    users: npt.NDArray[np.int32]  # [predicates]
    hashed: npt.NDArray[np.int32]  # a power of two


class Rows(NamedTuple):
    """The tests of all rows."""

    fields: npt.NDArray[np.int32]  # [rows, ROW_FIELDS]
    links: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int32]  # [signatures]: tests of a row
    columns: npt.NDArray[np.int32]  # of the table, as `bounds`
    bounds: npt.NDArray[np.int64]
    members: npt.NDArray[np.int32]
    young: npt.NDArray[np.int32]


TABLE = record(
    [array(int64), array(int32), array(int64, 2), array(int32), array(int32)], Table
)
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
    """out[t, i] is the number of `lows[t, i] <= columns[t] <= highs[t, i]`, with one user more, for i from
    `start` on; returns the first i for which there was no room.
    """
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
    """One user less for each; the number of one without users is free."""
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
    """Enter all predicates into a new, empty index; returns how many there are."""
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
    """Whether event e satisfies the predicate of a link."""
    p = rows.links[link]
    key = keys[e, rows.columns[p]]
    return rows.bounds[p, 0] <= key and key <= rows.bounds[p, 1]


@inlined
def row_passes(rows, row, keys, e):  # type: ignore[no-untyped-def]
    """Whether event e satisfies all predicates of a row."""
    first = rows.fields[row, ROW_PLACE]
    for link in range(first, first + rows.sizes[rows.fields[row, ROW_SIGNATURE]]):
        if not test_passes(rows, link, keys, e):
            return False
    return True


@inlined
def finish_event(rows, keys, e, found, start, end):  # type: ignore[no-untyped-def]
    """Replace the places found[start:end] by their rows, leave out those that have changed, and append the
    young rows that match; returns the new end.
    """
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

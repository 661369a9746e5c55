"""Kernels of the index of regions: vectors in blocks, each with a zone that says what its vectors span.

    zones[block] = [ count | least of each column | greatest of each column ]
    rows[block, place] = [ id | one number per column ]

One region covers another only if its vector is nowhere greater (`region_index.py`), so a block is passed over
when its least, or its greatest, vector already fails.
"""

from __future__ import annotations

from numba import int64

from covey.matcher.kernel import array, frozen, inlined, kernel


@inlined
def span(zones, rows, block):  # type: ignore[no-untyped-def]
    """Compute a block's zone anew."""
    columns = rows.shape[2] - 1
    for column in range(columns):
        least = greatest = rows[block, 0, 1 + column]
        for place in range(1, zones[block, 0]):
            value = rows[block, place, 1 + column]
            least = min(least, value)
            greatest = max(greatest, value)
        zones[block, 1 + column] = least
        zones[block, 1 + columns + column] = greatest


@kernel(array(int64, 2), array(int64, 3), int64, int64, frozen(int64))
def put(zones, rows, block, identity, vector):  # type: ignore[no-untyped-def]
    """Give an id this vector in a block that has room, or has the id already; returns the block's count."""
    columns = rows.shape[2] - 1
    count = zones[block, 0]
    place = 0
    while place < count and rows[block, place, 0] != identity:
        place += 1
    rows[block, place, 0] = identity
    for column in range(columns):
        rows[block, place, 1 + column] = vector[column]
    if place == count:
        zones[block, 0] = count + 1
        if count:
            for column in range(columns):
                value = vector[column]
                zones[block, 1 + column] = min(zones[block, 1 + column], value)
                zones[block, 1 + columns + column] = max(zones[block, 1 + columns + column], value)
            return count + 1
    span(zones, rows, block)
    return zones[block, 0]


@kernel(array(int64, 2), array(int64, 3), int64, int64)
def take(zones, rows, block, identity):  # type: ignore[no-untyped-def]
    """Take an id out of its block; the last one moves into its place. Returns how many are left."""
    last = zones[block, 0] - 1
    place = 0
    while place < last and rows[block, place, 0] != identity:
        place += 1
    for column in range(rows.shape[2]):
        rows[block, place, column] = rows[block, last, column]
    zones[block, 0] = last
    if last:
        span(zones, rows, block)
    return last


@kernel(frozen(int64, 2), frozen(int64, 3), int64, frozen(int64), array(int64))
def not_above(zones, rows, blocks, vector, out):  # type: ignore[no-untyped-def]
    """The ids of all vectors that are nowhere greater than this one; returns how many, written to `out`."""
    columns = rows.shape[2] - 1
    found = 0
    for block in range(blocks):
        count = zones[block, 0]
        for column in range(columns):
            if zones[block, 1 + column] > vector[column]:
                count = 0
                break
        for place in range(count):
            column = 0
            while column < columns and rows[block, place, 1 + column] <= vector[column]:
                column += 1
            if column == columns:
                out[found] = rows[block, place, 0]
                found += 1
    return found


@kernel(frozen(int64, 2), frozen(int64, 3), int64, frozen(int64), array(int64))
def not_below(zones, rows, blocks, vector, out):  # type: ignore[no-untyped-def]
    """The ids of all vectors that are nowhere less than this one; returns how many, written to `out`."""
    columns = rows.shape[2] - 1
    found = 0
    for block in range(blocks):
        count = zones[block, 0]
        for column in range(columns):
            if zones[block, 1 + columns + column] < vector[column]:
                count = 0
                break
        for place in range(count):
            column = 0
            while column < columns and rows[block, place, 1 + column] >= vector[column]:
                column += 1
            if column == columns:
                out[found] = rows[block, place, 0]
                found += 1
    return found

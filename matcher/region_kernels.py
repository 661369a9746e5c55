"""Kernels of the index of regions: vectors in blocks, each with a zone that says what its vectors span.

    zones[:, block] = [ count | least of each column | greatest of each column ]
    ids[block, place], rows[block, place] = [ one number per column ]

One region covers another only if its vector is nowhere greater (`region_index.py`), so a block is passed over
when its least, or its greatest, vector already fails. A question goes through the zones column by column
without a branch, which is compiled to vector instructions; a zone in a row with an early exit took 1.3 times
as long among 2,000 blocks.
"""

from __future__ import annotations

from numba import int64

from covey.matcher.kernel import array, inlined, kernel


@inlined
def span(zones, rows, block):  # type: ignore[no-untyped-def]
    """Compute a block's zone anew."""
    columns = rows.shape[2]
    for column in range(columns):
        least = greatest = rows[block, 0, column]
        for place in range(1, zones[0, block]):
            value = rows[block, place, column]
            least = min(least, value)
            greatest = max(greatest, value)
        zones[1 + column, block] = least
        zones[1 + columns + column, block] = greatest


@inlined
def widen(zones, rows, block, place):  # type: ignore[no-untyped-def]
    """Let a block's zone hold one of its vectors."""
    columns = rows.shape[2]
    for column in range(columns):
        value = rows[block, place, column]
        zones[1 + column, block] = min(zones[1 + column, block], value)
        zones[1 + columns + column, block] = max(zones[1 + columns + column, block], value)


@inlined
def at_edge(zones, rows, block, place):  # type: ignore[no-untyped-def]
    """Whether the zone may shrink without this vector."""
    columns = rows.shape[2]
    for column in range(columns):
        value = rows[block, place, column]
        least, greatest = zones[1 + column, block], zones[1 + columns + column, block]
        if least < greatest and value in (least, greatest):
            return True
    return False


@kernel(array(int64, 2), array(int64, 2), array(int64, 3), int64, int64, array(int64))
def put(zones, ids, rows, block, identity, vector):  # type: ignore[no-untyped-def]
    """Give an id this vector in a block that has room, or has the id already; returns the block's count."""
    columns = rows.shape[2]
    count = zones[0, block]
    place = 0
    while place < count and ids[block, place] != identity:
        place += 1
    shrinks = place < count and at_edge(zones, rows, block, place)
    ids[block, place] = identity
    for column in range(columns):
        rows[block, place, column] = vector[column]
    if place == count:
        zones[0, block] = count + 1
    if shrinks or count == 0:
        span(zones, rows, block)
    else:
        widen(zones, rows, block, place)
    return zones[0, block]


@kernel(array(int64, 2), array(int64, 2), array(int64, 3), int64, int64)
def take(zones, ids, rows, block, identity):  # type: ignore[no-untyped-def]
    """Take an id out of its block; the last one moves into its place. Returns how many are left."""
    last = zones[0, block] - 1
    place = 0
    while place < last and ids[block, place] != identity:
        place += 1
    shrinks = at_edge(zones, rows, block, place)
    ids[block, place] = ids[block, last]
    for column in range(rows.shape[2]):
        rows[block, place, column] = rows[block, last, column]
    zones[0, block] = last
    if last and shrinks:
        span(zones, rows, block)
    return last


@kernel(array(int64, 2), array(int64, 2), array(int64, 3), int64, array(int64), array(int64), array(int64))
def not_above(zones, ids, rows, blocks, vector, held, out):  # type: ignore[no-untyped-def]
    """The ids of all vectors that are nowhere greater than this one; returns how many, written to `out`.

    `held[block]` becomes how many vectors of the block are worth a look.
    """
    columns = rows.shape[2]
    for block in range(blocks):
        held[block] = zones[0, block]
    for column in range(columns):
        bound = vector[column]
        for block in range(blocks):
            held[block] = 0 if zones[1 + column, block] > bound else held[block]
    found = 0
    for block in range(blocks):
        for place in range(held[block]):
            column = 0
            while column < columns and rows[block, place, column] <= vector[column]:
                column += 1
            if column == columns:
                out[found] = ids[block, place]
                found += 1
    return found


@kernel(array(int64, 2), array(int64, 2), array(int64, 3), int64, array(int64), array(int64), array(int64))
def not_below(zones, ids, rows, blocks, vector, held, out):  # type: ignore[no-untyped-def]
    """The ids of all vectors that are nowhere less than this one; returns how many, written to `out`.

    `held[block]` becomes how many vectors of the block are worth a look.
    """
    columns = rows.shape[2]
    for block in range(blocks):
        held[block] = zones[0, block]
    for column in range(columns):
        bound = vector[column]
        for block in range(blocks):
            held[block] = 0 if zones[1 + columns + column, block] < bound else held[block]
    found = 0
    for block in range(blocks):
        for place in range(held[block]):
            column = 0
            while column < columns and rows[block, place, column] >= vector[column]:
                column += 1
            if column == columns:
                out[found] = ids[block, place]
                found += 1
    return found

"""Helpers of kernels for blocks: their slots, and their room in the pool; drawn in `layout/arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.rows.row_kernels import id_of
from covey.matcher.jit.kernel import inlined


@inlined
def block_of(store, row):  # type: ignore[no-untyped-def]
    """The block of a placed row; `arrays.IN_LEAF` where it is in a leaf."""
    return np.int64(store.where[row, a.BLOCK]) >> 1


@inlined
def is_here(store, row):  # type: ignore[no-untyped-def]
    """Whether a row is placed, in this arrangement."""
    where = store.where[row]
    return where[a.PLACE] >= 0 and (where[a.BLOCK] & 1) == store.state[a.GENERATION]


@inlined
def set_place(store, row, block, place):  # type: ignore[no-untyped-def]
    store.where[row, a.PLACE] = place
    store.where[row, a.BLOCK] = 2 * block + store.state[a.GENERATION]


@inlined
def capacity_of(store, block):  # type: ignore[no-untyped-def]
    return store.capacities[store.blocks[block, a.BLOCK_SIZE]]


@inlined
def tests_of(store, block):  # type: ignore[no-untyped-def]
    """How many tests of each row of a block have codes."""
    return np.int64(store.blocks[block, a.BLOCK_SIZE]) // a.SIZES


@inlined
def id_at(store, block):  # type: ignore[no-untyped-def]
    """Where the ids of a block start in store.words."""
    return 2 * np.int64(store.blocks[block, a.BLOCK_START])


@inlined
def id_in(store, ids, rows, place):  # type: ignore[no-untyped-def]
    """The id at a place of a block; `ids` and `rows` are its `id_at` and `row_at`."""
    if store.ids.shape[1] == 1:
        return np.int64(store.words[ids + place])
    row = store.words[rows + place]
    return id_of(store.ids, row if row >= 0 else ~row)


@inlined
def row_at(store, block, capacity):  # type: ignore[no-untyped-def]
    """Where the rows of a block start in store.words."""
    return 2 * np.int64(store.blocks[block, a.BLOCK_START]) + capacity


@inlined
def low_at(store, block, capacity, t):  # type: ignore[no-untyped-def]
    """Where the low codes of test t start in store.shorts; the high ones follow `capacity` further."""
    return 4 * np.int64(store.blocks[block, a.BLOCK_START]) + (4 + 2 * t) * capacity


@inlined
def column_at(store, block, capacity, tests, t):  # type: ignore[no-untyped-def]
    """Where the columns of test t start in store.bytes, in a block of so many tests."""
    return 8 * np.int64(store.blocks[block, a.BLOCK_START]) + (8 + 4 * tests + t) * capacity


@inlined
def units_of(store, size):  # type: ignore[no-untyped-def]
    """Units of 8 bytes that a block of a size takes."""
    return (store.capacities[size] * (8 + 5 * (size // a.SIZES)) + 7) >> 3


@inlined
def allocate_units(store, size, units):  # type: ignore[no-untyped-def]
    start = store.free[size]
    if start == a.NONE:
        start = store.state[a.UNIT_TOP]
        if start + units > store.longs.size:
            raise MemoryError("the pool has no room for a block: a kernel has not checked `pool_has_room`")
        store.state[a.UNIT_TOP] += units
    else:
        store.free[size] = store.longs[start]
    return start


@inlined
def pool_has_room(store):  # type: ignore[no-untyped-def]
    """Room for placing or moving any row; kernels check it before each, so `allocate_units` never fails."""
    state = store.state
    return state[a.UNIT_TOP] + 2 * a.LARGEST_BLOCK + 3 * state[a.LARGEST_DIRECTORY] <= store.longs.size


@inlined
def free_units(store, size, start):  # type: ignore[no-untyped-def]
    store.longs[start] = store.free[size]
    store.free[size] = start


@inlined
def new_block(store, bucket, size):  # type: ignore[no-untyped-def]
    blocks, state = store.blocks, store.state
    fresh = state[a.BLOCK_FREE]
    if fresh == a.NONE:
        fresh = state[a.BLOCK_TOP]
        if fresh >= blocks.shape[0]:
            raise MemoryError("no room for a block: a kernel has not checked `has_room`")
        state[a.BLOCK_TOP] += 1
    else:
        state[a.BLOCK_FREE] = blocks[fresh, a.BLOCK_NEXT]
    blocks[fresh, a.BLOCK_BUCKET] = bucket
    blocks[fresh, a.BLOCK_START] = allocate_units(store, size, units_of(store, size))
    blocks[fresh, a.BLOCK_SIZE] = size
    blocks[fresh, a.BLOCK_COUNT] = 0
    blocks[fresh, a.BLOCK_NEXT] = a.NONE
    return fresh


@inlined
def drop_block(store, block):  # type: ignore[no-untyped-def]
    free_units(
        store, np.int64(store.blocks[block, a.BLOCK_SIZE]), np.int64(store.blocks[block, a.BLOCK_START])
    )
    store.blocks[block, a.BLOCK_NEXT] = store.state[a.BLOCK_FREE]
    store.blocks[block, a.BLOCK_BUCKET] = a.NONE
    store.state[a.BLOCK_FREE] = block


@inlined
def copy_slot(store, block, place, target, to):  # type: ignore[no-untyped-def]
    """Copy a slot to another block of as many tests, or to the same; the row is placed there."""
    here, there = capacity_of(store, block), capacity_of(store, target)
    tests = tests_of(store, block)
    store.words[id_at(store, target) + to] = store.words[id_at(store, block) + place]
    moved = store.words[row_at(store, block, here) + place]
    store.words[row_at(store, target, there) + to] = moved
    for t in range(tests):
        store.bytes[column_at(store, target, there, tests, t) + to] = store.bytes[
            column_at(store, block, here, tests, t) + place
        ]
        source, end = low_at(store, block, here, t) + place, low_at(store, target, there, t) + to
        store.shorts[end] = store.shorts[source]
        store.shorts[end + there] = store.shorts[source + here]
    row = moved if moved >= 0 else ~moved
    set_place(store, row, target, to)


@inlined
def resize_block(store, block, size):  # type: ignore[no-untyped-def]
    """Move a block to room of another size, which its rows fit; its number stays."""
    old, start = np.int64(store.blocks[block, a.BLOCK_SIZE]), np.int64(store.blocks[block, a.BLOCK_START])
    here, there, count = store.capacities[old], store.capacities[size], store.blocks[block, a.BLOCK_COUNT]
    tests = tests_of(store, block)
    fresh = allocate_units(store, size, units_of(store, size))
    for p in range(count):
        store.words[2 * fresh + p] = store.words[2 * start + p]
        store.words[2 * fresh + there + p] = store.words[2 * start + here + p]
    for t in range(2 * tests):
        for p in range(count):
            store.shorts[4 * fresh + (4 + t) * there + p] = store.shorts[4 * start + (4 + t) * here + p]
    for t in range(tests):
        for p in range(count):
            store.bytes[8 * fresh + (8 + 4 * tests + t) * there + p] = store.bytes[
                8 * start + (8 + 4 * tests + t) * here + p
            ]
    free_units(store, old, start)
    store.blocks[block, a.BLOCK_START] = fresh
    store.blocks[block, a.BLOCK_SIZE] = size


@inlined
def grow_block(store, block):  # type: ignore[no-untyped-def]
    resize_block(store, block, np.int64(store.blocks[block, a.BLOCK_SIZE]) + 1)


@inlined
def shrink_block(store, block):  # type: ignore[no-untyped-def]
    """Move a block, whose rows fit, to the next smaller size, if there is room: removing never fails."""
    if pool_has_room(store):
        resize_block(store, block, np.int64(store.blocks[block, a.BLOCK_SIZE]) - 1)

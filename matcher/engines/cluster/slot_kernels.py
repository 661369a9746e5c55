"""Helpers of kernels by which buckets get blocks, and rows get slots; the arrays are drawn in
`cluster/arrays.py`.

A bucket is a chain of blocks. Where its table keeps rows in order, a bucket of more than one block has a
directory instead: *zones*, by the least code of the test that all rows have first, as the leaves of a tree of
one level. A row whose code leaves its zone goes to another, so that order is never mended later. Invariants:
the codes of zone i are from its own least to that of zone i + 1; the least of zone 0 is 0; no block is empty.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.compile.plan import Shape
from covey.matcher.engines.cluster.arrays import (
    BLOCK,
    BLOCK_BUCKET,
    BLOCK_COUNT,
    BLOCK_FREE,
    BLOCK_NEXT,
    BLOCK_SIZE,
    BLOCK_START,
    BLOCK_TOP,
    BUCKET_HEAD,
    BUCKET_TABLE,
    BUCKET_ZONES,
    DIRECTORIES,
    FULL_ZONE,
    HALF_ZONE,
    LARGEST_BLOCK,
    LARGEST_DIRECTORY,
    NONE,
    PLACE,
    SIZES,
    TABLE_ORDER,
    TABLE_TESTS,
    UNIT_TOP,
)
from covey.matcher.engines.rows.kernels import sort_range
from covey.matcher.jit.kernel import inlined

HIGH = int(Shape.HIGH)
_FEW = 4
"""Rows below which a block is not worth making smaller."""
_SPARSE = 32
"""Rows of a zone at which, and at each half of it, it may be joined with one beside it."""


# --- where things are -----------------------------------------------------------------------------


@inlined
def capacity_of(store, block):  # type: ignore[no-untyped-def]
    return store.capacities[store.blocks[block, BLOCK_SIZE]]


@inlined
def tests_of(store, block):  # type: ignore[no-untyped-def]
    """How many tests of each row of a block have codes."""
    return np.int64(store.blocks[block, BLOCK_SIZE]) // SIZES


@inlined
def id_at(store, block):  # type: ignore[no-untyped-def]
    """Where the ids of a block start in store.longs."""
    return np.int64(store.blocks[block, BLOCK_START])


@inlined
def row_at(store, block, capacity):  # type: ignore[no-untyped-def]
    """Where the rows of a block start in store.words."""
    return 2 * np.int64(store.blocks[block, BLOCK_START]) + 2 * capacity


@inlined
def low_at(store, block, capacity, t):  # type: ignore[no-untyped-def]
    """Where the low codes of test t start in store.shorts; the high ones follow `capacity` further."""
    return 4 * np.int64(store.blocks[block, BLOCK_START]) + (6 + 2 * t) * capacity


@inlined
def column_at(store, block, capacity, tests, t):  # type: ignore[no-untyped-def]
    """Where the columns of test t start in store.bytes, in a block of so many tests."""
    return 8 * np.int64(store.blocks[block, BLOCK_START]) + (12 + 4 * tests + t) * capacity


@inlined
def nth_block(store, bucket, before, number):  # type: ignore[no-untyped-def]
    """The block of that number of a bucket, given the one before it; NONE behind the last."""
    zones, head = store.buckets[bucket, BUCKET_ZONES], store.buckets[bucket, BUCKET_HEAD]
    if zones > 0:
        return zone_block(store, head, number) if number < zones else np.int64(NONE)
    return head if number == 0 else np.int64(store.blocks[before, BLOCK_NEXT])


# --- the pool -------------------------------------------------------------------------------------


@inlined
def units_of(store, size):  # type: ignore[no-untyped-def]
    """Units of 8 bytes that a block of a size takes."""
    return (store.capacities[size] * (12 + 5 * (size // SIZES)) + 7) >> 3


@inlined
def take_units(store, size, units):  # type: ignore[no-untyped-def]
    start = store.free[size]
    if start == NONE:
        start = store.state[UNIT_TOP]
        store.state[UNIT_TOP] += units
    else:
        store.free[size] = store.longs[start]
    return start


@inlined
def pool_has_room(store):  # type: ignore[no-untyped-def]
    """Whether the pool has room for all that placing, moving or removing one row may take. Kernels ask before
    each row, since `take_units` itself does not look.
    """
    state = store.state
    return state[UNIT_TOP] + 2 * LARGEST_BLOCK + 3 * state[LARGEST_DIRECTORY] <= store.longs.size


@inlined
def give_units(store, size, start):  # type: ignore[no-untyped-def]
    store.longs[start] = store.free[size]
    store.free[size] = start


@inlined
def step_above(size):  # type: ignore[no-untyped-def]
    """The size that blocks of a size grow to: a third to a half more, since what each leaves behind is used
    again by blocks of its size alone.
    """
    place = size % SIZES
    return (size + 1) | (3 if place > 6 else 1 if place > 2 else 0)


@inlined
def step_below(size):  # type: ignore[no-untyped-def]
    """The largest of the sizes that blocks grow to which fits into a size."""
    place = size % SIZES
    if place > 6:
        return ((size + 1) & ~3) - 1
    return (size - 1) | 1 if place > 2 else size


@inlined
def new_block(store, bucket, size):  # type: ignore[no-untyped-def]
    """A block without rows that belongs to a bucket."""
    blocks, state = store.blocks, store.state
    fresh = state[BLOCK_FREE]
    if fresh == NONE:
        fresh = state[BLOCK_TOP]
        state[BLOCK_TOP] += 1
    else:
        state[BLOCK_FREE] = blocks[fresh, BLOCK_NEXT]
    blocks[fresh, BLOCK_BUCKET] = bucket
    blocks[fresh, BLOCK_START] = take_units(store, size, units_of(store, size))
    blocks[fresh, BLOCK_SIZE] = size
    blocks[fresh, BLOCK_COUNT] = 0
    blocks[fresh, BLOCK_NEXT] = NONE
    return fresh


@inlined
def drop_block(store, block):  # type: ignore[no-untyped-def]
    size = step_below(np.int64(store.blocks[block, BLOCK_SIZE]))
    give_units(store, size, np.int64(store.blocks[block, BLOCK_START]))
    store.blocks[block, BLOCK_NEXT] = store.state[BLOCK_FREE]
    store.blocks[block, BLOCK_BUCKET] = NONE
    store.state[BLOCK_FREE] = block


@inlined
def copy_slot(store, block, place, target, to):  # type: ignore[no-untyped-def]
    """Copy a row and its codes from a place of a block to a place of another one (or of the same)."""
    here, there = capacity_of(store, block), capacity_of(store, target)
    tests = tests_of(store, block)
    store.longs[id_at(store, target) + to] = store.longs[id_at(store, block) + place]
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
    store.where[row, PLACE] = to
    store.where[row, BLOCK] = target


@inlined
def resize_block(store, block, size):  # type: ignore[no-untyped-def]
    """Give a block a place of another size that its rows fit in; it stays the same block."""
    old, start = np.int64(store.blocks[block, BLOCK_SIZE]), np.int64(store.blocks[block, BLOCK_START])
    here, there, count = store.capacities[old], store.capacities[size], store.blocks[block, BLOCK_COUNT]
    tests = tests_of(store, block)
    fresh = take_units(store, size, units_of(store, size))
    for p in range(count):
        store.longs[fresh + p] = store.longs[start + p]
        store.words[2 * (fresh + there) + p] = store.words[2 * (start + here) + p]
    for t in range(2 * tests):
        for p in range(count):
            store.shorts[4 * fresh + (6 + t) * there + p] = store.shorts[4 * start + (6 + t) * here + p]
    for t in range(tests):
        for p in range(count):
            store.bytes[8 * fresh + (12 + 4 * tests + t) * there + p] = store.bytes[
                8 * start + (12 + 4 * tests + t) * here + p
            ]
    give_units(store, step_below(old), start)
    store.blocks[block, BLOCK_START] = fresh
    store.blocks[block, BLOCK_SIZE] = size


@inlined
def grow_block(store, block):  # type: ignore[no-untyped-def]
    resize_block(store, block, step_above(np.int64(store.blocks[block, BLOCK_SIZE])))


@inlined
def shrink_block(store, block):  # type: ignore[no-untyped-def]
    """Give a block that is half empty a smaller place, if there is one."""
    size = step_below(np.int64(store.blocks[block, BLOCK_SIZE]) - 1)
    if store.free[size] != NONE or store.state[UNIT_TOP] + units_of(store, size) <= store.longs.size:
        resize_block(store, block, size)


# --- zones ----------------------------------------------------------------------------------------


@inlined
def zone_block(store, directory, zone):  # type: ignore[no-untyped-def]
    return np.int64(store.words[2 * (directory + zone)])


@inlined
def zone_least(store, directory, zone):  # type: ignore[no-untyped-def]
    return np.int64(store.words[2 * (directory + zone) + 1])


@inlined
def last_zone(store, directory, zones, code):  # type: ignore[no-untyped-def]
    """The last zone whose least code is at most `code`, -1 if there is none."""
    at, end = np.int64(0), np.int64(zones)
    while at < end:
        middle = (at + end) >> 1
        if zone_least(store, directory, middle) <= code:
            at = middle + 1
        else:
            end = middle
    return at - 1


@inlined
def code_in_order(store, block, place, order):  # type: ignore[no-untyped-def]
    """The code by which a row of a block is kept in order."""
    capacity = capacity_of(store, block)
    at = low_at(store, block, capacity, 0) + place
    return np.int64(store.shorts[at + capacity if order == HIGH else at])


@inlined
def directory_size(zones):  # type: ignore[no-untyped-def]
    """The smallest power of two, as its logarithm, of entries with room for so many zones."""
    size = np.int64(2)
    while np.int64(1) << size < zones:
        size += 1
    return size


@inlined
def enter_zone(store, bucket, zone, block, least):  # type: ignore[no-untyped-def]
    """Make a block the zone of that number in a bucket's directory."""
    zones = store.buckets[bucket, BUCKET_ZONES]
    directory = store.buckets[bucket, BUCKET_HEAD]
    size, wanted = directory_size(zones), directory_size(zones + 1)
    if zones == 0 or wanted > size:
        fresh = take_units(store, DIRECTORIES + wanted, np.int64(1) << wanted)
        store.state[LARGEST_DIRECTORY] = max(store.state[LARGEST_DIRECTORY], np.int64(1) << wanted)
        for i in range(zones):
            store.longs[fresh + i] = store.longs[directory + i]
        if zones > 0:
            give_units(store, DIRECTORIES + size, directory)
        directory = fresh
        store.buckets[bucket, BUCKET_HEAD] = directory
    for i in range(zones, zone, -1):
        store.longs[directory + i] = store.longs[directory + i - 1]
    store.words[2 * (directory + zone)] = block
    store.words[2 * (directory + zone) + 1] = least
    store.blocks[block, BLOCK_NEXT] = least
    store.buckets[bucket, BUCKET_ZONES] = zones + 1


@inlined
def leave_zone(store, bucket, zone):  # type: ignore[no-untyped-def]
    """Take a zone out of a bucket's directory; what is left over of one zone is a plain block again."""
    zones, directory = store.buckets[bucket, BUCKET_ZONES] - 1, store.buckets[bucket, BUCKET_HEAD]
    for i in range(zone, zones):
        store.longs[directory + i] = store.longs[directory + i + 1]
    store.buckets[bucket, BUCKET_ZONES] = zones
    first = zone_block(store, directory, 0)
    if zone == 0:
        store.words[2 * directory + 1] = 0
        store.blocks[first, BLOCK_NEXT] = 0
    size = directory_size(zones + 1)
    if zones == 1:
        give_units(store, DIRECTORIES + size, directory)
        store.buckets[bucket, BUCKET_HEAD] = first
        store.buckets[bucket, BUCKET_ZONES] = 0
        store.blocks[first, BLOCK_NEXT] = NONE
    elif directory_size(zones) < size:
        fresh = take_units(store, DIRECTORIES + size - 1, np.int64(1) << (size - 1))
        for i in range(zones):
            store.longs[fresh + i] = store.longs[directory + i]
        give_units(store, DIRECTORIES + size, directory)
        store.buckets[bucket, BUCKET_HEAD] = fresh


@inlined
def zone_of(store, bucket, block):  # type: ignore[no-untyped-def]
    """The zone that a block of a bucket is."""
    directory = store.buckets[bucket, BUCKET_HEAD]
    least = np.int64(store.blocks[block, BLOCK_NEXT])
    zone = last_zone(store, directory, store.buckets[bucket, BUCKET_ZONES], least)
    while zone_block(store, directory, zone) != block:
        zone -= 1
    return zone


@inlined
def split_zone(store, bucket, zone, order, sorting):  # type: ignore[no-untyped-def]
    """Part the rows of a full zone between it and a new one behind it, at about the middle of their codes."""
    block = zone_block(store, store.buckets[bucket, BUCKET_HEAD], zone)
    count = np.int64(store.blocks[block, BLOCK_COUNT])
    for p in range(count):
        sorting[p] = code_in_order(store, block, p, order)
    sort_range(sorting, np.int64(0), count)
    middle = count >> 1
    while middle < count and sorting[middle] == sorting[0]:
        middle += 1
    alike = middle == count
    parting = sorting[0] if alike else sorting[middle]
    size = np.int64(store.blocks[block, BLOCK_SIZE]) // SIZES * SIZES + HALF_ZONE
    fresh = new_block(store, bucket, size)
    kept = np.int64(0)
    for p in range(count):
        if p >= count >> 1 if alike else code_in_order(store, block, p, order) >= parting:
            moved = np.int64(store.blocks[fresh, BLOCK_COUNT])
            if moved == capacity_of(store, fresh):
                grow_block(store, fresh)
            copy_slot(store, block, p, fresh, moved)
            store.blocks[fresh, BLOCK_COUNT] = moved + 1
        else:
            if kept != p:
                copy_slot(store, block, p, block, kept)
            kept += 1
    store.blocks[block, BLOCK_COUNT] = kept
    enter_zone(store, bucket, zone + 1, fresh, parting)


@inlined
def join_zone(store, bucket, block):  # type: ignore[no-untyped-def]
    """Move the rows of a sparse zone to the one before it or behind it, if that has room."""
    zone = zone_of(store, bucket, block)
    directory, count = store.buckets[bucket, BUCKET_HEAD], np.int64(store.blocks[block, BLOCK_COUNT])
    for beside in range(zone - 1, zone + 2, 2):
        if 0 <= beside < store.buckets[bucket, BUCKET_ZONES]:
            other = zone_block(store, directory, beside)
            there = np.int64(store.blocks[other, BLOCK_COUNT])
            if there + count <= capacity_of(store, other):
                for p in range(count):
                    copy_slot(store, block, p, other, there + p)
                store.blocks[other, BLOCK_COUNT] = there + count
                if beside > zone:
                    least = zone_least(store, directory, zone)
                    store.words[2 * (directory + beside) + 1] = least
                    store.blocks[other, BLOCK_NEXT] = least
                drop_block(store, block)
                leave_zone(store, bucket, zone)
                break


# --- slots ----------------------------------------------------------------------------------------


@inlined
def block_with_room(store, bucket, code, sorting):  # type: ignore[no-untyped-def]
    """The block of a bucket to put another row into, of that code where the table is kept in order."""
    table = store.buckets[bucket, BUCKET_TABLE]
    order = store.tables[table, TABLE_ORDER]
    most = np.int64(SIZES - 1 if order == NONE else FULL_ZONE)
    block = store.buckets[bucket, BUCKET_HEAD]
    base = SIZES * store.tables[table, TABLE_TESTS]
    if block == NONE:
        size = np.int64(0)
        while size < most and store.capacities[size] < store.buckets[bucket, BUCKET_ZONES]:
            size += 1
        block = new_block(store, bucket, base + size)
        store.buckets[bucket, BUCKET_HEAD], store.buckets[bucket, BUCKET_ZONES] = block, 0
        return block
    zones = store.buckets[bucket, BUCKET_ZONES]
    zone = np.int64(0)
    if zones > 0:
        zone = last_zone(store, block, zones, code)
        block = zone_block(store, block, zone)
    if store.blocks[block, BLOCK_COUNT] < capacity_of(store, block):
        return block
    size = np.int64(store.blocks[block, BLOCK_SIZE]) - base
    if size < most:
        grow_block(store, block)
        return block
    if order == NONE:
        fresh = new_block(store, bucket, base)
        store.blocks[fresh, BLOCK_NEXT] = block
        store.buckets[bucket, BUCKET_HEAD] = fresh
        return fresh
    if zones == 0:
        enter_zone(store, bucket, zone, block, 0)
    split_zone(store, bucket, zone, order, sorting)
    directory = store.buckets[bucket, BUCKET_HEAD]
    block = zone_block(store, directory, last_zone(store, directory, zones + 1 if zones > 0 else 2, code))
    if store.blocks[block, BLOCK_COUNT] == capacity_of(store, block):
        grow_block(store, block)
    return block


@inlined
def leave_slot(store, bucket, block, place):  # type: ignore[no-untyped-def]
    """Free a row's place in a block of a bucket; another row takes it. Returns whether the bucket has rows
    left.
    """
    ordered = store.buckets[bucket, BUCKET_ZONES] > 0
    source = block if ordered else store.buckets[bucket, BUCKET_HEAD]
    last = np.int64(store.blocks[source, BLOCK_COUNT]) - 1
    if source != block or last != place:
        copy_slot(store, source, last, block, place)
    store.blocks[source, BLOCK_COUNT] = last
    if ordered:
        if last == 0:
            zone = zone_of(store, bucket, source)
            drop_block(store, source)
            leave_zone(store, bucket, zone)
        elif last <= _SPARSE and last & (last - 1) == 0:
            join_zone(store, bucket, source)
        return True
    if last == 0:
        store.buckets[bucket, BUCKET_HEAD] = store.blocks[source, BLOCK_NEXT]
        drop_block(store, source)
    elif last >= _FEW and 2 * last <= capacity_of(store, source):
        shrink_block(store, source)
    return store.buckets[bucket, BUCKET_HEAD] != NONE

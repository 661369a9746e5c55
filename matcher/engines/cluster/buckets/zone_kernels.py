"""Helpers of kernels for the slots of a bucket: a chain of blocks, or zones.

Where a table orders its rows, a bucket of several blocks has a directory of *zones*: blocks by the least code
of their rows' common first test, like the leaves of a tree of one level. A row whose code leaves its zone
moves at once. Invariants: the codes of zone i are from its own least to that of zone i + 1; the least of zone
0 is 0; no block is empty.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import (
    allocate_units,
    capacity_of,
    copy_slot,
    drop_block,
    free_units,
    grow_block,
    low_at,
    new_block,
    resize_block,
    shrink_block,
)
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.jit.kernel import inlined
from covey.matcher.jit.sort_kernels import sort_range

_FEW = 4  # rows; blocks of fewer do not shrink
_ROOM = 8  # free slots of each half of a split zone, at the least
_SPARSE = 32  # rows of a zone at which, and at each half of it, it may be merged with a neighbour
FROM, TO, WHOLE_FROM, WHOLE_TO, SPAN_FIELDS = 0, 1, 2, 3, 4  # of `span_zones`


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
def nth_block(store, bucket, before, number):  # type: ignore[no-untyped-def]
    """The `number`-th block of a bucket, given the one before it; NONE after the last."""
    zones, head = store.buckets[bucket, a.BUCKET_ZONES], store.buckets[bucket, a.BUCKET_HEAD]
    if zones > 0:
        return zone_block(store, head, number) if number < zones else np.int64(a.NONE)
    return head if number == 0 else np.int64(store.blocks[before, a.BLOCK_NEXT])


@inlined
def code_in_order(store, block, place, order):  # type: ignore[no-untyped-def]
    capacity = capacity_of(store, block)
    at = low_at(store, block, capacity, 0) + place
    return np.int64(store.shorts[at + capacity if order == a.HIGH else at])


@inlined
def directory_size(zones):  # type: ignore[no-untyped-def]
    """The logarithm of the entries of a directory with room for so many zones, a power of two."""
    size = np.int64(2)
    while np.int64(1) << size < zones:
        size += 1
    return size


@inlined
def insert_zone(store, bucket, zone, block, least):  # type: ignore[no-untyped-def]
    """Make a block that zone of a bucket's directory."""
    zones = store.buckets[bucket, a.BUCKET_ZONES]
    directory = store.buckets[bucket, a.BUCKET_HEAD]
    size, needed = directory_size(zones), directory_size(zones + 1)
    if zones == 0 or needed > size:
        fresh = allocate_units(store, a.DIRECTORIES + needed, np.int64(1) << needed)
        store.state[a.LARGEST_DIRECTORY] = max(store.state[a.LARGEST_DIRECTORY], np.int64(1) << needed)
        for i in range(zones):
            store.longs[fresh + i] = store.longs[directory + i]
        if zones > 0:
            free_units(store, a.DIRECTORIES + size, directory)
        directory = fresh
        store.buckets[bucket, a.BUCKET_HEAD] = directory
    for i in range(zones, zone, -1):
        store.longs[directory + i] = store.longs[directory + i - 1]
    store.words[2 * (directory + zone)] = block
    store.words[2 * (directory + zone) + 1] = least
    store.blocks[block, a.BLOCK_NEXT] = least
    store.buckets[bucket, a.BUCKET_ZONES] = zones + 1


@inlined
def remove_zone(store, bucket, zone):  # type: ignore[no-untyped-def]
    """Remove a zone from a bucket's directory; a single zone becomes a plain block again."""
    zones, directory = store.buckets[bucket, a.BUCKET_ZONES] - 1, store.buckets[bucket, a.BUCKET_HEAD]
    for i in range(zone, zones):
        store.longs[directory + i] = store.longs[directory + i + 1]
    store.buckets[bucket, a.BUCKET_ZONES] = zones
    first = zone_block(store, directory, 0)
    if zone == 0:
        store.words[2 * directory + 1] = 0
        store.blocks[first, a.BLOCK_NEXT] = 0
    size = directory_size(zones + 1)
    if zones == 1:
        free_units(store, a.DIRECTORIES + size, directory)
        store.buckets[bucket, a.BUCKET_HEAD] = first
        store.buckets[bucket, a.BUCKET_ZONES] = 0
        store.blocks[first, a.BLOCK_NEXT] = a.NONE
    elif directory_size(zones) < size:
        half = size - 1
        free_units(store, a.DIRECTORIES + half, directory + (np.int64(1) << half))


@inlined
def zone_of(store, bucket, block):  # type: ignore[no-untyped-def]
    directory = store.buckets[bucket, a.BUCKET_HEAD]
    least = np.int64(store.blocks[block, a.BLOCK_NEXT])
    zone = last_zone(store, directory, store.buckets[bucket, a.BUCKET_ZONES], least)
    while zone_block(store, directory, zone) != block:
        zone -= 1
    return zone


@inlined
def size_for(store, rows):  # type: ignore[no-untyped-def]
    """The size of a zone for so many rows, and some more."""
    size = np.int64(0)
    while size < a.FULL_ZONE and store.capacities[size] < rows + _ROOM:
        size += 1
    return size


@inlined
def split_zone(store, bucket, zone, order, sorting):  # type: ignore[no-untyped-def]
    """Split a full zone at about the middle of its codes; the upper rows move to a new zone after it."""
    block = zone_block(store, store.buckets[bucket, a.BUCKET_HEAD], zone)
    count = np.int64(store.blocks[block, a.BLOCK_COUNT])
    for p in range(count):
        sorting[p] = code_in_order(store, block, p, order)
    sort_range(sorting, np.int64(0), count)
    middle = count >> 1
    while middle < count and sorting[middle] == sorting[0]:
        middle += 1
    alike = middle == count
    if alike:
        middle = count >> 1
    split_code = sorting[middle]
    while not alike and sorting[middle - 1] == split_code:
        middle -= 1
    base = np.int64(store.blocks[block, a.BLOCK_SIZE]) // a.SIZES * a.SIZES
    fresh = new_block(store, bucket, base + size_for(store, count - middle))
    remaining = np.int64(0)
    for p in range(count):
        if p >= middle if alike else code_in_order(store, block, p, order) >= split_code:
            moved = np.int64(store.blocks[fresh, a.BLOCK_COUNT])
            copy_slot(store, block, p, fresh, moved)
            store.blocks[fresh, a.BLOCK_COUNT] = moved + 1
        else:
            if remaining != p:
                copy_slot(store, block, p, block, remaining)
            remaining += 1
    store.blocks[block, a.BLOCK_COUNT] = remaining
    if size_for(store, remaining) < a.FULL_ZONE:
        resize_block(store, block, base + size_for(store, remaining))
    insert_zone(store, bucket, zone + 1, fresh, split_code)


@inlined
def merge_zone(store, bucket, block):  # type: ignore[no-untyped-def]
    """Move the rows of a sparse zone to the one before or after it, if that has room."""
    zone = zone_of(store, bucket, block)
    directory, count = store.buckets[bucket, a.BUCKET_HEAD], np.int64(store.blocks[block, a.BLOCK_COUNT])
    for neighbour in range(zone - 1, zone + 2, 2):
        if 0 <= neighbour < store.buckets[bucket, a.BUCKET_ZONES]:
            other = zone_block(store, directory, neighbour)
            there = np.int64(store.blocks[other, a.BLOCK_COUNT])
            if there + count <= capacity_of(store, other):
                for p in range(count):
                    copy_slot(store, block, p, other, there + p)
                store.blocks[other, a.BLOCK_COUNT] = there + count
                if neighbour > zone:
                    least = zone_least(store, directory, zone)
                    store.words[2 * (directory + neighbour) + 1] = least
                    store.blocks[other, a.BLOCK_NEXT] = least
                drop_block(store, block)
                remove_zone(store, bucket, zone)
                break


@inlined
def block_with_room(store, bucket, code, sorting):  # type: ignore[no-untyped-def]
    """A block of a bucket with a free slot, for a row of this code where the table is ordered."""
    table = store.buckets[bucket, a.BUCKET_TABLE]
    order = store.tables[table, a.TABLE_ORDER]
    most = np.int64(a.SIZES - 1 if order == a.NONE else a.FULL_ZONE)
    block = store.buckets[bucket, a.BUCKET_HEAD]
    base = a.SIZES * store.tables[table, a.TABLE_TESTS]
    if block == a.NONE:
        size = np.int64(0)
        while size < most and store.capacities[size] < store.buckets[bucket, a.BUCKET_ZONES]:
            size += 1
        block = new_block(store, bucket, base + size)
        store.buckets[bucket, a.BUCKET_HEAD], store.buckets[bucket, a.BUCKET_ZONES] = block, 0
        return block
    zones = store.buckets[bucket, a.BUCKET_ZONES]
    zone = np.int64(0)
    if zones > 0:
        zone = last_zone(store, block, zones, code)
        block = zone_block(store, block, zone)
    if store.blocks[block, a.BLOCK_COUNT] < capacity_of(store, block):
        return block
    size = np.int64(store.blocks[block, a.BLOCK_SIZE]) - base
    if size < most:
        grow_block(store, block)
        return block
    if order == a.NONE:
        fresh = new_block(store, bucket, base)
        store.blocks[fresh, a.BLOCK_NEXT] = block
        store.buckets[bucket, a.BUCKET_HEAD] = fresh
        return fresh
    if zones == 0:
        insert_zone(store, bucket, zone, block, 0)
    split_zone(store, bucket, zone, order, sorting)
    directory = store.buckets[bucket, a.BUCKET_HEAD]
    block = zone_block(store, directory, last_zone(store, directory, zones + 1 if zones > 0 else 2, code))
    if store.blocks[block, a.BLOCK_COUNT] == capacity_of(store, block):
        grow_block(store, block)
    return block


@inlined
def free_slot(store, bucket, block, place):  # type: ignore[no-untyped-def]
    """Free a row's slot, into which another row moves; returns whether the bucket still has rows."""
    ordered = store.buckets[bucket, a.BUCKET_ZONES] > 0
    source = block if ordered else store.buckets[bucket, a.BUCKET_HEAD]
    last = np.int64(store.blocks[source, a.BLOCK_COUNT]) - 1
    if source != block or last != place:
        copy_slot(store, source, last, block, place)
    store.blocks[source, a.BLOCK_COUNT] = last
    if ordered:
        if last == 0:
            zone = zone_of(store, bucket, source)
            drop_block(store, source)
            remove_zone(store, bucket, zone)
        elif last <= _SPARSE and last & (last - 1) == 0:
            merge_zone(store, bucket, source)
        return True
    if last == 0:
        store.buckets[bucket, a.BUCKET_HEAD] = store.blocks[source, a.BLOCK_NEXT]
        drop_block(store, source)
    elif last >= _FEW and 2 * last <= capacity_of(store, source):
        shrink_block(store, source)
    return store.buckets[bucket, a.BUCKET_HEAD] != a.NONE


@inlined
def span_zones(store, table, bucket, event, span):  # type: ignore[no-untyped-def]
    """Write the zones of a bucket to search to `span`: those from FROM up to TO are compared; of those from
    WHOLE_FROM up to WHOLE_TO all rows pass their first test. A low end passes from its code on, a high end up
    to it; an odd code leaves equal bounds undecided. Events without the attribute, or with NaN, pass neither.
    """
    head, order = store.tables[table, a.TABLE_HEAD], store.tables[table, a.TABLE_ORDER]
    directory, zones = store.buckets[bucket, a.BUCKET_HEAD], store.buckets[bucket, a.BUCKET_ZONES]
    code = np.int64(event[head])
    one_end = order in (a.LOW, a.HIGH)
    span[:] = 0
    if one_end and (code == 0 or code > 2 * store.coding[head, a.CODE_COUNT] + 4):
        return
    # zones before `first` have lower codes than the event's alone, zones after `last` higher ones
    first = max(last_zone(store, directory, zones, code - 1), 0)
    last = last_zone(store, directory, zones, code)
    span[FROM], span[TO] = 0 if order == a.BOTH else first, last + 1
    if order == a.HIGH:
        if code & 1 == 0:
            span[TO] = first + 1
        span[WHOLE_FROM], span[WHOLE_TO] = span[TO], zones
    if order == a.LOW:
        if code & 1 == 0:
            span[FROM] = last
        span[WHOLE_TO] = span[FROM]


@inlined
def searched_block(store, bucket, before, step, span):  # type: ignore[no-untyped-def]
    """The block to search at a step, after `before`; NONE after the last."""
    if store.buckets[bucket, a.BUCKET_ZONES] == 0:
        return nth_block(store, bucket, before, step)
    compared = span[TO] - span[FROM]
    if step >= compared + span[WHOLE_TO] - span[WHOLE_FROM]:
        return np.int64(a.NONE)
    zone = span[FROM] + step if step < compared else span[WHOLE_FROM] + step - compared
    return zone_block(store, store.buckets[bucket, a.BUCKET_HEAD], zone)


@inlined
def is_whole(store, bucket, step, span):  # type: ignore[no-untyped-def]
    return store.buckets[bucket, a.BUCKET_ZONES] > 0 and step >= span[TO] - span[FROM]

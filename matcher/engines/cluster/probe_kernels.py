"""Helpers of kernels by which an event finds its buckets.

An event has one access predicate per table, or a few where a range is hashed, and probes for each.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import (
    capacity_of,
    column_at,
    id_at,
    low_at,
    tests_of,
)
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.events.int64 import MISSING
from covey.matcher.jit.hashing import first_hash, mix
from covey.matcher.jit.kernel import inlined, prefetch

# per part of an access predicate: its first cell, and how many cells
PROBE_FIRST, PROBE_CELLS, PROBE_FIELDS = 0, 1, 2
# per bucket to look up: table, place or bucket, event, keys
QUEUE_TABLE, QUEUE_BUCKET, QUEUE_EVENT, QUEUE_KEYS = range(4)
QUEUE_FIELDS = QUEUE_KEYS + a.ACCESS
LINES = 64
"""Lines of a block's codes that are prefetched at most; the processor fetches those that follow by itself."""


@inlined
def set_probe(store, table, keys, codes, e, probe):  # type: ignore[no-untyped-def]
    """The cells of every part of an event's access predicates in a table; returns how many predicates."""
    probes = np.int64(1)
    for part in range(store.tables[table, a.TABLE_WIDTH]):
        at = a.TABLE_PARTS + a.PART_FIELDS * part
        column = store.tables[table, at + a.PART_COLUMN]
        reach = store.tables[table, at + a.PART_REACH]
        key = keys[e, column]
        if key == MISSING:
            return np.int64(0)
        if reach == a.NONE:
            probe[part, PROBE_FIRST], probe[part, PROBE_CELLS] = key, 1
        else:
            code, shift = np.int64(codes[e, column]), store.tables[table, at + a.PART_SHIFT]
            first = max(code - reach, 0) >> shift
            probe[part, PROBE_FIRST] = first
            probe[part, PROBE_CELLS] = (code >> shift) - first + 1
            probes *= probe[part, PROBE_CELLS]
    return probes


@inlined
def enqueue(store, table, keys, codes, e, ahead, probe, queue, queued):  # type: ignore[no-untyped-def]
    """Queue the places of an event's access predicates in a table; returns how many are queued."""
    width, mask = store.tables[table, a.TABLE_WIDTH], store.places.size - 1
    for number in range(set_probe(store, table, keys, codes, e, probe)):
        h, left = first_hash(table), number
        for part in range(width):
            key, cells = probe[part, PROBE_FIRST], probe[part, PROBE_CELLS]
            if cells > 1:
                key += left % cells
                left //= cells
            queue[queued, QUEUE_KEYS + part] = key
            h = mix(h, key)
        queue[queued, QUEUE_TABLE], queue[queued, QUEUE_BUCKET] = table, h & mask
        queue[queued, QUEUE_EVENT] = e
        if ahead:
            prefetch(store.places, h & mask)
        queued += 1
    return queued


@inlined
def find_queued(store, queued, ahead, queue):  # type: ignore[no-untyped-def]
    """Replace queued places by the buckets found there; returns how many.

    `ahead`: cache lines are prefetched for all places at once, then for all buckets, then for their blocks,
    so that their latencies overlap.
    """
    mask = store.places.size - 1
    if ahead:
        for i in range(queued):
            bucket = max(np.int64(store.places[queue[i, QUEUE_BUCKET]]), 0)
            prefetch(store.buckets, bucket * store.buckets.shape[1])
    buckets = np.int64(0)
    for i in range(queued):
        table, place = queue[i, QUEUE_TABLE], queue[i, QUEUE_BUCKET]
        width = store.tables[table, a.TABLE_WIDTH]
        while store.places[place] != a.NONE:
            bucket = np.int64(store.places[place])
            if bucket >= 0 and store.buckets[bucket, a.BUCKET_TABLE] == table:
                part = 0
                while (
                    part < width
                    and store.buckets[bucket, a.BUCKET_KEYS + part] == queue[i, QUEUE_KEYS + part]
                ):
                    part += 1
                if part == width:
                    queue[buckets, QUEUE_TABLE], queue[buckets, QUEUE_BUCKET] = table, bucket
                    queue[buckets, QUEUE_EVENT] = queue[i, QUEUE_EVENT]
                    buckets += 1
                    if ahead and store.buckets[bucket, a.BUCKET_ZONES] == 0:
                        prefetch(store.blocks, store.buckets[bucket, a.BUCKET_HEAD] * a.BLOCK_FIELDS)
                    break
            place = (place + 1) & mask
    return buckets


@inlined
def fetch_ids(store, block):  # type: ignore[no-untyped-def]
    """Prefetch the ids of a block, of not too many rows."""
    first = id_at(store, block)
    for line in range(1 + min(store.blocks[block, a.BLOCK_COUNT] >> 4, 15)):
        prefetch(store.words, first + 16 * line)


@inlined
def fetch_codes(store, block, start, alike):  # type: ignore[no-untyped-def]
    """Prefetch the codes of a block from test `start` on, and the columns of first tests unless they are
    `alike`.
    """
    capacity, tests = capacity_of(store, block), tests_of(store, block)
    first = low_at(store, block, capacity, start)
    for line in range(min((2 * capacity * (tests - start) >> 5) + 1, LINES)):
        prefetch(store.shorts, first + 32 * line)
    if not alike:
        first = column_at(store, block, capacity, tests, 0)
        for line in range((capacity >> 6) + 1):
            prefetch(store.bytes, first + 64 * line)


@inlined
def fetch_bucket(store, table, bucket):  # type: ignore[no-untyped-def]
    """Prefetch the first block of a bucket; or its directory."""
    head = store.buckets[bucket, a.BUCKET_HEAD]
    if store.buckets[bucket, a.BUCKET_ZONES] > 0:
        prefetch(store.longs, head)
    else:
        fetch_codes(store, head, np.int64(0), store.tables[table, a.TABLE_COLUMNS] > 0)
        prefetch(store.words, id_at(store, head))

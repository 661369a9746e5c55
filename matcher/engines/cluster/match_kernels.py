"""Kernels that match events: find an event's buckets and compare their rows. Leaves are searched before.

An event has one access predicate per table, or several where a range is hashed, and probes for each. Several
events are in flight at a time, so that the cache misses of their look-ups overlap, and the next buckets are
prefetched while one is searched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.buckets.block_kernels import (
    capacity_of,
    column_at,
    id_at,
    id_in,
    low_at,
    row_at,
    tests_of,
)
from covey.matcher.engines.cluster.buckets.search_kernels import search_block
from covey.matcher.engines.cluster.buckets.zone_kernels import is_whole, searched_block, span_zones
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.arrays import LEAF_ROWS
from covey.matcher.engines.cluster.layout.code_kernels import code_of
from covey.matcher.engines.cluster.leaves.search_kernels import (
    COUNTS,
    IDS,
    INTERFACES,
    LEAF_MATCHES,
    SLICE,
    LeafMatches,
    set_interface,
)
from covey.matcher.engines.rows.row_kernels import first_of
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
    prefetch,
    record,
    uint8,
    uint16,
    uint64,
)
from covey.matcher.jit.sort_kernels import sort_range

# --- buckets of events ----------------------------------------------------------------------------


# per part of an access predicate: its first cell, and how many cells
PROBE_FIRST, PROBE_CELLS, PROBE_FIELDS = 0, 1, 2
# per bucket to look up: table, place or bucket, event, keys
QUEUE_TABLE, QUEUE_BUCKET, QUEUE_EVENT, QUEUE_KEYS = range(4)
QUEUE_FIELDS = QUEUE_KEYS + a.ACCESS
LINES = 64  # of a block's codes that are prefetched; the processor fetches the following by itself


@inlined
def set_probe(store, table, keys, codes, e, probe):  # type: ignore[no-untyped-def]
    """Write an event's cells in a table to probe[part]; returns how many access predicates these make."""
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
    """Replace queued places by the buckets there; returns how many. `ahead`: prefetch, so misses overlap."""
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
    first = id_at(store, block)
    for line in range(1 + min(store.blocks[block, a.BLOCK_COUNT] >> 4, 15)):
        prefetch(store.words, first + 16 * line)


@inlined
def fetch_codes(store, block, start, alike):  # type: ignore[no-untyped-def]
    """Prefetch the codes from test `start` on, and the columns of first tests unless they are `alike`."""
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
    head = store.buckets[bucket, a.BUCKET_HEAD]
    if store.buckets[bucket, a.BUCKET_ZONES] > 0:
        prefetch(store.longs, head)
    else:
        fetch_codes(store, head, np.int64(0), store.tables[table, a.TABLE_COLUMNS] > 0)
        prefetch(store.words, id_at(store, head))


# --- matching -------------------------------------------------------------------------------------


AHEAD = 3  # buckets


class Buffers(NamedTuple):
    """Working memory to match one event; each thread has its own."""

    probe: npt.NDArray[np.int64]  # [ACCESS, PROBE_FIELDS]
    queue: npt.NDArray[np.int64]  # [most buckets of an event, QUEUE_FIELDS]: table, place or bucket, keys
    flags: npt.NDArray[np.uint8]  # [MOST + STEP], and the same memory in words of
    words: npt.NDArray[np.uint64]  # 64 bits
    hits: npt.NDArray[np.int32]  # [MOST + 8]
    span: npt.NDArray[np.int64]  # [SPAN_FIELDS]
    seen: npt.NDArray[np.int64]  # [rows + 1], where subscriptions have several rows
    leaf: LeafMatches


BUFFERS = record(
    [array(int64, 2), array(int64, 2), array(uint8), array(uint64), array(int32), array(int64),
     array(int64), LEAF_MATCHES],
    Buffers,
)  # fmt: skip


@kernel(frozen(int64, 2), frozen(int64), frozen(int64, 2), array(uint16, 2))
def code_events(coding, cuts, keys, codes):  # type: ignore[no-untyped-def]
    for e in range(keys.shape[0]):
        for column in range(codes.shape[1]):
            codes[e, column] = code_of(coding, cuts, column, keys[e, column])
    return 0


@inlined
def is_first(store, row, seen):  # type: ignore[no-untyped-def]
    """Whether a row is the first of its subscription that matches the event; marks the subscription."""
    first_row = first_of(store.rows, row if row >= 0 else ~row)
    if seen[first_row] == seen[seen.size - 1]:
        return False
    seen[first_row] = seen[seen.size - 1]
    return True


@inlined
def fetch_zones(store, table, bucket, step, span, product):  # type: ignore[no-untyped-def]
    """Prefetch the codes of the zone in AHEAD steps, and the line of the block in twice as many."""
    block = searched_block(store, bucket, np.int64(a.NONE), step + 2 * AHEAD, span)
    if block != a.NONE:
        prefetch(store.blocks, a.BLOCK_FIELDS * block)
    block = searched_block(store, bucket, np.int64(a.NONE), step + AHEAD, span)
    if block != a.NONE:
        whole = is_whole(store, bucket, step + AHEAD, span)
        if not whole or store.tables[table, a.TABLE_TESTS] > 1:
            fetch_codes(store, block, np.int64(whole), True)
        if whole and product == IDS:
            fetch_ids(store, block)


@kernel(a.STORE, frozen(int64, 2), frozen(uint16, 2), int64, int64, int64, int64, int64, boolean, BUFFERS,
        array(int64), array(int64), array(int64), array(uint64, 2))  # fmt: skip
def match_events(  # type: ignore[no-untyped-def]
    store, keys, codes, start, stop, product, most, ahead, shared, buffers, left, offsets, out, bits
):
    """Match the events start:stop; returns the first event for which `out` is too short.

    `product`: IDS are written to `out`, CSR in `offsets`; COUNTS to offsets[1:], INTERFACES to `bits`. The
    search of an event ends once left[e], initially `most`, subscriptions or interfaces match. `ahead` events
    look up their buckets together, with prefetches; if negative, without. `shared`: an event may match
    several rows of a subscription; seen[its first row] is the last event that it matched, by the counter
    seen[-1].
    """
    end = offsets[start]
    queue, hits, span, seen = buffers.queue, buffers.hits, buffers.span, buffers.seen
    in_leaves = store.leaves.state[LEAF_ROWS] > 0 and (product == IDS or (shared and product == COUNTS))
    q, queued, known = np.int64(0), np.int64(0), start
    for e in range(start, stop):
        if e == known:
            known = min(e + abs(ahead), stop)
            q, queued = np.int64(0), np.int64(0)
            for event in range(e, known):
                for table in range(store.state[a.TABLES]):
                    if store.tables[table, a.TABLE_BUCKETS] > 0:
                        queued = enqueue(
                            store, table, keys, codes, event, ahead > 0, buffers.probe, queue, queued
                        )
            queued = find_queued(store, queued, ahead > 0, queue)
            if ahead > 0:
                for soon in range(min(AHEAD, queued)):
                    fetch_bucket(store, queue[soon, QUEUE_TABLE], queue[soon, QUEUE_BUCKET])
        if shared:
            seen[seen.size - 1] += 1
        while q < queued and queue[q, QUEUE_EVENT] == e:
            if ahead > 0 and q + AHEAD < queued:
                fetch_bucket(store, queue[q + AHEAD, QUEUE_TABLE], queue[q + AHEAD, QUEUE_BUCKET])
            table, bucket = queue[q, QUEUE_TABLE], queue[q, QUEUE_BUCKET]
            q += 1
            if left[e] <= 0:
                continue
            zoned = store.buckets[bucket, a.BUCKET_ZONES] > 0
            if zoned:
                span_zones(store, table, bucket, codes[e], span)
            step = np.int64(0)
            block = searched_block(store, bucket, np.int64(a.NONE), step, span)
            while block != a.NONE and left[e] > 0:
                if zoned and ahead > 0:
                    fetch_zones(store, table, bucket, step, span, product)
                count = np.int64(store.blocks[block, a.BLOCK_COUNT])
                if product == IDS and end + count > out.size:
                    return e
                whole = is_whole(store, bucket, step, span)
                first = id_at(store, block)
                rows = row_at(store, block, capacity_of(store, block))
                if whole and not shared and store.tables[table, a.TABLE_TESTS] == 1:
                    if product == INTERFACES:
                        for i in range(count):
                            left[e] -= set_interface(store, store.words[rows + i], e, bits)
                    else:
                        if product == IDS:
                            for i in range(count):
                                out[end + i] = id_in(store, first, rows, i)
                            end += count
                        left[e] -= count
                else:
                    listed = shared or product != COUNTS
                    matched = search_block(store, block, table, whole, listed, keys, codes, e, buffers)
                    if shared and product != INTERFACES:
                        fresh = np.int64(0)
                        for i in range(matched):
                            hits[fresh] = hits[i]
                            fresh += np.int64(is_first(store, store.words[rows + hits[i]], seen))
                        matched = fresh
                    if product == INTERFACES:
                        for i in range(matched):
                            left[e] -= set_interface(store, store.words[rows + hits[i]], e, bits)
                    else:
                        if product == IDS:
                            for i in range(matched):
                                out[end + i] = id_in(store, first, rows, np.int64(hits[i]))
                            end += matched
                        left[e] -= matched
                step += 1
                block = searched_block(store, bucket, block, step, span)
        if in_leaves:
            found, place = buffers.leaf, e & SLICE - 1
            if product == IDS and end + found.offsets[place + 1] - found.offsets[place] > out.size:
                return e
            for i in range(found.offsets[place], found.offsets[place + 1]):
                if not shared or is_first(store, np.int64(found.rows[i]), seen):
                    if product == IDS:
                        out[end] = found.ids[i]
                        end += 1
                    left[e] -= 1
        offsets[e + 1] = most - left[e] if product == COUNTS else end
    return stop


@kernel(frozen(int64), frozen(int64), frozen(int64), frozen(int64), boolean, array(int64), array(int64))
def join_answers(offsets, ids, more_offsets, more_ids, distinct, joined, out):  # type: ignore[no-untyped-def]
    """Join two answers, event by event, in `out`, CSR in `joined`. `distinct`: each id once, ascending."""
    end = np.int64(0)
    for e in range(joined.size - 1):
        start = end
        for i in range(offsets[e], offsets[e + 1]):
            out[end] = ids[i]
            end += 1
        for i in range(more_offsets[e], more_offsets[e + 1]):
            out[end] = more_ids[i]
            end += 1
        if distinct:
            sort_range(out, start, end)
            last, end = end, start
            for i in range(start, last):
                if i == start or out[i] != out[end - 1]:
                    out[end] = out[i]
                    end += 1
        joined[e + 1] = end
    return 0

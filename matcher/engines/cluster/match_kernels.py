"""Kernels of the cluster engine by which events meet rows; the arrays are drawn in `cluster/arrays.py`.

An event is looked up in every table: its access predicate there is a bucket, or a few of them where a range
is hashed. Then it is looked up in the leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import boolean, float64, int32, int64, types, uint8, uint16, uint64

from covey.matcher.encoding.keys import MISSING
from covey.matcher.engines.cluster.arrays import (
    ACCESS,
    BLOCK_COUNT,
    BLOCK_FIELDS,
    BUCKET_HEAD,
    BUCKET_KEYS,
    BUCKET_TABLE,
    BUCKET_TOP,
    BUCKET_ZONES,
    CODE_COUNT,
    NONE,
    PART_COLUMN,
    PART_FIELDS,
    PART_REACH,
    PART_SHIFT,
    STORE,
    TABLE_BUCKETS,
    TABLE_HEAD,
    TABLE_ORDER,
    TABLE_PARTS,
    TABLE_TESTS,
    TABLE_WIDTH,
    TABLES,
)
from covey.matcher.engines.cluster.code_kernels import BOTH, HIGH, LOW, code_of
from covey.matcher.engines.cluster.leaves.arrays import LEAF, LEAF_ROWS, RECORD
from covey.matcher.engines.cluster.leaves.match_kernels import (
    LEAF_BUFFERS,
    LeafBuffers,
    fetch_leaf,
    list_leaves,
)
from covey.matcher.engines.cluster.placing_kernels import first_hash, mix
from covey.matcher.engines.cluster.search_kernels import search_block, search_leaf, search_plainly
from covey.matcher.engines.cluster.slot_kernels import (
    capacity_of,
    column_at,
    id_at,
    last_zone,
    low_at,
    nth_block,
    row_at,
    tests_of,
    zone_block,
)
from covey.matcher.engines.rows.kernels import ROW_SIGNATURE, first_of, interface_of, sort_range
from covey.matcher.jit.kernel import array, frozen, inlined, kernel, prefetch

AHEAD = 3
"""How many buckets early the lines of one are fetched."""

# a part of what an event asks of a table: its first cell, how many, and the one at hand
PROBE_FIRST, PROBE_CELLS, PROBE_KEY, PROBE_FIELDS = 0, 1, 2, 3
QUEUE_KEYS, QUEUE_FIELDS = 2, 2 + ACCESS
# which zones of a bucket an event concerns, see `span_zones`
FROM, TO, WHOLE_FROM, WHOLE_TO, SPAN_FIELDS = 0, 1, 2, 3, 4


class Buffers(NamedTuple):
    """What matching one event needs besides the store; a thread has its own."""

    probe: npt.NDArray[np.int64]  # [ACCESS, PROBE_FIELDS]
    queue: npt.NDArray[np.int64]  # [most buckets of an event, QUEUE_FIELDS]: table, place or bucket, keys
    flags: npt.NDArray[np.uint8]  # [MOST + STEP], and the same memory in words of
    words: npt.NDArray[np.uint64]  # 64 bits
    hits: npt.NDArray[np.int32]  # [MOST + 8]
    span: npt.NDArray[np.int64]  # [SPAN_FIELDS]
    leaf: LeafBuffers


BUFFERS = types.NamedTuple(  # type: ignore[no-untyped-call]
    [array(int64, 2), array(int64, 2), array(uint8), array(uint64), array(int32), array(int64), LEAF_BUFFERS],
    Buffers,
)


@kernel(frozen(int64, 2), frozen(int64), frozen(int64, 2), array(uint16, 2))
def code_events(coding, cuts, keys, codes):  # type: ignore[no-untyped-def]
    """The codes[e, c] of keys[e, c]."""
    for e in range(keys.shape[0]):
        for column in range(codes.shape[1]):
            codes[e, column] = code_of(coding, cuts, column, keys[e, column])
    return 0


@inlined
def set_probe(store, table, keys, codes, e, probe):  # type: ignore[no-untyped-def]
    """What an event asks of a table: the cells of every part; returns how many buckets that may be."""
    asked = np.int64(1)
    for a in range(store.tables[table, TABLE_WIDTH]):
        part = TABLE_PARTS + PART_FIELDS * a
        column = store.tables[table, part + PART_COLUMN]
        reach = store.tables[table, part + PART_REACH]
        key = keys[e, column]
        if key == MISSING:
            return np.int64(0)
        if reach == NONE:
            probe[a, PROBE_FIRST], probe[a, PROBE_CELLS] = key, 1
        else:
            code, shift = np.int64(codes[e, column]), store.tables[table, part + PART_SHIFT]
            first = max(code - reach, 0) >> shift
            probe[a, PROBE_FIRST] = first
            probe[a, PROBE_CELLS] = (code >> shift) - first + 1
            asked *= probe[a, PROBE_CELLS]
    return asked


@inlined
def probed_bucket(store, table, probe, number):  # type: ignore[no-untyped-def]
    """The bucket of the `number`-th combination of cells, or NONE."""
    width = store.tables[table, TABLE_WIDTH]
    h = first_hash(table)
    left = number
    for a in range(width):
        cells = probe[a, PROBE_CELLS]
        if cells == 1:
            key = probe[a, PROBE_FIRST]
        else:
            key = probe[a, PROBE_FIRST] + left % cells
            left //= cells
        probe[a, PROBE_KEY] = key
        h = mix(h, key)
    mask = store.places.size - 1
    place = h & mask
    while store.places[place] != NONE:
        b = store.places[place]
        if b >= 0 and store.buckets[b, BUCKET_TABLE] == table:
            a = 0
            while a < width and store.buckets[b, BUCKET_KEYS + a] == probe[a, PROBE_KEY]:
                a += 1
            if a == width:
                return np.int64(b)
        place = (place + 1) & mask
    return np.int64(NONE)


@inlined
def enqueue(store, table, keys, codes, e, ahead, probe, queue, queued):  # type: ignore[no-untyped-def]
    """Put on the queue where an event looks into a table: table, place and keys; returns how many are
    queued.
    """
    width, mask = store.tables[table, TABLE_WIDTH], store.places.size - 1
    for number in range(set_probe(store, table, keys, codes, e, probe)):
        h, left = first_hash(table), number
        for a in range(width):
            key, cells = probe[a, PROBE_FIRST], probe[a, PROBE_CELLS]
            if cells > 1:
                key += left % cells
                left //= cells
            queue[queued, QUEUE_KEYS + a] = key
            h = mix(h, key)
        queue[queued, 0], queue[queued, 1] = table, h & mask
        if ahead:
            prefetch(store.places, h & mask)
        queued += 1
    return queued


@inlined
def find_queued(store, queued, ahead, queue):  # type: ignore[no-untyped-def]
    """Find the buckets of what is queued, and leave those on the queue: table and bucket; returns how many.

    Lines are asked for all at once, so that they are waited for together: of the places, then of the
    buckets, then of their blocks.
    """
    mask = store.places.size - 1
    if ahead:
        for i in range(queued):
            prefetch(store.buckets, max(np.int64(store.places[queue[i, 1]]), 0) * store.buckets.shape[1])
    found = np.int64(0)
    for i in range(queued):
        table, place = queue[i, 0], queue[i, 1]
        width = store.tables[table, TABLE_WIDTH]
        while store.places[place] != NONE:
            bucket = np.int64(store.places[place])
            if bucket >= 0 and store.buckets[bucket, BUCKET_TABLE] == table:
                a = 0
                while a < width and store.buckets[bucket, BUCKET_KEYS + a] == queue[i, QUEUE_KEYS + a]:
                    a += 1
                if a == width:
                    queue[found, 0], queue[found, 1] = table, bucket
                    found += 1
                    if ahead and store.buckets[bucket, BUCKET_ZONES] == 0:
                        prefetch(store.blocks, store.buckets[bucket, BUCKET_HEAD] * BLOCK_FIELDS)
                    break
            place = (place + 1) & mask
    return found


@inlined
def span_zones(store, table, bucket, event, span):  # type: ignore[no-untyped-def]
    """Which zones of a bucket an event concerns: those from span[FROM] to before span[TO] are to be compared,
    of those from span[WHOLE_FROM] to before span[WHOLE_TO] all rows pass their first test.

    A low end is passed from its code on, a high end up to it; a code that is odd leaves bounds of the same
    code in doubt. Events that miss the attribute, or have NaN, pass neither.
    """
    head, order = store.tables[table, TABLE_HEAD], store.tables[table, TABLE_ORDER]
    directory, zones = store.buckets[bucket, BUCKET_HEAD], store.buckets[bucket, BUCKET_ZONES]
    code = np.int64(event[head])
    one_end = order in (LOW, HIGH)
    span[:] = 0
    if one_end and (code == 0 or code > 2 * store.coding[head, CODE_COUNT] + 4):
        return
    # those before the first and behind the last of these have codes below, or above, the event's alone
    first = max(last_zone(store, directory, zones, code - 1), 0)
    last = last_zone(store, directory, zones, code)
    span[FROM], span[TO] = 0 if order == BOTH else first, last + 1
    if order == HIGH:
        if code & 1 == 0:
            span[TO] = first + 1
        span[WHOLE_FROM], span[WHOLE_TO] = span[TO], zones
    if order == LOW:
        if code & 1 == 0:
            span[FROM] = last
        span[WHOLE_TO] = span[FROM]


@inlined
def searched_block(store, bucket, before, step, span):  # type: ignore[no-untyped-def]
    """The block to search at a step, after `before`; NONE when all are."""
    if store.buckets[bucket, BUCKET_ZONES] == 0:
        return nth_block(store, bucket, before, step)
    compared = span[TO] - span[FROM]
    if step >= compared + span[WHOLE_TO] - span[WHOLE_FROM]:
        return np.int64(NONE)
    zone = span[FROM] + step if step < compared else span[WHOLE_FROM] + step - compared
    return zone_block(store, store.buckets[bucket, BUCKET_HEAD], zone)


@inlined
def is_whole(store, bucket, step, span):  # type: ignore[no-untyped-def]
    return store.buckets[bucket, BUCKET_ZONES] > 0 and step >= span[TO] - span[FROM]


@inlined
def fetch_bucket(store, bucket):  # type: ignore[no-untyped-def]
    """Ask for the lines of the first block of a bucket, its ids, first codes and columns; or of its
    directory.
    """
    head = store.buckets[bucket, BUCKET_HEAD]
    if store.buckets[bucket, BUCKET_ZONES] > 0:
        prefetch(store.longs, head)
        return
    capacity, tests = capacity_of(store, head), tests_of(store, head)
    prefetch(store.longs, id_at(store, head))
    prefetch(store.shorts, low_at(store, head, capacity, 0))
    prefetch(store.shorts, low_at(store, head, capacity, 1))
    prefetch(store.bytes, column_at(store, head, capacity, tests, 0))


@kernel(STORE, frozen(int64, 2), frozen(uint16, 2), int64, boolean, boolean, boolean, array(int64), BUFFERS,
        array(int64), array(int64))  # fmt: skip
def match_events(store, keys, codes, start, ahead, shared, ordered, seen, buffers, offsets, out):  # type: ignore[no-untyped-def]
    """Match events from `start` on into CSR offsets and ids; returns the first event for which `out` was too
    short.

    All buckets of an event are found before any is searched. `ahead`: while one is searched, the next ones
    are fetched, and rows are compared a block at a time; else row by row. `shared`: some subscription has
    several rows: seen[its first row] is the last event that it matched, by a count that stands in seen[-1].
    `ordered`: ids ascend per event.
    """
    end = offsets[start]
    queue, hits, span = buffers.queue, buffers.hits, buffers.span
    for e in range(start, keys.shape[0]):
        if shared:
            seen[seen.size - 1] += 1
        queued = np.int64(0)
        for table in range(store.state[TABLES]):
            if store.tables[table, TABLE_BUCKETS] > 0:
                queued = enqueue(store, table, keys, codes, e, ahead, buffers.probe, queue, queued)
        queued = find_queued(store, queued, ahead, queue)
        for q in range(queued):
            if ahead and q + AHEAD < queued:
                fetch_bucket(store, queue[q + AHEAD, 1])
            table, bucket = queue[q, 0], queue[q, 1]
            if store.buckets[bucket, BUCKET_ZONES] > 0:
                span_zones(store, table, bucket, codes[e], span)
            step = np.int64(0)
            block = searched_block(store, bucket, np.int64(NONE), step, span)
            while block != NONE:
                count = np.int64(store.blocks[block, BLOCK_COUNT])
                if end + count > out.size:
                    return e
                whole = is_whole(store, bucket, step, span)
                first = id_at(store, block)
                if whole and not shared and store.tables[table, TABLE_TESTS] == 1:
                    for i in range(count):
                        out[end + i] = store.longs[first + i]
                    end += count
                else:
                    if ahead:
                        found = search_block(
                            store, block, table, whole, keys, codes, e, buffers.flags, buffers.words, hits
                        )
                    else:
                        found = search_plainly(store, block, keys, codes, e, hits)
                    if shared:
                        rows = row_at(store, block, capacity_of(store, block))
                        for i in range(found):
                            row = store.words[rows + hits[i]]
                            first_row = first_of(store.rows, row if row >= 0 else ~row)
                            if seen[first_row] != seen[seen.size - 1]:
                                seen[first_row] = seen[seen.size - 1]
                                out[end] = store.longs[first + hits[i]]
                                end += 1
                    else:
                        for i in range(found):
                            out[end + i] = store.longs[first + hits[i]]
                        end += found
                step += 1
                block = searched_block(store, bucket, block, step, span)
        listed = np.int64(0)
        if store.leaves.state[LEAF_ROWS] > 0:
            listed = list_leaves(store.leaves, codes[e], buffers.leaf)
        for i in range(listed):
            if i + 1 < listed:
                fetch_leaf(store.leaves, buffers.leaf.listed[i + 1], buffers.leaf)
            if end + LEAF > out.size:
                return e
            places = buffers.leaf.hits
            for h in range(search_leaf(store, buffers.leaf.listed[i], keys, codes, e, buffers.leaf)):
                if shared:
                    row = store.leaves.records[RECORD * places[h] + 1] >> 32
                    first_row = first_of(store.rows, row if row >= 0 else ~row)
                    if seen[first_row] == seen[seen.size - 1]:
                        continue
                    seen[first_row] = seen[seen.size - 1]
                out[end] = store.leaves.records[RECORD * places[h]]
                end += 1
        if ordered:
            sort_range(out, offsets[e], end)
        offsets[e + 1] = end
    return keys.shape[0]


@kernel(STORE, frozen(int64, 2), frozen(uint16, 2), array(int64, 2), array(int64))
def reach_buckets(store, keys, codes, probe, reached):  # type: ignore[no-untyped-def]
    """Add to reached[b] how many of the events look into bucket b."""
    for e in range(keys.shape[0]):
        for table in range(store.state[TABLES]):
            if store.tables[table, TABLE_BUCKETS] > 0:
                for number in range(set_probe(store, table, keys, codes, e, probe)):
                    bucket = probed_bucket(store, table, probe, number)
                    if bucket != NONE:
                        reached[bucket] += 1
    return 0


@kernel(STORE, frozen(int64), float64, array(float64))
def weigh_signatures(store, reached, least, checks):  # type: ignore[no-untyped-def]
    """Add to checks[s] how often rows of signature s are checked, in buckets of `least` checks or more,
    when bucket b is looked into reached[b] times.
    """
    for bucket in range(store.state[BUCKET_TOP]):
        if store.buckets[bucket, BUCKET_TABLE] == NONE or reached[bucket] == 0:
            continue
        rows, number = np.int64(0), np.int64(0)
        block = nth_block(store, bucket, np.int64(NONE), number)
        while block != NONE:
            rows += store.blocks[block, BLOCK_COUNT]
            number += 1
            block = nth_block(store, bucket, block, number)
        if rows * reached[bucket] < least:
            continue
        number = np.int64(0)
        block = nth_block(store, bucket, np.int64(NONE), number)
        while block != NONE:
            first = row_at(store, block, capacity_of(store, block))
            for p in range(store.blocks[block, BLOCK_COUNT]):
                row = store.words[first + p]
                checks[store.rows[row if row >= 0 else ~row, ROW_SIGNATURE]] += reached[bucket]
            number += 1
            block = nth_block(store, bucket, block, number)
    return 0


@inlined
def set_interface(store, row, e, bits):  # type: ignore[no-untyped-def]
    """Set the bit of a row's interface for an event; returns how many bits that makes more."""
    interface = interface_of(store.rows, row)
    bit = np.uint64(1) << np.uint64(interface & 63)
    if bits[e, interface >> 6] & bit != 0:
        return np.int64(0)
    bits[e, interface >> 6] |= bit
    return np.int64(1)


@kernel(STORE, frozen(int64, 2), frozen(uint16, 2), int64, BUFFERS, array(uint64, 2))
def match_bits(store, keys, codes, interfaces, buffers, bits):  # type: ignore[no-untyped-def]
    """Set the bits of the interfaces that an event matches; an event is done when all `interfaces` in use are
    set.
    """
    hits = buffers.hits
    for e in range(keys.shape[0]):
        left = interfaces
        table = 0
        while table < store.state[TABLES] and left > 0:
            asked = np.int64(0)
            if store.tables[table, TABLE_BUCKETS] > 0:
                asked = set_probe(store, table, keys, codes, e, buffers.probe)
            number = 0
            while number < asked and left > 0:
                bucket = probed_bucket(store, table, buffers.probe, number)
                if bucket != NONE:
                    if store.buckets[bucket, BUCKET_ZONES] > 0:
                        span_zones(store, table, bucket, codes[e], buffers.span)
                    step = np.int64(0)
                    block = searched_block(store, bucket, np.int64(NONE), step, buffers.span)
                    while block != NONE and left > 0:
                        whole = is_whole(store, bucket, step, buffers.span)
                        found = search_block(
                            store, block, table, whole, keys, codes, e, buffers.flags, buffers.words, hits
                        )
                        rows = row_at(store, block, capacity_of(store, block))
                        for i in range(found):
                            row = store.words[rows + hits[i]]
                            left -= set_interface(store, row if row >= 0 else ~row, e, bits)
                        step += 1
                        block = searched_block(store, bucket, block, step, buffers.span)
                number += 1
            table += 1
        listed = np.int64(0)
        if store.leaves.state[LEAF_ROWS] > 0 and left > 0:
            listed = list_leaves(store.leaves, codes[e], buffers.leaf)
        turn = np.int64(0)
        while turn < listed and left > 0:
            leaf = buffers.leaf.listed[turn]
            for h in range(search_leaf(store, leaf, keys, codes, e, buffers.leaf)):
                row = store.leaves.records[RECORD * buffers.leaf.hits[h] + 1] >> 32
                left -= set_interface(store, row if row >= 0 else ~row, e, bits)
            turn += 1
    return 0

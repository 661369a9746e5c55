"""Kernels that match events: a search in the buckets of every table, then in the leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import boolean, int32, int64, types, uint8, uint16, uint64

from covey.matcher.engines.cluster.buckets.block_kernels import capacity_of, id_at, row_at
from covey.matcher.engines.cluster.buckets.search_kernels import search_block, search_plainly
from covey.matcher.engines.cluster.buckets.zone_kernels import is_whole, searched_block, span_zones
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.code_kernels import code_of
from covey.matcher.engines.cluster.layout.leaf_arrays import LEAF, LEAF_RECORD, LEAF_ROWS
from covey.matcher.engines.cluster.leaves.search_kernels import (
    LEAF_BUFFERS,
    LeafBuffers,
    fetch_leaf,
    list_leaves,
    search_leaf,
)
from covey.matcher.engines.cluster.probe_kernels import enqueue, fetch_bucket, find_queued
from covey.matcher.engines.rows.row_kernels import first_of, interface_of
from covey.matcher.jit.kernel import array, frozen, inlined, kernel
from covey.matcher.jit.sort_kernels import sort_range

AHEAD = 3
"""How many buckets ahead cache lines are prefetched."""
COUNTS, IDS, INTERFACES = range(3)
"""What a search computes."""


class Buffers(NamedTuple):
    """Working memory to match one event; each thread has its own."""

    probe: npt.NDArray[np.int64]  # [ACCESS, PROBE_FIELDS]
    queue: npt.NDArray[np.int64]  # [most buckets of an event, QUEUE_FIELDS]: table, place or bucket, keys
    flags: npt.NDArray[np.uint8]  # [MOST + STEP], and the same memory in words of
    words: npt.NDArray[np.uint64]  # 64 bits
    hits: npt.NDArray[np.int32]  # [MOST + 8]
    span: npt.NDArray[np.int64]  # [SPAN_FIELDS]
    seen: npt.NDArray[np.int64]  # [rows + 1], where subscriptions have several rows
    leaf: LeafBuffers


BUFFERS = types.NamedTuple(  # type: ignore[no-untyped-call]
    [array(int64, 2), array(int64, 2), array(uint8), array(uint64), array(int32), array(int64),
     array(int64), LEAF_BUFFERS],
    Buffers,
)  # fmt: skip


@kernel(frozen(int64, 2), frozen(int64), frozen(int64, 2), array(uint16, 2))
def code_events(coding, cuts, keys, codes):  # type: ignore[no-untyped-def]
    """The codes[e, c] of keys[e, c]."""
    for e in range(keys.shape[0]):
        for column in range(codes.shape[1]):
            codes[e, column] = code_of(coding, cuts, column, keys[e, column])
    return 0


@inlined
def is_first(store, row, seen):  # type: ignore[no-untyped-def]
    """Whether no row of a row's subscription matched the event before; from now on one has."""
    first_row = first_of(store.rows, row if row >= 0 else ~row)
    if seen[first_row] == seen[seen.size - 1]:
        return False
    seen[first_row] = seen[seen.size - 1]
    return True


@inlined
def set_interface(store, row, e, bits):  # type: ignore[no-untyped-def]
    """Set the bit of a row's interface for an event; returns 1 if it was not set yet, else 0."""
    interface = interface_of(store.rows, row if row >= 0 else ~row)
    bit = np.uint64(1) << np.uint64(interface & 63)
    if bits[e, interface >> 6] & bit != 0:
        return np.int64(0)
    bits[e, interface >> 6] |= bit
    return np.int64(1)


@kernel(a.STORE, frozen(int64, 2), frozen(uint16, 2), int64, int64, int64, boolean, boolean, BUFFERS,
        array(int64), array(int64), array(uint64, 2))  # fmt: skip
def match_events(store, keys, codes, start, product, most, ahead, shared, buffers, offsets, out, bits):  # type: ignore[no-untyped-def]
    """Match events from `start` on; returns the first event for which `out` was too short.

    `product`: IDS are written to `out`, CSR in `offsets`; COUNTS to offsets[1:], INTERFACES to `bits`. The
    search of an event ends once `most` subscriptions, or interfaces, match. All buckets of an event are found
    before any is searched. `ahead`: the next buckets are prefetched while one is searched, and rows are
    compared a block at a time; else row by row. `shared`: some subscription has several rows: seen[its first
    row] is the last event that it matched, by the counter in seen[-1].
    """
    end = offsets[start]
    queue, hits, span, seen = buffers.queue, buffers.hits, buffers.span, buffers.seen
    for e in range(start, keys.shape[0]):
        left = most
        if shared:
            seen[seen.size - 1] += 1
        queued = np.int64(0)
        for table in range(store.state[a.TABLES]):
            if store.tables[table, a.TABLE_BUCKETS] > 0:
                queued = enqueue(store, table, keys, codes, e, ahead, buffers.probe, queue, queued)
        queued = find_queued(store, queued, ahead, queue)
        q = np.int64(0)
        while q < queued and left > 0:
            if ahead and q + AHEAD < queued:
                fetch_bucket(store, queue[q + AHEAD, 1])
            table, bucket = queue[q, 0], queue[q, 1]
            if store.buckets[bucket, a.BUCKET_ZONES] > 0:
                span_zones(store, table, bucket, codes[e], span)
            step = np.int64(0)
            block = searched_block(store, bucket, np.int64(a.NONE), step, span)
            while block != a.NONE and left > 0:
                count = np.int64(store.blocks[block, a.BLOCK_COUNT])
                if product == IDS and end + count > out.size:
                    return e
                whole = is_whole(store, bucket, step, span)
                first = id_at(store, block)
                rows = row_at(store, block, capacity_of(store, block))
                if whole and not shared and store.tables[table, a.TABLE_TESTS] == 1:
                    if product == INTERFACES:
                        for i in range(count):
                            left -= set_interface(store, store.words[rows + i], e, bits)
                    else:
                        if product == IDS:
                            for i in range(count):
                                out[end + i] = store.longs[first + i]
                        end += count
                        left -= count
                else:
                    if ahead:
                        matched = search_block(store, block, table, whole, keys, codes, e, buffers)
                    else:
                        matched = search_plainly(store, block, keys, codes, e, hits)
                    if shared:
                        new = np.int64(0)
                        for i in range(matched):
                            hits[new] = hits[i]
                            new += np.int64(is_first(store, store.words[rows + hits[i]], seen))
                        matched = new
                    if product == INTERFACES:
                        for i in range(matched):
                            left -= set_interface(store, store.words[rows + hits[i]], e, bits)
                    else:
                        if product == IDS:
                            for i in range(matched):
                                out[end + i] = store.longs[first + hits[i]]
                        end += matched
                        left -= matched
                step += 1
                block = searched_block(store, bucket, block, step, span)
            q += 1
        listed = np.int64(0)
        if store.leaves.state[LEAF_ROWS] > 0 and left > 0:
            listed = list_leaves(store.leaves, codes[e], buffers.leaf)
        turn = np.int64(0)
        while turn < listed and left > 0:
            if turn + 1 < listed:
                fetch_leaf(store.leaves, buffers.leaf.listed[turn + 1], buffers.leaf)
            if product == IDS and end + LEAF > out.size:
                return e
            places = buffers.leaf.hits
            for h in range(search_leaf(store, buffers.leaf.listed[turn], keys, codes, e, buffers.leaf)):
                row = store.leaves.records[LEAF_RECORD * places[h] + 1] >> 32
                if product == INTERFACES:
                    left -= set_interface(store, row, e, bits)
                elif not shared or is_first(store, row, seen):
                    if product == IDS:
                        out[end] = store.leaves.records[LEAF_RECORD * places[h]]
                    end += 1
                    left -= 1
            turn += 1
        offsets[e + 1] = end
        if product == COUNTS:
            end = np.int64(0)
    return keys.shape[0]


@kernel(frozen(int64), frozen(int64), frozen(int64), frozen(int64), boolean, array(int64), array(int64))
def join_answers(offsets, ids, more_offsets, more_ids, distinct, joined, out):  # type: ignore[no-untyped-def]
    """The ids of two answers, event by event, in `out`, CSR in `joined`. `distinct`: an id that is in both
    comes once, and ids ascend.
    """
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

"""Kernels that match events: a search in the buckets of every table; leaves are searched before
(`leaves/search_kernels.py`).

Several events are in flight at a time: their buckets are looked up together, so that cache misses overlap,
and the buckets that come next are prefetched while one is searched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.buckets.block_kernels import capacity_of, id_at, id_in, row_at
from covey.matcher.engines.cluster.buckets.search_kernels import search_block, search_plainly
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
from covey.matcher.engines.cluster.probe_kernels import (
    QUEUE_BUCKET,
    QUEUE_EVENT,
    QUEUE_TABLE,
    enqueue,
    fetch_bucket,
    fetch_codes,
    fetch_ids,
    find_queued,
)
from covey.matcher.engines.rows.row_kernels import first_of
from covey.matcher.jit.kernel import (
    array,
    boolean,
    frozen,
    inlined,
    int32,
    int64,
    kernel,
    prefetch,
    record,
    uint8,
    uint16,
    uint64,
)
from covey.matcher.jit.sort_kernels import sort_range

AHEAD = 3
"""How many buckets ahead cache lines are prefetched."""


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
def fetch_zones(store, table, bucket, step, span, product):  # type: ignore[no-untyped-def]
    """Prefetch a zone that will be searched soon, and the line of one after it."""
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
    """Match the events from `start` to `stop`; returns the first event for which `out` was too short.

    `product`: IDS are written to `out`, CSR in `offsets`; COUNTS to offsets[1:], INTERFACES to `bits`. The
    search of an event ends once left[e], at first `most`, subscriptions or interfaces match. `ahead`: so many
    events look up their buckets together, the next buckets are prefetched while one is searched, and rows are
    compared a block at a time; if negative, the same without any prefetch; if 0, row by row. `shared`: some
    subscription has several rows: seen[its first row] is the last event that it matched, by the counter in
    seen[-1].
    """
    end = offsets[start]
    queue, hits, span, seen = buffers.queue, buffers.hits, buffers.span, buffers.seen
    in_leaves = store.leaves.state[LEAF_ROWS] > 0 and (product == IDS or (shared and product == COUNTS))
    q, queued, known = np.int64(0), np.int64(0), start
    for e in range(start, stop):
        if e == known:
            known = min(e + max(abs(ahead), 1), stop)
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
                    if ahead != 0:
                        listed = shared or product != COUNTS
                        matched = search_block(store, block, table, whole, listed, keys, codes, e, buffers)
                    else:
                        matched = search_plainly(store, block, keys, codes, e, hits)
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

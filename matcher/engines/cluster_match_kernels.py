"""Kernels of the cluster engine by which events meet rows; the arrays are drawn in `cluster_arrays.py`.

An event is looked up in every table: its access predicate there is a bucket, or a few of them where a range
is hashed. The rows of a bucket are compared by codes, one after the other where each tests columns of its
own, in vectors where all test the same column first; what codes leave open is compared with the bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import boolean, float64, int32, int64, types, uint8, uint16, uint64

from covey.matcher.engines.cluster_arrays import (
    BLOCK_COUNT,
    BLOCK_NEXT,
    BUCKET_HEAD,
    BUCKET_KEYS,
    BUCKET_TABLE,
    BUCKET_TOP,
    MOST,
    NARROW,
    NONE,
    PART_COLUMN,
    PART_FIELDS,
    PART_REACH,
    PART_SHIFT,
    SIGN_SIZE,
    SIGN_TESTS,
    STORE,
    TABLE_BUCKETS,
    TABLE_HEAD,
    TABLE_PARTS,
    TABLE_SOLE,
    TABLE_WIDTH,
    TABLES,
    TEST_COLUMN,
    TEST_FIELDS,
)
from covey.matcher.engines.cluster_kernels import (
    capacity_of,
    code_of,
    column_at,
    first_hash,
    high_bound,
    low_at,
    low_bound,
    mix,
    row_at,
)
from covey.matcher.engines.row_kernels import ROW_FIRST, ROW_INTERFACE, ROW_PLACE, ROW_SIGNATURE, sort_range
from covey.matcher.kernel import array, frozen, inlined, kernel, prefetch
from covey.matcher.keys import MISSING

AHEAD = 3
"""How many buckets early the lines of one are fetched."""
STEP = 256
FEW = 48
"""Rows of a block up to which vectors do not pay."""

# a part of what an event asks of a table: its first cell, how many, and the one at hand
PROBE_FIRST, PROBE_CELLS, PROBE_KEY, PROBE_FIELDS = 0, 1, 2, 3


class Buffers(NamedTuple):
    """What matching one event needs besides the store; a thread has its own."""

    probe: npt.NDArray[np.int64]  # [ACCESS, PROBE_FIELDS]
    queue: npt.NDArray[np.int64]  # [the most buckets of an event, 2]: table, block
    flags: npt.NDArray[np.uint8]  # [MOST + STEP], and the same memory in words of
    words: npt.NDArray[np.uint64]  # 64 bits
    hits: npt.NDArray[np.int32]  # [MOST + 8]


BUFFERS = types.NamedTuple(  # type: ignore[no-untyped-call]
    [array(int64, 2), array(int64, 2), array(uint8), array(uint64), array(int32)], Buffers
)


@kernel(frozen(int64, 2), frozen(int64), frozen(int64, 2), array(uint16, 2))
def code_events(coding, cuts, keys, codes):  # type: ignore[no-untyped-def]
    """The codes[e, c] of keys[e, c]."""
    for e in range(keys.shape[0]):
        for column in range(codes.shape[1]):
            codes[e, column] = code_of(coding, cuts, column, keys[e, column])
    return 0


@inlined
def passes_bounds(store, row, keys, e):  # type: ignore[no-untyped-def]
    """Whether an event passes all tests of a row, by the bounds."""
    signature, place = store.rows[row, ROW_SIGNATURE], store.rows[row, ROW_PLACE]
    for test in range(store.signatures[signature, SIGN_SIZE]):
        key = keys[e, store.signatures[signature, SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN]]
        if key < low_bound(store, signature, place, test) or key > high_bound(store, signature, place, test):
            return False
    return True


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
def doubtful(code, low, high):  # type: ignore[no-untyped-def]
    """Whether a code that passes is one that a bound lies within."""
    return (code & 1 != 0) & ((code == low) | (code == high))


@inlined
def flag_alike(lows, highs, code, count, flags):  # type: ignore[no-untyped-def]
    """flags[p] = lows[p] <= code <= highs[p], for `count` rows and a few more.

    Steps of a fixed length, over slices, are what compilers make vector instructions of.
    """
    for start in range(0, count, STEP):
        low, high, flag = lows[start : start + STEP], highs[start : start + STEP], flags[start : start + STEP]
        for i in range(STEP):
            flag[i] = np.uint8(low[i] <= code) & np.uint8(code <= high[i])


@inlined
def flag_each(columns, lows, highs, codes, count, flags):  # type: ignore[no-untyped-def]
    """As `flag_alike`, every row by the code of its own column; without branches, which would be guessed
    wrong.
    """
    for p in range(count):
        code = codes[columns[p]]
        flags[p] = np.uint8(lows[p] <= code) & np.uint8(code <= highs[p])


@inlined
def search_plainly(store, block, keys, codes, e, hits):  # type: ignore[no-untyped-def]
    """The rows of a block that match an event, one after the other; returns how many."""
    capacity, found = capacity_of(store, block), 0
    for p in range(store.blocks[block, BLOCK_COUNT]):
        row = store.words[row_at(store, block) + p]
        doubt = row < 0
        t = 0
        while t < NARROW:
            at = low_at(store, block, capacity, t) + p
            code = np.int64(codes[e, store.bytes[column_at(store, block, capacity, t) + p]])
            low, high = np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity])
            if code < low or code > high:
                break
            doubt |= doubtful(code, low, high)
            t += 1
        if t < NARROW:
            continue
        if row < 0:
            row = ~row
        if not doubt or passes_bounds(store, row, keys, e):
            hits[found] = row
            found += 1
    return found


@inlined
def search_block(store, block, table, keys, codes, e, flags, words, hits):  # type: ignore[no-untyped-def]
    """The rows of a block that match an event; returns how many. The first test of all rows comes first."""
    count, capacity = np.int64(store.blocks[block, BLOCK_COUNT]), capacity_of(store, block)
    event = codes[e]
    head = store.tables[table, TABLE_HEAD]
    first = low_at(store, block, capacity, 0)
    lows, highs = store.shorts[first : first + MOST], store.shorts[first + capacity : first + capacity + MOST]
    first = column_at(store, block, capacity, 0)
    columns = store.bytes[first : first + MOST]
    if head != NONE and count >= FEW:
        flag_alike(lows, highs, event[head], count, flags)
    else:
        flag_each(columns, lows, highs, event, count, flags)
    for p in range(count, (count + 7) & ~7):
        flags[p] = 0
    passed = np.int64(0)
    for w in range((count + 7) >> 3):
        if words[w] != 0:
            for p in range(8 * w, 8 * w + 8):
                hits[passed] = p
                passed += np.int64(flags[p])
    first = row_at(store, block)
    rows = store.words[first : first + MOST]
    sole = store.tables[table, TABLE_SOLE] != 0
    if sole and event[head] & 1 == 0:  # nothing left to look at
        for i in range(passed):
            hits[i] = rows[hits[i]]
        return passed
    if not sole:  # the second test without branches too
        first, count = low_at(store, block, capacity, 1), passed
        seconds, ends = store.shorts[first : first + MOST], store.shorts[first + capacity :]
        first = column_at(store, block, capacity, 1)
        tested = store.bytes[first : first + MOST]
        passed = np.int64(0)
        for i in range(count):
            place = np.int64(hits[i])
            code = event[tested[place]]
            hits[passed] = place
            passed += np.int64(seconds[place] <= code) & np.int64(code <= ends[place])
    found = 0
    for i in range(passed):
        place = np.int64(hits[i])
        row = rows[place]
        code = np.int64(event[columns[place]])
        doubt = doubtful(code, np.int64(lows[place]), np.int64(highs[place]))
        if not sole:
            doubt |= row < 0
            t = 1
            while t < NARROW:
                at = low_at(store, block, capacity, t) + place
                code = np.int64(event[store.bytes[column_at(store, block, capacity, t) + place]])
                low, high = np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity])
                if code < low or code > high:
                    break
                doubt |= doubtful(code, low, high)
                t += 1
            if t < NARROW:
                continue
        if row < 0:
            row = ~row
        if not doubt or passes_bounds(store, row, keys, e):
            hits[found] = row
            found += 1
    return found


@inlined
def fetch_block(store, block):  # type: ignore[no-untyped-def]
    """Ask for the lines of a block's rows and of their first codes and columns."""
    capacity = capacity_of(store, block)
    prefetch(store.words, row_at(store, block))
    prefetch(store.shorts, low_at(store, block, capacity, 0))
    prefetch(store.shorts, low_at(store, block, capacity, 1))
    prefetch(store.bytes, column_at(store, block, capacity, 0))


@kernel(STORE, frozen(int64), frozen(int64, 2), frozen(uint16, 2), int64, boolean, boolean, boolean,
        array(int64), BUFFERS, array(int64), array(int64))  # fmt: skip
def match_events(store, ids, keys, codes, start, ahead, shared, ordered, seen, buffers, offsets, out):  # type: ignore[no-untyped-def]
    """Match events from `start` on into CSR offsets and ids; returns the first event for which `out` was too
    short.

    All buckets of an event are found before any is searched. `ahead`: while one is searched, the next ones
    are fetched, and rows are compared a block at a time; else row by row. `shared`: some subscription has
    several rows: seen[its first row] is the last event that it matched, by a count that stands in seen[-1].
    `ordered`: ids ascend per event.
    """
    end = offsets[start]
    queue, hits = buffers.queue, buffers.hits
    for e in range(start, keys.shape[0]):
        if shared:
            seen[seen.size - 1] += 1
        queued = 0
        for table in range(store.state[TABLES]):
            if store.tables[table, TABLE_BUCKETS] > 0:
                for number in range(set_probe(store, table, keys, codes, e, buffers.probe)):
                    bucket = probed_bucket(store, table, buffers.probe, number)
                    if bucket != NONE:
                        queue[queued, 0], queue[queued, 1] = table, store.buckets[bucket, BUCKET_HEAD]
                        queued += 1
        for q in range(queued):
            if ahead and q + AHEAD < queued:
                fetch_block(store, queue[q + AHEAD, 1])
            block = queue[q, 1]
            while block != NONE:
                if end + store.blocks[block, BLOCK_COUNT] > out.size:
                    return e
                if ahead:
                    found = search_block(
                        store, block, queue[q, 0], keys, codes, e, buffers.flags, buffers.words, hits
                    )
                else:
                    found = search_plainly(store, block, keys, codes, e, hits)
                if shared:
                    for i in range(found):
                        first = store.rows[hits[i], ROW_FIRST]
                        if seen[first] != seen[seen.size - 1]:
                            seen[first] = seen[seen.size - 1]
                            out[end] = ids[hits[i]]
                            end += 1
                else:
                    for i in range(found):
                        out[end + i] = ids[hits[i]]
                    end += found
                block = np.int64(store.blocks[block, BLOCK_NEXT])
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
        rows = np.int64(0)
        block = store.buckets[bucket, BUCKET_HEAD]
        while block != NONE:
            rows += store.blocks[block, BLOCK_COUNT]
            block = np.int64(store.blocks[block, BLOCK_NEXT])
        if rows * reached[bucket] < least:
            continue
        block = store.buckets[bucket, BUCKET_HEAD]
        while block != NONE:
            first = row_at(store, block)
            for p in range(store.blocks[block, BLOCK_COUNT]):
                row = store.words[first + p]
                checks[store.rows[row if row >= 0 else ~row, ROW_SIGNATURE]] += reached[bucket]
            block = np.int64(store.blocks[block, BLOCK_NEXT])
    return 0


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
                block = NONE if bucket == NONE else store.buckets[bucket, BUCKET_HEAD]
                while block != NONE and left > 0:
                    found = search_block(
                        store, block, table, keys, codes, e, buffers.flags, buffers.words, hits
                    )
                    for i in range(found):
                        interface = store.rows[hits[i], ROW_INTERFACE]
                        bit = np.uint64(1) << np.uint64(interface & 63)
                        if bits[e, interface >> 6] & bit == 0:
                            bits[e, interface >> 6] |= bit
                            left -= 1
                    block = np.int64(store.blocks[block, BLOCK_NEXT])
                number += 1
            table += 1
    return 0

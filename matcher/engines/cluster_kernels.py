"""Kernels of the cluster engine: where rows lie, how they move, and how events meet them (Fabret et al.
2001, 2).

A *row* is one conjunction of a subscription. Its access predicate (equalities) is found by hashing; what
is left to check are `lo <= key <= hi` tests, stored columnwise in blocks of up to 256 rows that have the
same columns to test:

    table    (attributes a, b)              one per set of access attributes; table 0 has none
      bucket   (a = 7, b = 3)               one per access predicate, found by its hash through `places`
        cluster  tests on columns (2, 5)    one per signature, in a chain
          block    -> block -> block        only the first may have room; a full one of 256 gets a
          successor in front

    pool   ... [ row, row, .. | lo 2 | hi 2 | lo 5 | hi 5 ] ...       a block: every part has `capacity` words

So an event touches the words of the first column of a block, one after another, and others only where it
passes; a changed bound is one word; and a row that leaves is replaced by the last of the first block.
Blocks grow through the powers of two up to 256; room that is given back waits in `free[tests,
log2(capacity)]`, linked through its first word.

Everything that has a number is a line of an int64 matrix with the fields below. Kernels that need room
stop and say how far they came; the caller grows the arrays and calls again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import boolean, int32, int64, types, uint64

from covey.matcher.kernel import array, frozen, inlined, kernel

ACCESS = 4
"""The most attributes that one access predicate has."""
LARGEST = 8
"""Blocks have at most 2**8 rows: for so many, one zone is a good summary and a move within is cheap."""

NONE = -1
GONE = -2
MISSING = -(2**63)

# state: single numbers
POOL_TOP, BLOCK_TOP, BLOCK_FREE, CLUSTER_TOP, CLUSTER_FREE, BUCKET_TOP, BUCKET_FREE, PLACES_USED, STAMP = (
    range(9)
)
STATE = 9
# tables: how many attributes, how many buckets, then the columns
TABLE_WIDTH, TABLE_BUCKETS, TABLE_COLUMNS = 0, 1, 2
# signatures: how many tests, how many rows have it, then the columns
SIGNATURE_SIZE, SIGNATURE_ROWS, SIGNATURE_COLUMNS = 0, 1, 2
# buckets
BUCKET_TABLE, BUCKET_HASH, BUCKET_HEAD, BUCKET_KEYS = 0, 1, 2, 3
# clusters
CLUSTER_BUCKET, CLUSTER_SIGNATURE, CLUSTER_HEAD, CLUSTER_NEXT, CLUSTER_ROWS = range(5)
CLUSTER_FIELDS = 5
# blocks
BLOCK_CLUSTER, BLOCK_START, BLOCK_SIZE, BLOCK_COUNT, BLOCK_NEXT = range(5)
BLOCK_FIELDS = 5
# rows: their place, the first row of their subscription, its plan and its interface
ROW_BLOCK, ROW_POSITION, ROW_FIRST, ROW_PLAN, ROW_INTERFACE = range(5)
ROW_FIELDS = 5


class Store(NamedTuple):
    """All arrays of a cluster engine."""

    state: npt.NDArray[np.int64]  # [STATE]
    free: npt.NDArray[np.int64]  # [tests, LARGEST + 1]: start of a free stretch, or NONE
    tables: npt.NDArray[np.int64]
    signatures: npt.NDArray[np.int64]
    places: npt.NDArray[np.int32]  # bucket numbers by hash; NONE where free, GONE where one was
    buckets: npt.NDArray[np.int64]
    clusters: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]  # [rows, ROW_FIELDS]
    ids: npt.NDArray[np.int64]  # [rows]
    seen: npt.NDArray[
        np.int64
    ]  # [rows]: stamp of the last event that matched the subscription that starts there


STORE = types.NamedTuple(  # type: ignore[no-untyped-call]
    [array(int64), array(int64, 2), array(int64, 2), array(int64, 2), array(int32), array(int64, 2),
     array(int64, 2), array(int64, 2), array(int64), array(int32, 2), array(int64), array(int64)],
    Store,
)  # fmt: skip


@inlined
def mix(h, key):  # type: ignore[no-untyped-def]
    h = (h ^ key) * np.int64(-7046029254386353131)
    return h ^ (h >> 32)


@inlined
def first_hash(table):  # type: ignore[no-untyped-def]
    return np.int64(table) * np.int64(-4417276706812531889)


# --- buckets, clusters, blocks --------------------------------------------------------------------


@inlined
def find_bucket(store, table, keys, i):  # type: ignore[no-untyped-def]
    """The bucket of row i's access keys, made if there is none."""
    width = store.tables[table, TABLE_WIDTH]
    h = first_hash(table)
    for a in range(width):
        h = mix(h, keys[a, i])
    mask = store.places.size - 1
    place = h & mask
    vacant = -1
    while store.places[place] != NONE:
        b = store.places[place]
        if b == GONE:
            if vacant < 0:
                vacant = place
        elif store.buckets[b, BUCKET_HASH] == h and store.buckets[b, BUCKET_TABLE] == table:
            a = 0
            while a < width and store.buckets[b, BUCKET_KEYS + a] == keys[a, i]:
                a += 1
            if a == width:
                return np.int64(b)
        place = (place + 1) & mask
    state = store.state
    bucket = state[BUCKET_FREE]
    if bucket == NONE:
        bucket = state[BUCKET_TOP]
        state[BUCKET_TOP] += 1
    else:
        state[BUCKET_FREE] = store.buckets[bucket, BUCKET_HEAD]
    store.buckets[bucket, BUCKET_TABLE] = table
    store.buckets[bucket, BUCKET_HASH] = h
    store.buckets[bucket, BUCKET_HEAD] = NONE
    for a in range(width):
        store.buckets[bucket, BUCKET_KEYS + a] = keys[a, i]
    if vacant < 0:
        vacant = place
        state[PLACES_USED] += 1
    store.places[vacant] = bucket
    store.tables[table, TABLE_BUCKETS] += 1
    return bucket


@inlined
def find_cluster(store, bucket, signature):  # type: ignore[no-untyped-def]
    """The cluster of a signature within a bucket, made if there is none."""
    cluster = store.buckets[bucket, BUCKET_HEAD]
    while cluster != NONE and store.clusters[cluster, CLUSTER_SIGNATURE] != signature:
        cluster = store.clusters[cluster, CLUSTER_NEXT]
    if cluster != NONE:
        return cluster
    state = store.state
    cluster = state[CLUSTER_FREE]
    if cluster == NONE:
        cluster = state[CLUSTER_TOP]
        state[CLUSTER_TOP] += 1
    else:
        state[CLUSTER_FREE] = store.clusters[cluster, CLUSTER_NEXT]
    store.clusters[cluster, CLUSTER_BUCKET] = bucket
    store.clusters[cluster, CLUSTER_SIGNATURE] = signature
    store.clusters[cluster, CLUSTER_HEAD] = NONE
    store.clusters[cluster, CLUSTER_ROWS] = 0
    store.clusters[cluster, CLUSTER_NEXT] = store.buckets[bucket, BUCKET_HEAD]
    store.buckets[bucket, BUCKET_HEAD] = cluster
    return cluster


@inlined
def take_words(store, tests, size):  # type: ignore[no-untyped-def]
    start = store.free[tests, size]
    if start == NONE:
        start = store.state[POOL_TOP]
        store.state[POOL_TOP] += (np.int64(1) << size) * (1 + 2 * tests)
    else:
        store.free[tests, size] = store.pool[start]
    return start


@inlined
def give_words(store, tests, size, start):  # type: ignore[no-untyped-def]
    store.pool[start] = store.free[tests, size]
    store.free[tests, size] = start


@inlined
def block_with_room(store, cluster, tests):  # type: ignore[no-untyped-def]
    """The first block of a cluster, grown, or a new one in front of it where it is full."""
    blocks, pool, state = store.blocks, store.pool, store.state
    block = store.clusters[cluster, CLUSTER_HEAD]
    size = 0
    if block != NONE:
        size = blocks[block, BLOCK_SIZE]
        count = blocks[block, BLOCK_COUNT]
        if count < np.int64(1) << size:
            return block
        if size < LARGEST:
            old, new = blocks[block, BLOCK_START], take_words(store, tests, size + 1)
            for part in range(1 + 2 * tests):
                for p in range(count):
                    pool[new + 2 * part * count + p] = pool[old + part * count + p]
            give_words(store, tests, size, old)
            blocks[block, BLOCK_START] = new
            blocks[block, BLOCK_SIZE] = size + 1
            return block
    fresh = state[BLOCK_FREE]
    if fresh == NONE:
        fresh = state[BLOCK_TOP]
        state[BLOCK_TOP] += 1
    else:
        state[BLOCK_FREE] = blocks[fresh, BLOCK_NEXT]
    blocks[fresh, BLOCK_CLUSTER] = cluster
    blocks[fresh, BLOCK_START] = take_words(store, tests, size)
    blocks[fresh, BLOCK_SIZE] = size
    blocks[fresh, BLOCK_COUNT] = 0
    blocks[fresh, BLOCK_NEXT] = block
    store.clusters[cluster, CLUSTER_HEAD] = fresh
    return fresh


@kernel(STORE, frozen(int64), int64, int64, frozen(int64, 2), frozen(int64, 2), frozen(int64, 2), int64)
def insert_rows(store, rows, table, signature, keys, lows, highs, start):  # type: ignore[no-untyped-def]
    """Insert rows[start:], by access keys[a, i] and bounds lows[t, i], highs[t, i]; returns the first not
    inserted.
    """
    state, blocks, pool = store.state, store.blocks, store.pool
    tests = store.signatures[signature, SIGNATURE_SIZE]
    largest = (np.int64(1) << LARGEST) * (1 + 2 * tests)
    for i in range(start, rows.size):
        if (
            state[POOL_TOP] + largest > pool.size
            or state[BLOCK_TOP] >= blocks.shape[0]
            or state[CLUSTER_TOP] >= store.clusters.shape[0]
            or state[BUCKET_TOP] >= store.buckets.shape[0]
            or 2 * state[PLACES_USED] >= store.places.size
        ):
            return i
        cluster = find_cluster(store, find_bucket(store, table, keys, i), signature)
        block = block_with_room(store, cluster, tests)
        position = blocks[block, BLOCK_COUNT]
        capacity = np.int64(1) << blocks[block, BLOCK_SIZE]
        at = blocks[block, BLOCK_START] + position
        pool[at] = rows[i]
        for t in range(tests):
            at += capacity
            pool[at] = lows[t, i]
            at += capacity
            pool[at] = highs[t, i]
        blocks[block, BLOCK_COUNT] = position + 1
        store.clusters[cluster, CLUSTER_ROWS] += 1
        store.signatures[signature, SIGNATURE_ROWS] += 1
        store.rows[rows[i], ROW_BLOCK] = block
        store.rows[rows[i], ROW_POSITION] = position
    return rows.size


@inlined
def drop_bucket(store, bucket):  # type: ignore[no-untyped-def]
    mask = store.places.size - 1
    place = store.buckets[bucket, BUCKET_HASH] & mask
    while store.places[place] != bucket:
        place = (place + 1) & mask
    if store.places[(place + 1) & mask] == NONE:
        while store.places[place] == bucket or store.places[place] == GONE:
            store.places[place] = NONE
            store.state[PLACES_USED] -= 1
            place = (place - 1) & mask
    else:
        store.places[place] = GONE
    store.tables[store.buckets[bucket, BUCKET_TABLE], TABLE_BUCKETS] -= 1
    store.buckets[bucket, BUCKET_HEAD] = store.state[BUCKET_FREE]
    store.buckets[bucket, BUCKET_TABLE] = NONE
    store.state[BUCKET_FREE] = bucket


@inlined
def drop_cluster(store, cluster):  # type: ignore[no-untyped-def]
    bucket = store.clusters[cluster, CLUSTER_BUCKET]
    following = store.clusters[cluster, CLUSTER_NEXT]
    before = store.buckets[bucket, BUCKET_HEAD]
    if before == cluster:
        store.buckets[bucket, BUCKET_HEAD] = following
    else:
        while store.clusters[before, CLUSTER_NEXT] != cluster:
            before = store.clusters[before, CLUSTER_NEXT]
        store.clusters[before, CLUSTER_NEXT] = following
    store.clusters[cluster, CLUSTER_NEXT] = store.state[CLUSTER_FREE]
    store.clusters[cluster, CLUSTER_BUCKET] = NONE
    store.state[CLUSTER_FREE] = cluster
    if store.buckets[bucket, BUCKET_HEAD] == NONE:
        drop_bucket(store, bucket)


@kernel(STORE, frozen(int64))
def remove_rows(store, rows):  # type: ignore[no-untyped-def]
    """Take rows out of their clusters; what becomes empty is given back."""
    blocks, pool = store.blocks, store.pool
    for i in range(rows.size):
        block, position = store.rows[rows[i], ROW_BLOCK], store.rows[rows[i], ROW_POSITION]
        cluster = blocks[block, BLOCK_CLUSTER]
        signature = store.clusters[cluster, CLUSTER_SIGNATURE]
        tests = store.signatures[signature, SIGNATURE_SIZE]
        head = store.clusters[cluster, CLUSTER_HEAD]
        last = blocks[head, BLOCK_COUNT] - 1
        source = blocks[head, BLOCK_START] + last
        target = blocks[block, BLOCK_START] + position
        moved = pool[source]
        for _ in range(1 + 2 * tests):
            pool[target] = pool[source]
            source += np.int64(1) << blocks[head, BLOCK_SIZE]
            target += np.int64(1) << blocks[block, BLOCK_SIZE]
        store.rows[moved, ROW_BLOCK] = block
        store.rows[moved, ROW_POSITION] = position
        store.rows[rows[i], ROW_BLOCK] = NONE
        blocks[head, BLOCK_COUNT] = last
        store.clusters[cluster, CLUSTER_ROWS] -= 1
        store.signatures[signature, SIGNATURE_ROWS] -= 1
        if last == 0:
            give_words(store, tests, blocks[head, BLOCK_SIZE], blocks[head, BLOCK_START])
            following = blocks[head, BLOCK_NEXT]
            blocks[head, BLOCK_NEXT] = store.state[BLOCK_FREE]
            blocks[head, BLOCK_CLUSTER] = NONE
            store.state[BLOCK_FREE] = head
            store.clusters[cluster, CLUSTER_HEAD] = following
            if following == NONE:
                drop_cluster(store, cluster)
    return 0


@kernel(frozen(int32, 2), frozen(int64, 2), array(int64), frozen(int64), int64, frozen(int64))
def write_bounds(row_table, blocks, pool, rows, part, values):  # type: ignore[no-untyped-def]
    """Write one bound of rows in place: part 1 + 2t is the low end of test t, 2 + 2t the high end.

    It takes three arrays and not the store, since unpacking the store costs more than one bound.
    """
    for i in range(rows.size):
        block = row_table[rows[i], ROW_BLOCK]
        at = blocks[block, BLOCK_START] + row_table[rows[i], ROW_POSITION]
        pool[at + (part << blocks[block, BLOCK_SIZE])] = values[i]
    return 0


@kernel(STORE, frozen(int64), array(int64, 2), array(int64, 2), array(int64, 2))
def read_rows(store, rows, keys, lows, highs):  # type: ignore[no-untyped-def]
    """The access keys[a, i] and bounds lows[t, i], highs[t, i] of rows that have as many tests as `lows`
    has lines.
    """
    for i in range(rows.size):
        block = store.rows[rows[i], ROW_BLOCK]
        bucket = store.clusters[store.blocks[block, BLOCK_CLUSTER], CLUSTER_BUCKET]
        for a in range(keys.shape[0]):
            keys[a, i] = store.buckets[bucket, BUCKET_KEYS + a]
        capacity = np.int64(1) << store.blocks[block, BLOCK_SIZE]
        at = store.blocks[block, BLOCK_START] + store.rows[rows[i], ROW_POSITION]
        for t in range(lows.shape[0]):
            at += capacity
            lows[t, i] = store.pool[at]
            at += capacity
            highs[t, i] = store.pool[at]
    return 0


@kernel(frozen(int64, 2), int64, array(int32))
def rehash_buckets(buckets, top, places):  # type: ignore[no-untyped-def]
    """Enter all buckets into a new, empty table of places; returns how many there are."""
    mask = places.size - 1
    used = 0
    for b in range(top):
        if buckets[b, BUCKET_TABLE] != NONE:
            place = buckets[b, BUCKET_HASH] & mask
            while places[place] != NONE:
                place = (place + 1) & mask
            places[place] = b
            used += 1
    return used


@kernel(STORE, frozen(boolean), int64, array(boolean))
def mark_codes(store, is_string, tables, live):  # type: ignore[no-untyped-def]
    """Mark the string codes that access predicates and tests name; `is_string` says so of every column."""
    for b in range(store.state[BUCKET_TOP]):
        table = store.buckets[b, BUCKET_TABLE]
        if table != NONE:
            for a in range(store.tables[table, TABLE_WIDTH]):
                key = store.buckets[b, BUCKET_KEYS + a]
                if is_string[store.tables[table, TABLE_COLUMNS + a]] and 0 < key < live.size:
                    live[key] = True
    for block in range(store.state[BLOCK_TOP]):
        cluster = store.blocks[block, BLOCK_CLUSTER]
        if cluster == NONE:
            continue
        signature = store.clusters[cluster, CLUSTER_SIGNATURE]
        for t in range(store.signatures[signature, SIGNATURE_SIZE]):
            if is_string[store.signatures[signature, SIGNATURE_COLUMNS + t]]:
                at = store.blocks[block, BLOCK_START] + ((1 + 2 * t) << store.blocks[block, BLOCK_SIZE])
                for p in range(store.blocks[block, BLOCK_COUNT]):
                    if 0 < store.pool[at + p] < live.size:
                        live[store.pool[at + p]] = True
    return 0


# --- matching -------------------------------------------------------------------------------------


@inlined
def probe(store, table, keys, e):  # type: ignore[no-untyped-def]
    """The bucket of an event in a table, or NONE; an event that lacks an access attribute has none."""
    width = store.tables[table, TABLE_WIDTH]
    h = first_hash(table)
    for a in range(width):
        key = keys[e, store.tables[table, TABLE_COLUMNS + a]]
        if key == MISSING:
            return np.int64(NONE)
        h = mix(h, key)
    mask = store.places.size - 1
    place = h & mask
    while store.places[place] != NONE:
        b = store.places[place]
        if b >= 0 and store.buckets[b, BUCKET_HASH] == h and store.buckets[b, BUCKET_TABLE] == table:
            a = 0
            while (
                a < width
                and store.buckets[b, BUCKET_KEYS + a] == keys[e, store.tables[table, TABLE_COLUMNS + a]]
            ):
                a += 1
            if a == width:
                return np.int64(b)
        place = (place + 1) & mask
    return np.int64(NONE)


@inlined
def passes_from(store, signature, at, capacity, t, keys, e):  # type: ignore[no-untyped-def]
    """Whether the row whose test t - 1 ends at word `at` passes tests t and later."""
    tests = store.signatures[signature, SIGNATURE_SIZE]
    while t < tests:
        key = keys[e, store.signatures[signature, SIGNATURE_COLUMNS + t]]
        if key < store.pool[at + capacity] or key > store.pool[at + 2 * capacity]:
            return False
        at += 2 * capacity
        t += 1
    return True


@inlined
def sift(values, start, root, size):  # type: ignore[no-untyped-def]
    value = values[start + root]
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and values[start + child + 1] > values[start + child]:
            child += 1
        if values[start + child] <= value:
            break
        values[start + root] = values[start + child]
        root = child
    values[start + root] = value


@inlined
def sort_range(values, start, end):  # type: ignore[no-untyped-def]
    """Sort values[start:end]: by insertion where that is short work, else by a heap (no allocation, no
    worst case).
    """
    moves, allowed = 0, 8 * (end - start)
    for i in range(start + 1, end):
        value, j = values[i], i
        while j > start and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
        moves += i - j
        if moves > allowed:
            break
    else:
        return
    size = end - start
    for root in range(size // 2 - 1, -1, -1):
        sift(values, start, root, size)
    for last in range(size - 1, 0, -1):
        values[start], values[start + last] = values[start + last], values[start]
        sift(values, start, 0, last)


@kernel(STORE, int64, frozen(int64, 2), int64, boolean, boolean, array(int64), array(int64))
def match_events(store, tables, keys, start, shared, ordered, offsets, out):  # type: ignore[no-untyped-def]
    """Match events from `start` on into CSR offsets and ids; returns the first event for which `out` was
    too short.

    `shared`: some subscription has several rows, so that an id might come twice. `ordered`: ids ascend
    per event.
    """
    pool, seen, end = store.pool, store.seen, offsets[start]
    for e in range(start, keys.shape[0]):
        store.state[STAMP] += 1
        stamp = store.state[STAMP]
        for table in range(tables):
            if store.tables[table, TABLE_BUCKETS] == 0:
                continue
            bucket = probe(store, table, keys, e)
            if bucket == NONE:
                continue
            cluster = store.buckets[bucket, BUCKET_HEAD]
            while cluster != NONE:
                signature = store.clusters[cluster, CLUSTER_SIGNATURE]
                tests = store.signatures[signature, SIGNATURE_SIZE]
                key = keys[e, store.signatures[signature, SIGNATURE_COLUMNS]] if tests > 0 else 0
                block = store.clusters[cluster, CLUSTER_HEAD]
                while block != NONE:
                    at = store.blocks[block, BLOCK_START]
                    count = store.blocks[block, BLOCK_COUNT]
                    capacity = np.int64(1) << store.blocks[block, BLOCK_SIZE]
                    if end + count > out.size:
                        return e
                    for p in range(at, at + count):
                        if tests > 0:
                            if key < pool[p + capacity] or key > pool[p + 2 * capacity]:
                                continue
                            if tests > 1 and not passes_from(
                                store, signature, p + 2 * capacity, capacity, 1, keys, e
                            ):
                                continue
                        row = pool[p]
                        if shared:
                            first = store.rows[row, ROW_FIRST]
                            if seen[first] == stamp:
                                continue
                            seen[first] = stamp
                        out[end] = store.ids[row]
                        end += 1
                    block = store.blocks[block, BLOCK_NEXT]
                cluster = store.clusters[cluster, CLUSTER_NEXT]
        if ordered:
            sort_range(out, offsets[e], end)
        offsets[e + 1] = end
    return keys.shape[0]


@kernel(STORE, int64, frozen(int64, 2), int64, array(uint64, 2))
def match_bits(store, tables, keys, interfaces, bits):  # type: ignore[no-untyped-def]
    """Set the bits of the interfaces that an event matches; an event is done when all `interfaces` in use
    are set.
    """
    pool, clusters, blocks = store.pool, store.clusters, store.blocks
    for e in range(keys.shape[0]):
        left = interfaces
        table = 0
        while table < tables and left > 0:
            bucket = np.int64(NONE)
            if store.tables[table, TABLE_BUCKETS] > 0:
                bucket = probe(store, table, keys, e)
            table += 1
            cluster = np.int64(NONE) if bucket == NONE else store.buckets[bucket, BUCKET_HEAD]
            while cluster != NONE and left > 0:
                signature = clusters[cluster, CLUSTER_SIGNATURE]
                block = clusters[cluster, CLUSTER_HEAD]
                while block != NONE and left > 0:
                    at = blocks[block, BLOCK_START]
                    capacity = np.int64(1) << blocks[block, BLOCK_SIZE]
                    for p in range(at, at + blocks[block, BLOCK_COUNT]):
                        if passes_from(store, signature, p, capacity, 0, keys, e):
                            interface = store.rows[pool[p], ROW_INTERFACE]
                            bit = np.uint64(1) << np.uint64(interface & 63)
                            if bits[e, interface >> 6] & bit == 0:
                                bits[e, interface >> 6] |= bit
                                left -= 1
                                if left == 0:
                                    break
                    block = blocks[block, BLOCK_NEXT]
                cluster = clusters[cluster, CLUSTER_NEXT]
    return 0

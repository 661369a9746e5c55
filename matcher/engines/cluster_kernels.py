"""Kernels of the cluster engine that put rows where they belong; the arrays are drawn in `cluster_arrays.py`.

Invariant: a row that is placed lies in the bucket of the access predicate that its bounds give it, with the
codes of its bounds, once it is settled.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64

from covey.matcher.engines.cluster_arrays import (
    ABSENT,
    ACCESS,
    BLOCK,
    BLOCK_BUCKET,
    BLOCK_COUNT,
    BLOCK_FREE,
    BLOCK_NEXT,
    BLOCK_SIZE,
    BLOCK_START,
    BLOCK_TOP,
    BUCKET_FREE,
    BUCKET_HEAD,
    BUCKET_KEYS,
    BUCKET_ROWS,
    BUCKET_TABLE,
    BUCKET_TOP,
    CODE_COUNT,
    CODE_LINEAR,
    CODE_START,
    CODE_TOP,
    GONE,
    MOST,
    NARROW,
    NARROW_COLUMNS,
    NEVER,
    NONE,
    PART_FIELDS,
    PART_SHIFT,
    PLACE,
    PLACES_USED,
    SIGN_ACCESS,
    SIGN_EQUAL,
    SIGN_RANGES,
    SIGN_SIZE,
    SIGN_TEMPLATE,
    SIGN_TESTS,
    SLOT_BYTES,
    SLOT_TOP,
    STORE,
    TABLE_BUCKETS,
    TABLE_CODE,
    TABLE_PARTS,
    TABLE_ROWS,
    TABLE_WIDTH,
    TABLES,
    TEST_COLUMN,
    TEST_FIELDS,
    TEST_SHAPE,
    TEST_WORD,
    WAITING,
    WANTED,
)
from covey.matcher.engines.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.kernel import array, frozen, inlined, kernel
from covey.matcher.keys import FIRST, MISSING, NOTHING

EQUAL, FIXED, LOW, HIGH, BOTH = range(5)  # plan.Shape
COLUMN_BITS, CLASS_BITS = 9, 6
HASHED = 4
"""Words of scratch before the codes of tests: the tests of the ranges hashed, and their widths."""


@inlined
def mix(h, key):  # type: ignore[no-untyped-def]
    h = (h ^ key) * np.int64(-7046029254386353131)
    return h ^ (h >> 32)


@inlined
def first_hash(table):  # type: ignore[no-untyped-def]
    return np.int64(table) * np.int64(-4417276706812531889)


# --- keys seen through cuts -----------------------------------------------------------------------


@inlined
def code_of(coding, cuts, column, key):  # type: ignore[no-untyped-def]
    """The code of a key."""
    if key == MISSING:
        return np.int64(0)
    count = coding[column, CODE_COUNT]
    start = coding[column, CODE_START]
    if key > coding[column, CODE_TOP]:
        return 2 * count + 5
    if count == 0:
        return np.int64(3)
    if coding[column, CODE_LINEAR] != 0:  # all integers from the first cut to the last
        if key < cuts[start]:
            return np.int64(3)
        if key > cuts[start + count - 1]:
            return 2 * count + 3
        return 2 * (key - cuts[start]) + 4
    at, left = start, count
    while left > 1:
        half = left >> 1
        if cuts[at + half - 1] < key:
            at += half
        left -= half
    if cuts[at] < key:
        return 2 * (at - start) + 5
    return 2 * (at - start) + (4 if cuts[at] == key else 3)


@inlined
def code_of_low(coding, cuts, column, bound):  # type: ignore[no-untyped-def]
    """The code of a low end: one below all keys where it is open, so that no event is in doubt there."""
    return np.int64(2) if bound == FIRST else code_of(coding, cuts, column, bound)


@inlined
def code_of_high(coding, cuts, column, bound):  # type: ignore[no-untyped-def]
    """The code of a high end: where it is open, one above all keys but NaN."""
    if bound == coding[column, CODE_TOP]:
        return 2 * coding[column, CODE_COUNT] + 4
    return code_of(coding, cuts, column, bound)


@inlined
def low_bound(store, signature, place, test):  # type: ignore[no-untyped-def]
    line = SIGN_TESTS + TEST_FIELDS * test
    shape = store.signatures[signature, line + TEST_SHAPE]
    if shape == HIGH:
        return np.int64(FIRST)
    return store.bounds[place + store.signatures[signature, line + TEST_WORD]]


@inlined
def high_bound(store, signature, place, test):  # type: ignore[no-untyped-def]
    line = SIGN_TESTS + TEST_FIELDS * test
    shape = store.signatures[signature, line + TEST_SHAPE]
    if shape == LOW:
        return store.coding[store.signatures[signature, line + TEST_COLUMN], CODE_TOP]
    word = store.bounds[place + store.signatures[signature, line + TEST_WORD] + (1 if shape == BOTH else 0)]
    if shape <= FIXED and word == NOTHING:
        return np.int64(MISSING)
    return word


# --- where a row belongs --------------------------------------------------------------------------


@inlined
def class_of(reaches, width, ranges):  # type: ignore[no-untyped-def]
    """The class of a range: the first that reaches so far. Where two ranges are hashed, every other class,
    since tables multiply.
    """
    chosen = np.int64(0)
    while reaches[chosen] < width:
        chosen += ranges
    return chosen


@inlined
def code_row(store, row, scratch):  # type: ignore[no-untyped-def]
    """The codes of a row's tests, to scratch[HASHED + 2 * test] and the word behind; NEVER where nothing
    passes.
    """
    signature = store.rows[row, ROW_SIGNATURE]
    place = store.rows[row, ROW_PLACE]
    line = store.signatures[signature]
    for test in range(line[SIGN_SIZE]):
        column = line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN]
        if column >= NARROW_COLUMNS:
            continue
        low = low_bound(store, signature, place, test)
        high = high_bound(store, signature, place, test)
        at = HASHED + 2 * test
        if low > high:
            scratch[at], scratch[at + 1] = NEVER, 0
        else:
            scratch[at] = code_of_low(store.coding, store.cuts, column, low)
            if low == high and low != FIRST:
                scratch[at + 1] = scratch[at]
            else:
                scratch[at + 1] = code_of_high(store.coding, store.cuts, column, high)


@inlined
def choose_ranges(store, row, scratch):  # type: ignore[no-untyped-def]
    """The row's narrowest range and second narrowest on another column, as a part of 2**16 of all codes; NONE
    where it has none. Their tests go to scratch[0] and scratch[1], the widths to scratch[2] and scratch[3].
    """
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    scratch[0] = scratch[1] = NONE
    scratch[2] = scratch[3] = np.int64(1) << 40
    for test in range(line[SIGN_SIZE]):
        at = SIGN_TESTS + TEST_FIELDS * test
        column = line[at + TEST_COLUMN]
        if line[at + TEST_SHAPE] != BOTH or column >= NARROW_COLUMNS:
            continue
        if scratch[HASHED + 2 * test] == 0:  # it wants the attribute missing, and such events ask for no cell
            continue
        if scratch[0] != NONE and line[SIGN_TESTS + TEST_FIELDS * scratch[0] + TEST_COLUMN] == column:
            continue
        width = max(scratch[HASHED + 2 * test + 1] - scratch[HASHED + 2 * test], 0) << 16
        width //= 2 * store.coding[column, CODE_COUNT] + 4
        if width < scratch[2]:
            scratch[1], scratch[3] = scratch[0], scratch[2]
            scratch[0], scratch[2] = test, width
        elif width < scratch[3]:
            scratch[1], scratch[3] = test, width


@inlined
def find_schema(store, row, scratch):  # type: ignore[no-untyped-def]
    """The code of the access schema of a row; its keys go to store.keys, the ranges hashed to scratch[:2].

    A range belongs to the cell of its low end, in a grid for ranges that are about as wide.
    """
    signature = store.rows[row, ROW_SIGNATURE]
    place = store.rows[row, ROW_PLACE]
    line = store.signatures[signature]
    equal = np.int64(line[SIGN_EQUAL])
    for a in range(equal):
        test = line[SIGN_ACCESS + a]
        store.keys[a] = store.bounds[place + line[SIGN_TESTS + TEST_FIELDS * test + TEST_WORD]]
    code = np.int64(line[SIGN_TEMPLATE])
    wanted = np.int64(line[SIGN_RANGES])
    scratch[0] = scratch[1] = NONE
    if wanted == 0:
        return code
    choose_ranges(store, row, scratch)
    if wanted == 1:
        scratch[1] = NONE
    if scratch[1] != NONE and scratch[1] < scratch[0]:
        scratch[0], scratch[1] = scratch[1], scratch[0]
    for r in range(2):
        test = scratch[r]
        code <<= COLUMN_BITS + CLASS_BITS
        if test == NONE:
            continue
        column = np.int64(line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN])
        low, high = scratch[HASHED + 2 * test], scratch[HASHED + 2 * test + 1]
        code |= (column + 1) << CLASS_BITS | class_of(store.reaches, high - low, wanted)
        store.keys[equal + r] = low
    return code


@inlined
def find_table(store, code, parts):  # type: ignore[no-untyped-def]
    """The table of an access schema, or NONE; turns the low ends among the keys into cells."""
    tables = store.state[TABLES]
    mask = store.places.size - 1
    place = mix(np.int64(-1), code) & mask
    while store.places[place] != NONE:
        table = np.int64(-3) - store.places[place]
        if 0 <= table < tables and store.tables[table, TABLE_CODE] == code:
            for a in range(parts, store.tables[table, TABLE_WIDTH]):
                store.keys[a] >>= store.tables[table, TABLE_PARTS + PART_FIELDS * a + PART_SHIFT]
            return table
        place = (place + 1) & mask
    return np.int64(NONE)


@inlined
def find_bucket(store, table):  # type: ignore[no-untyped-def]
    """The bucket of the access predicate in store.keys, made if there is none."""
    width = store.tables[table, TABLE_WIDTH]
    h = first_hash(table)
    for a in range(width):
        h = mix(h, store.keys[a])
    mask = store.places.size - 1
    place = h & mask
    vacant = -1
    while store.places[place] != NONE:
        b = store.places[place]
        if b == GONE:
            if vacant < 0:
                vacant = place
        elif b >= 0 and store.buckets[b, BUCKET_TABLE] == table:
            a = 0
            while a < width and store.buckets[b, BUCKET_KEYS + a] == store.keys[a]:
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
    store.buckets[bucket, BUCKET_HEAD] = NONE
    store.buckets[bucket, BUCKET_ROWS] = 0
    for a in range(ACCESS):
        store.buckets[bucket, BUCKET_KEYS + a] = store.keys[a] if a < width else 0
    if vacant < 0:
        vacant = place
        state[PLACES_USED] += 1
    store.places[vacant] = bucket
    store.tables[table, TABLE_BUCKETS] += 1
    return bucket


@inlined
def row_at(store, block):  # type: ignore[no-untyped-def]
    """Where the rows of a block start in store.words."""
    return np.int64(store.blocks[block, BLOCK_START]) * (SLOT_BYTES // 4)


@inlined
def low_at(store, block, capacity, t):  # type: ignore[no-untyped-def]
    """Where the low codes of test t start in store.shorts; the high ones follow `capacity` further."""
    return np.int64(store.blocks[block, BLOCK_START]) * (SLOT_BYTES // 2) + (2 + 2 * t) * capacity


@inlined
def column_at(store, block, capacity, t):  # type: ignore[no-untyped-def]
    """Where the columns of test t start in store.bytes."""
    return np.int64(store.blocks[block, BLOCK_START]) * SLOT_BYTES + (4 + 4 * NARROW + t) * capacity


@inlined
def capacity_of(store, block):  # type: ignore[no-untyped-def]
    return store.capacities[store.blocks[block, BLOCK_SIZE]]


@inlined
def take_slots(store, size):  # type: ignore[no-untyped-def]
    start = store.free[size]
    if start == NONE:
        start = store.state[SLOT_TOP]
        store.state[SLOT_TOP] += store.capacities[size]
    else:
        store.free[size] = store.words[start * (SLOT_BYTES // 4)]
    return start


@inlined
def give_slots(store, size, start):  # type: ignore[no-untyped-def]
    store.words[start * (SLOT_BYTES // 4)] = store.free[size]
    store.free[size] = start


@inlined
def copy_slot(store, block, place, target, to):  # type: ignore[no-untyped-def]
    """Copy a row and its codes from a place of a block to a place of another one (or of the same)."""
    moved = store.words[row_at(store, block) + place]
    store.words[row_at(store, target) + to] = moved
    here, there = capacity_of(store, block), capacity_of(store, target)
    for t in range(NARROW):
        store.bytes[column_at(store, target, there, t) + to] = store.bytes[
            column_at(store, block, here, t) + place
        ]
        source, end = low_at(store, block, here, t) + place, low_at(store, target, there, t) + to
        store.shorts[end] = store.shorts[source]
        store.shorts[end + there] = store.shorts[source + here]
    row = moved if moved >= 0 else ~moved
    store.where[row, PLACE] = to
    store.where[row, BLOCK] = target


@inlined
def new_block(store, bucket, size):  # type: ignore[no-untyped-def]
    """A block without rows, at the head of a bucket's."""
    blocks, state = store.blocks, store.state
    fresh = state[BLOCK_FREE]
    if fresh == NONE:
        fresh = state[BLOCK_TOP]
        state[BLOCK_TOP] += 1
    else:
        state[BLOCK_FREE] = blocks[fresh, BLOCK_NEXT]
    blocks[fresh, BLOCK_BUCKET] = bucket
    blocks[fresh, BLOCK_START] = take_slots(store, size)
    blocks[fresh, BLOCK_SIZE] = size
    blocks[fresh, BLOCK_COUNT] = 0
    blocks[fresh, BLOCK_NEXT] = store.buckets[bucket, BUCKET_HEAD]
    store.buckets[bucket, BUCKET_HEAD] = fresh
    return fresh


@inlined
def drop_head(store, bucket):  # type: ignore[no-untyped-def]
    """Give the first block of a bucket back."""
    head = store.buckets[bucket, BUCKET_HEAD]
    give_slots(store, np.int64(store.blocks[head, BLOCK_SIZE]), np.int64(store.blocks[head, BLOCK_START]))
    store.buckets[bucket, BUCKET_HEAD] = store.blocks[head, BLOCK_NEXT]
    store.blocks[head, BLOCK_NEXT] = store.state[BLOCK_FREE]
    store.blocks[head, BLOCK_BUCKET] = NONE
    store.state[BLOCK_FREE] = head


@inlined
def block_with_room(store, bucket):  # type: ignore[no-untyped-def]
    """The first block of a bucket, in a larger place, or a new one in front of it, where it is full."""
    blocks = store.blocks
    block = store.buckets[bucket, BUCKET_HEAD]
    sizes = store.capacities.size
    if block == NONE:
        size = np.int64(0)
        while size + 1 < sizes and store.capacities[size] < store.buckets[bucket, BUCKET_ROWS]:
            size += 1
        return new_block(store, bucket, size)
    count = np.int64(blocks[block, BLOCK_COUNT])
    if count < capacity_of(store, block):
        return block
    size = np.int64(blocks[block, BLOCK_SIZE])
    if size + 1 == sizes:
        return new_block(store, bucket, np.int64(0))
    grown = new_block(store, bucket, size + 1)
    for p in range(count):
        copy_slot(store, block, p, grown, p)
    blocks[grown, BLOCK_COUNT] = count
    # the old block is second in the chain now: out with it
    give_slots(store, size, np.int64(blocks[block, BLOCK_START]))
    blocks[grown, BLOCK_NEXT] = blocks[block, BLOCK_NEXT]
    blocks[block, BLOCK_NEXT] = store.state[BLOCK_FREE]
    blocks[block, BLOCK_BUCKET] = NONE
    store.state[BLOCK_FREE] = block
    return grown


@inlined
def write_codes(store, row, block, place, scratch):  # type: ignore[no-untyped-def]
    """Write the codes of a row's tests to its place: hashed equalities have none, hashed ranges come last."""
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    capacity = capacity_of(store, block)
    written = 0
    narrow = True
    for last in range(2):
        for test in range(line[SIGN_SIZE]):
            if (test == scratch[0] or test == scratch[1]) != (last == 1):
                continue
            hashed = False
            for a in range(line[SIGN_EQUAL]):
                hashed |= line[SIGN_ACCESS + a] == test
            if hashed:
                continue
            column = line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN]
            if written == NARROW or column >= NARROW_COLUMNS:
                narrow = False
                continue
            at = low_at(store, block, capacity, written) + place
            store.bytes[column_at(store, block, capacity, written) + place] = column
            store.shorts[at] = scratch[HASHED + 2 * test]
            store.shorts[at + capacity] = scratch[HASHED + 2 * test + 1]
            written += 1
    for t in range(written, NARROW):
        at = low_at(store, block, capacity, t) + place
        store.bytes[column_at(store, block, capacity, t) + place] = 0
        store.shorts[at] = 0
        store.shorts[at + capacity] = NEVER
    store.words[row_at(store, block) + place] = row if narrow else ~row


@inlined
def has_room(store):  # type: ignore[no-untyped-def]
    state = store.state
    return (
        SLOT_BYTES * (state[SLOT_TOP] + 2 * MOST) <= store.bytes.size
        and state[BLOCK_TOP] < store.blocks.shape[0]
        and state[BUCKET_TOP] < store.buckets.shape[0]
        and 2 * state[PLACES_USED] < store.places.size
    )


@inlined
def put(store, row, table, scratch):  # type: ignore[no-untyped-def]
    block = block_with_room(store, find_bucket(store, table))
    place = np.int64(store.blocks[block, BLOCK_COUNT])
    store.blocks[block, BLOCK_COUNT] += 1
    store.where[row, PLACE] = place
    store.where[row, BLOCK] = block
    store.tables[table, TABLE_ROWS] += 1
    write_codes(store, row, block, place, scratch)


@inlined
def drop_bucket(store, bucket):  # type: ignore[no-untyped-def]
    table = store.buckets[bucket, BUCKET_TABLE]
    h = first_hash(table)
    for a in range(store.tables[table, TABLE_WIDTH]):
        h = mix(h, store.buckets[bucket, BUCKET_KEYS + a])
    mask = store.places.size - 1
    place = h & mask
    while store.places[place] != bucket:
        place = (place + 1) & mask
    if store.places[(place + 1) & mask] == NONE:
        while store.places[place] == bucket or store.places[place] == GONE:
            store.places[place] = NONE
            store.state[PLACES_USED] -= 1
            place = (place - 1) & mask
    else:
        store.places[place] = GONE
    store.tables[table, TABLE_BUCKETS] -= 1
    store.buckets[bucket, BUCKET_HEAD] = store.state[BUCKET_FREE]
    store.buckets[bucket, BUCKET_TABLE] = NONE
    store.state[BUCKET_FREE] = bucket


@inlined
def take_out(store, row):  # type: ignore[no-untyped-def]
    """Take a placed row out of its block; the last row of the bucket's first block takes its place."""
    blocks = store.blocks
    block, place = np.int64(store.where[row, BLOCK]), np.int64(store.where[row, PLACE])
    bucket = np.int64(blocks[block, BLOCK_BUCKET])
    head = store.buckets[bucket, BUCKET_HEAD]
    last = np.int64(blocks[head, BLOCK_COUNT]) - 1
    if head != block or last != place:
        copy_slot(store, head, last, block, place)
    blocks[head, BLOCK_COUNT] = last
    store.tables[store.buckets[bucket, BUCKET_TABLE], TABLE_ROWS] -= 1
    if last == 0:
        drop_head(store, bucket)
        if store.buckets[bucket, BUCKET_HEAD] == NONE:
            drop_bucket(store, bucket)


@kernel(STORE, frozen(int64), int64, boolean, array(int64))
def place_rows(store, rows, start, counting, scratch):  # type: ignore[no-untyped-def]
    """Place rows[start:] that wait (or, `counting`, only note how many rows each bucket will have); returns
    the first for which there is no room, or no table of the code that state[WANTED] then holds.
    """
    for i in range(start, rows.size):
        row = rows[i]
        if store.where[row, PLACE] != WAITING:
            continue
        if not has_room(store):
            store.state[WANTED] = NONE
            return i
        code_row(store, row, scratch)
        code = find_schema(store, row, scratch)
        signature = store.rows[row, ROW_SIGNATURE]
        table = find_table(store, code, np.int64(store.signatures[signature, SIGN_EQUAL]))
        if table == NONE:
            store.state[WANTED] = code
            return i
        if counting:
            store.buckets[find_bucket(store, table), BUCKET_ROWS] += 1
        else:
            put(store, row, table, scratch)
    return rows.size


@inlined
def settle_row(store, row, scratch):  # type: ignore[no-untyped-def]
    """Renew a row's codes, or move it where it belongs now; False where that needs room, or a table of the
    code in state[WANTED].
    """
    if store.where[row, PLACE] < 0:
        return True
    if not has_room(store):
        store.state[WANTED] = NONE
        return False
    code_row(store, row, scratch)
    code = find_schema(store, row, scratch)
    signature = store.rows[row, ROW_SIGNATURE]
    table = find_table(store, code, np.int64(store.signatures[signature, SIGN_EQUAL]))
    if table == NONE:
        store.state[WANTED] = code
        return False
    block, place = np.int64(store.where[row, BLOCK]), np.int64(store.where[row, PLACE])
    bucket = store.blocks[block, BLOCK_BUCKET]
    stays = store.buckets[bucket, BUCKET_TABLE] == table
    for a in range(store.tables[table, TABLE_WIDTH]):
        stays &= store.buckets[bucket, BUCKET_KEYS + a] == store.keys[a]
    if stays:
        write_codes(store, row, block, place, scratch)
    else:
        take_out(store, row)
        put(store, row, table, scratch)
    return True


@kernel(STORE, frozen(int64), int64, array(int64))
def settle_rows(store, rows, start, scratch):  # type: ignore[no-untyped-def]
    """Rows[start:] have new bounds: bring them where they belong; returns the first that could not be."""
    for i in range(start, rows.size):
        if not settle_row(store, rows[i], scratch):
            return i
    return rows.size


@kernel(STORE, frozen(int64))
def remove_rows(store, rows):  # type: ignore[no-untyped-def]
    """Take rows out of their buckets, or off those that wait."""
    for i in range(rows.size):
        if store.where[rows[i], PLACE] >= 0:
            take_out(store, rows[i])
        store.where[rows[i], PLACE] = ABSENT
    return 0


# --- bounds ---------------------------------------------------------------------------------------


@kernel(array(int32, 2), array(int32, 2), frozen(int32, 2), array(int64), frozen(int64), frozen(int64),
        frozen(int64, 2), frozen(int64, 2))  # fmt: skip
def insert_rows(row_table, where, signatures, bounds, rows, places, lows, highs):  # type: ignore[no-untyped-def]
    """Give rows of one signature their places in `bounds`, and write lows[t, i] and highs[t, i] there; they
    wait.
    """
    for i in range(rows.size):
        row_table[rows[i], ROW_PLACE] = places[i]
        where[rows[i], PLACE] = WAITING
    signature = row_table[rows[0], ROW_SIGNATURE]
    for t in range(lows.shape[0]):
        line = SIGN_TESTS + TEST_FIELDS * t
        shape, word = signatures[signature, line + TEST_SHAPE], signatures[signature, line + TEST_WORD]
        for i in range(rows.size):
            at = places[i] + word
            if shape <= FIXED:
                bounds[at] = lows[t, i] if lows[t, i] == highs[t, i] else NOTHING
            if shape in (LOW, BOTH):
                bounds[at] = lows[t, i]
            if shape in (HIGH, BOTH):
                bounds[at + (1 if shape == BOTH else 0)] = highs[t, i]
    return 0


@kernel(frozen(int32, 2), frozen(int32, 2), array(int64), frozen(int64), frozen(int64), frozen(int64, 2))
def write_bounds(row_table, signatures, bounds, rows, parts, values):  # type: ignore[no-untyped-def]
    """Write bounds of each row, values[p, i] for parts[p]: 1 + 2t is the low end of test t, 2 + 2t the high
    end, in this order. An equality whose ends differ holds for nothing.

    It takes three arrays and not the store, since unpacking the store costs more than one bound.
    """
    for p in range(parts.size):
        line = SIGN_TESTS + TEST_FIELDS * ((parts[p] - 1) >> 1)
        is_high = parts[p] & 1 == 0
        for i in range(rows.size):
            signature = row_table[rows[i], ROW_SIGNATURE]
            at = row_table[rows[i], ROW_PLACE] + signatures[signature, line + TEST_WORD]
            shape = signatures[signature, line + TEST_SHAPE]
            if shape == BOTH and is_high:
                at += 1
            if shape <= FIXED and is_high and bounds[at] != values[p, i]:
                bounds[at] = NOTHING
            else:
                bounds[at] = values[p, i]
    return 0


@kernel(STORE, frozen(int64), array(int64, 2), array(int64, 2))
def read_bounds(store, rows, lows, highs):  # type: ignore[no-untyped-def]
    """The bounds lows[t, i], highs[t, i] of rows that have as many tests as `lows` has lines."""
    for i in range(rows.size):
        signature, place = store.rows[rows[i], ROW_SIGNATURE], store.rows[rows[i], ROW_PLACE]
        for t in range(lows.shape[0]):
            lows[t, i] = low_bound(store, signature, place, t)
            highs[t, i] = high_bound(store, signature, place, t)
    return 0


@kernel(STORE, int64, int64, array(int64, 2), array(int64))
def sample_bounds(store, top, step, samples, counts):  # type: ignore[no-untyped-def]
    """Bounds by column of every `step`-th row below `top`, as they are drawn at the ends of ranges:
    samples[c, :counts[c]].
    """
    for row in range(0, top, step):
        if store.where[row, PLACE] == ABSENT:
            continue
        signature, place = store.rows[row, ROW_SIGNATURE], store.rows[row, ROW_PLACE]
        for test in range(store.signatures[signature, SIGN_SIZE]):
            line = SIGN_TESTS + TEST_FIELDS * test
            column = store.signatures[signature, line + TEST_COLUMN]
            if column >= samples.shape[0]:
                continue
            shape = store.signatures[signature, line + TEST_SHAPE]
            at = place + store.signatures[signature, line + TEST_WORD]
            for end in range(2 if shape == BOTH else 1):
                if counts[column] < samples.shape[1]:
                    samples[column, counts[column]] = store.bounds[at + end]
                    counts[column] += 1
    return 0


@kernel(STORE, frozen(int64), array(int64), array(int64, 2))
def sample_ranges(store, rows, scratch, found):  # type: ignore[no-untyped-def]
    """For every row its narrowest range and the second: found[i] = column, width in codes, width as a part of
    2**16, and the same again; NONE for the column where there is none.
    """
    for i in range(rows.size):
        code_row(store, rows[i], scratch)
        choose_ranges(store, rows[i], scratch)
        line = store.signatures[store.rows[rows[i], ROW_SIGNATURE]]
        for r in range(2):
            test = scratch[r]
            found[i, 3 * r] = NONE
            if test != NONE:
                found[i, 3 * r] = line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN]
                found[i, 3 * r + 1] = scratch[HASHED + 2 * test + 1] - scratch[HASHED + 2 * test]
                found[i, 3 * r + 2] = scratch[2 + r]
    return 0


@kernel(STORE, frozen(boolean), int64, array(boolean))
def mark_codes(store, is_string, top, live):  # type: ignore[no-untyped-def]
    """Mark the string codes that rows below `top` name; `is_string` says so of every column."""
    for row in range(top):
        if store.where[row, PLACE] == ABSENT:
            continue
        signature, place = store.rows[row, ROW_SIGNATURE], store.rows[row, ROW_PLACE]
        for test in range(store.signatures[signature, SIGN_SIZE]):
            line = SIGN_TESTS + TEST_FIELDS * test
            if is_string[store.signatures[signature, line + TEST_COLUMN]]:
                at = place + store.signatures[signature, line + TEST_WORD]
                shape = store.signatures[signature, line + TEST_SHAPE]
                for end in range(2 if shape == BOTH else 1):
                    if 0 < store.bounds[at + end] < live.size:
                        live[store.bounds[at + end]] = True
    return 0


@kernel(STORE)
def rehash(store):  # type: ignore[no-untyped-def]
    """Enter all tables and buckets into a new, empty `places`."""
    mask = store.places.size - 1
    used = 0
    for table in range(store.state[TABLES]):
        place = mix(np.int64(-1), store.tables[table, TABLE_CODE]) & mask
        while store.places[place] != NONE:
            place = (place + 1) & mask
        store.places[place] = -3 - table
        used += 1
    for b in range(store.state[BUCKET_TOP]):
        table = store.buckets[b, BUCKET_TABLE]
        if table != NONE:
            h = first_hash(table)
            for a in range(store.tables[table, TABLE_WIDTH]):
                h = mix(h, store.buckets[b, BUCKET_KEYS + a])
            place = h & mask
            while store.places[place] != NONE:
                place = (place + 1) & mask
            store.places[place] = b
            used += 1
    store.state[PLACES_USED] = used
    return used

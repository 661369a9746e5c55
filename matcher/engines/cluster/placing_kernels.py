"""Kernels that place rows in buckets and leaves; the arrays are drawn in `layout/arrays.py`.

Invariant: once `update_rows` has processed its last change, a placed row is in the bucket of the access
predicate that its bounds imply, with their codes.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import (
    block_of,
    capacity_of,
    column_at,
    id_at,
    is_here,
    low_at,
    pool_has_room,
    row_at,
    set_place,
    tests_of,
)
from covey.matcher.engines.cluster.buckets.zone_kernels import (
    block_with_room,
    free_slot,
    last_zone,
    zone_block,
)
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.arrays import IN_LEAF
from covey.matcher.engines.cluster.layout.code_kernels import (
    FIRST_TEST,
    HASHED,
    code_row,
    is_hashed,
    load_codes,
    nth_bound,
    save_codes,
)
from covey.matcher.engines.cluster.leaves.placing_kernels import (
    leaf_order,
    leaf_room,
    put_in_leaf,
    remove_from_leaf,
    rewrite_in_leaf,
    stays_in_leaf,
)
from covey.matcher.engines.rows.row_kernels import ROW_FIELDS, ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import array, first_hash, frozen, inlined, int64, kernel, mix, prefetch, uint16

COLUMN_BITS, CLASS_BITS = 9, 6
IN_LEAVES = 1 << 62  # from here on, orders are of rows for leaves
PREFETCH_DISTANCE = 16  # rows


# --- access predicates of rows --------------------------------------------------------------------


@inlined
def class_of(reaches, width, ranges):  # type: ignore[no-untyped-def]
    """The first class whose reach covers the width, every other class with two ranges: tables multiply."""
    chosen = np.int64(0)
    while reaches[chosen] < width:
        chosen += ranges
    return chosen


@inlined
def choose_ranges(store, row, scratch):  # type: ignore[no-untyped-def]
    """Write the tests of the row's narrowest range, and of the next on another column, to scratch[0] and
    scratch[1] (NONE for none), their widths as a part of 2**16 to scratch[2] and scratch[3].
    """
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    scratch[0] = scratch[1] = a.NONE
    scratch[2] = scratch[3] = np.int64(1) << 40
    for test in range(line[a.SIGN_SIZE]):
        at = a.SIGN_TESTS + a.TEST_FIELDS * test
        column = line[at + a.TEST_COLUMN]
        if line[at + a.TEST_SHAPE] != a.BOTH or column >= a.NARROW_COLUMNS:
            continue
        if scratch[HASHED + 2 * test] == 0:  # a test for a missing attribute: events without it probe no cell
            continue
        if scratch[0] != a.NONE and line[a.SIGN_TESTS + a.TEST_FIELDS * scratch[0] + a.TEST_COLUMN] == column:
            continue
        width = max(scratch[HASHED + 2 * test + 1] - scratch[HASHED + 2 * test], 0) << 16
        width //= 2 * store.coding[column, a.CODE_COUNT] + 4
        if width < scratch[2]:
            scratch[1], scratch[3] = scratch[0], scratch[2]
            scratch[0], scratch[2] = test, width
        elif width < scratch[3]:
            scratch[1], scratch[3] = test, width


@inlined
def access_schema(store, row, scratch):  # type: ignore[no-untyped-def]
    """The number of a row's access schema, of template and ranges. Writes its keys to store.keys, the hashed
    ranges to scratch[:2], the first test to scratch[FIRST_TEST]. A range is in the cell of its low end, in a
    grid for ranges of about its width.
    """
    signature = store.rows[row, ROW_SIGNATURE]
    place = store.rows[row, ROW_PLACE]
    line = store.signatures[signature]
    equal = np.int64(line[a.SIGN_EQUAL])
    for part in range(equal):
        test = line[a.SIGN_ACCESS + part]
        store.keys[part] = nth_bound(store, signature, place, test, 0)
    schema = np.int64(line[a.SIGN_TEMPLATE])
    ranges = np.int64(line[a.SIGN_RANGES])
    scratch[0] = scratch[1] = scratch[FIRST_TEST] = a.NONE
    if ranges == 0:
        for test in range(line[a.SIGN_SIZE]):
            if scratch[FIRST_TEST] == a.NONE and not is_hashed(line, test):
                scratch[FIRST_TEST] = test
        return schema
    choose_ranges(store, row, scratch)
    if ranges == 1:
        scratch[1] = a.NONE
    if scratch[1] != a.NONE and scratch[1] < scratch[0]:
        scratch[0], scratch[1] = scratch[1], scratch[0]
    for r in range(2):
        test = scratch[r]
        schema <<= COLUMN_BITS + CLASS_BITS
        if test == a.NONE:
            continue
        column = np.int64(line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN])
        low, high = scratch[HASHED + 2 * test], scratch[HASHED + 2 * test + 1]
        schema |= (column + 1) << CLASS_BITS | class_of(store.reaches, high - low, ranges)
        store.keys[equal + r] = low
    return schema


@inlined
def find_table(store, schema, parts):  # type: ignore[no-untyped-def]
    """The table of an access schema, or NONE; turns the low ends among the keys into cells."""
    tables = store.state[a.TABLES]
    mask = store.places.size - 1
    place = mix(np.int64(-1), schema) & mask
    while store.places[place] != a.NONE:
        table = np.int64(-3) - store.places[place]
        if 0 <= table < tables and store.tables[table, a.TABLE_SCHEMA] == schema:
            for part in range(parts, store.tables[table, a.TABLE_WIDTH]):
                store.keys[part] >>= store.tables[table, a.TABLE_PARTS + a.PART_FIELDS * part + a.PART_SHIFT]
            return table
        place = (place + 1) & mask
    return np.int64(a.NONE)


@inlined
def hash_keys(store, table):  # type: ignore[no-untyped-def]
    h = first_hash(table)
    for part in range(store.tables[table, a.TABLE_WIDTH]):
        h = mix(h, store.keys[part])
    return h


@inlined
def find_bucket(store, table):  # type: ignore[no-untyped-def]
    """The bucket of the access predicate in store.keys, a new one if there is none."""
    width = store.tables[table, a.TABLE_WIDTH]
    mask = store.places.size - 1
    place = hash_keys(store, table) & mask
    vacant = -1
    while store.places[place] != a.NONE:
        b = store.places[place]
        if b == a.TOMBSTONE:
            if vacant < 0:
                vacant = place
        elif b >= 0 and store.buckets[b, a.BUCKET_TABLE] == table:
            part = 0
            while part < width and store.buckets[b, a.BUCKET_KEYS + part] == store.keys[part]:
                part += 1
            if part == width:
                return np.int64(b)
        place = (place + 1) & mask
    state = store.state
    bucket = state[a.BUCKET_FREE]
    if bucket == a.NONE:
        bucket = state[a.BUCKET_TOP]
        if bucket >= store.buckets.shape[0]:
            raise MemoryError("no room for a bucket: a kernel has not checked `has_room`")
        state[a.BUCKET_TOP] += 1
    else:
        state[a.BUCKET_FREE] = store.buckets[bucket, a.BUCKET_HEAD]
    store.buckets[bucket, a.BUCKET_TABLE] = table
    store.buckets[bucket, a.BUCKET_HEAD] = a.NONE
    store.buckets[bucket, a.BUCKET_ZONES] = 0
    for part in range(a.ACCESS):
        store.buckets[bucket, a.BUCKET_KEYS + part] = store.keys[part] if part < width else 0
    if vacant < 0:
        vacant = place
        state[a.PLACES_USED] += 1
    store.places[vacant] = bucket
    store.tables[table, a.TABLE_BUCKETS] += 1
    return bucket


@inlined
def note_column(store, table, test, column):  # type: ignore[no-untyped-def]
    """Record that a row of a table has `test` on this column."""
    field = a.TABLE_COLUMNS + test
    if store.tables[table, field] != column + 1:
        store.tables[table, field] = a.NONE if store.tables[table, field] != 0 else column + 1


@inlined
def write_codes(store, row, table, block, place, scratch):  # type: ignore[no-untyped-def]
    """Write the codes of a row's tests to its slot: the first test orders the bucket, hashed ranges come
    last, hashed equalities have none. A test that the row lacks passes on every column.
    """
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    capacity, tests = capacity_of(store, block), tests_of(store, block)
    written = 0
    narrow = True
    for turn in range(3):
        for test in range(line[a.SIGN_SIZE]):
            last = test == scratch[0] or test == scratch[1]
            if turn != (0 if test == scratch[FIRST_TEST] else 2 if last else 1) or is_hashed(line, test):
                continue
            column = line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN]
            if written == tests or column >= a.NARROW_COLUMNS:
                narrow = False
                continue
            at = low_at(store, block, capacity, written) + place
            note_column(store, table, written, column)
            store.bytes[column_at(store, block, capacity, tests, written) + place] = column
            store.shorts[at] = scratch[HASHED + 2 * test]
            store.shorts[at + capacity] = scratch[HASHED + 2 * test + 1]
            written += 1
    for t in range(written, tests):
        at = low_at(store, block, capacity, t) + place
        store.bytes[column_at(store, block, capacity, tests, t) + place] = 0
        store.shorts[at] = 0
        store.shorts[at + capacity] = a.NEVER
    store.words[row_at(store, block, capacity) + place] = row if narrow else ~row
    store.words[id_at(store, block) + place] = store.ids[row, 0]


@inlined
def order_code(store, table, scratch):  # type: ignore[no-untyped-def]
    """The code that orders a row in its table, 0 where nothing is ordered."""
    order = store.tables[table, a.TABLE_ORDER]
    if order == a.NONE:
        return np.int64(0)
    return scratch[HASHED + 2 * scratch[FIRST_TEST] + (1 if order == a.HIGH else 0)]


@inlined
def has_room(store):  # type: ignore[no-untyped-def]
    state = store.state
    return (
        pool_has_room(store)
        and state[a.BLOCK_TOP] < store.blocks.shape[0]
        and state[a.BUCKET_TOP] < store.buckets.shape[0]
        and 2 * state[a.PLACES_USED] < store.places.size
        and leaf_room(store)
    )


@inlined
def put(store, row, table, bucket, scratch):  # type: ignore[no-untyped-def]
    block = block_with_room(store, bucket, order_code(store, table, scratch), store.sorting)
    place = np.int64(store.blocks[block, a.BLOCK_COUNT])
    store.blocks[block, a.BLOCK_COUNT] += 1
    set_place(store, row, block, place)
    store.tables[table, a.TABLE_ROWS] += 1
    write_codes(store, row, table, block, place, scratch)


@inlined
def hash_bucket(store, bucket):  # type: ignore[no-untyped-def]
    """The hash of a bucket's access predicate; arbitrary for a free bucket."""
    table = max(store.buckets[bucket, a.BUCKET_TABLE], 0)
    h = first_hash(table)
    for part in range(store.tables[table, a.TABLE_WIDTH]):
        h = mix(h, store.buckets[bucket, a.BUCKET_KEYS + part])
    return h


@inlined
def drop_bucket(store, bucket):  # type: ignore[no-untyped-def]
    table = store.buckets[bucket, a.BUCKET_TABLE]
    mask = store.places.size - 1
    place = hash_bucket(store, bucket) & mask
    while store.places[place] != bucket:
        place = (place + 1) & mask
    if store.places[(place + 1) & mask] == a.NONE:
        while store.places[place] == bucket or store.places[place] == a.TOMBSTONE:
            store.places[place] = a.NONE
            store.state[a.PLACES_USED] -= 1
            place = (place - 1) & mask
    else:
        store.places[place] = a.TOMBSTONE
    store.tables[table, a.TABLE_BUCKETS] -= 1
    store.buckets[bucket, a.BUCKET_HEAD] = store.state[a.BUCKET_FREE]
    store.buckets[bucket, a.BUCKET_TABLE] = a.NONE
    store.state[a.BUCKET_FREE] = bucket


@inlined
def remove_placed(store, row):  # type: ignore[no-untyped-def]
    """Remove a row from its leaf or block, and drop its bucket if that is empty."""
    block, place = block_of(store, row), np.int64(store.where[row, a.PLACE])
    if block == IN_LEAF:
        remove_from_leaf(store, row)
        return
    bucket = np.int64(store.blocks[block, a.BLOCK_BUCKET])
    store.tables[store.buckets[bucket, a.BUCKET_TABLE], a.TABLE_ROWS] -= 1
    if not free_slot(store, bucket, block, place):
        drop_bucket(store, bucket)


@kernel(a.STORE, int64, int64, array(uint16, 2), array(int64), array(int64))
def order_rows(store, start, stop, codes, orders, scratch):  # type: ignore[no-untyped-def]
    """Write the order in which to place rows start:stop, by bucket or neighbouring leaves, to orders[row],
    NONE for rows placed here; save as many codes as fit to codes[row]. Returns the first row that misses a
    table, the one of the access schema in state[MISSING_TABLE].
    """
    for row in range(start, stop):
        if row + PREFETCH_DISTANCE < stop and store.where[row + PREFETCH_DISTANCE, a.PLACE] != a.ABSENT:
            prefetch(store.bounds, store.rows[row + PREFETCH_DISTANCE, ROW_PLACE])
        orders[row] = a.NONE
        if store.where[row, a.PLACE] == a.ABSENT or is_here(store, row):
            continue
        signature = store.rows[row, ROW_SIGNATURE]
        code_row(store, row, scratch)
        save_codes(store, row, scratch, codes, row)
        if store.signatures[signature, a.SIGN_LEAF] != 0:
            orders[row] = IN_LEAVES + leaf_order(store, row, scratch, HASHED)
            continue
        schema = access_schema(store, row, scratch)
        table = find_table(store, schema, np.int64(store.signatures[signature, a.SIGN_EQUAL]))
        if table == a.NONE:
            store.state[a.MISSING_TABLE] = schema
            return row
        orders[row] = hash_keys(store, table) & (IN_LEAVES - 1)
    return stop


@kernel(a.STORE, frozen(int64), int64, array(uint16, 2), frozen(int64), array(int64))
def place_rows(store, rows, start, codes, sizes, scratch):  # type: ignore[no-untyped-def]
    """Place the waiting ones of rows[start:]; returns the first without room or table: state[MISSING_TABLE]
    is NONE or its access schema. After `order_rows`, codes[row] are a row's codes, and a new bucket gets room
    for sizes[i] rows; otherwise both are empty.
    """
    for i in range(start, rows.size):
        row = rows[i]
        if i + PREFETCH_DISTANCE < rows.size:
            soon = rows[i + PREFETCH_DISTANCE // 2]
            prefetch(store.bounds, store.rows[soon, ROW_PLACE])
            prefetch(store.rows, ROW_FIELDS * rows[i + PREFETCH_DISTANCE])
            prefetch(store.where, 2 * rows[i + PREFETCH_DISTANCE])
            if codes.size > 0:
                prefetch(codes, codes.shape[1] * rows[i + PREFETCH_DISTANCE])
        if store.where[row, a.PLACE] != a.WAITING:
            continue
        if not has_room(store):
            store.state[a.MISSING_TABLE] = a.NONE
            return i
        signature = store.rows[row, ROW_SIGNATURE]
        load_codes(store, row, scratch, codes, row)
        if store.signatures[signature, a.SIGN_LEAF] != 0:
            put_in_leaf(store, row, scratch, HASHED, store.sorting)
            continue
        schema = access_schema(store, row, scratch)
        table = find_table(store, schema, np.int64(store.signatures[signature, a.SIGN_EQUAL]))
        if table == a.NONE:
            store.state[a.MISSING_TABLE] = schema
            return i
        bucket = find_bucket(store, table)
        if sizes.size > 0 and store.buckets[bucket, a.BUCKET_HEAD] == a.NONE:
            store.buckets[bucket, a.BUCKET_ZONES] = sizes[i]
        put(store, row, table, bucket, scratch)
    return rows.size


@inlined
def fetch_row(store, row):  # type: ignore[no-untyped-def]
    prefetch(store.bounds, store.rows[row, ROW_PLACE])
    if is_here(store, row) and block_of(store, row) != IN_LEAF:
        prefetch(store.blocks, a.BLOCK_FIELDS * block_of(store, row))


@inlined
def fetch_codes(store, row):  # type: ignore[no-untyped-def]
    place, block = np.int64(store.where[row, a.PLACE]), block_of(store, row)
    if is_here(store, row) and block != IN_LEAF:
        prefetch(store.buckets, store.buckets.shape[1] * store.blocks[block, a.BLOCK_BUCKET])
        capacity = capacity_of(store, block)
        first = low_at(store, block, capacity, 0) + place
        prefetch(store.shorts, first)
        prefetch(store.shorts, first + 2 * capacity)


@inlined
def update_row(store, row, scratch):  # type: ignore[no-untyped-def]
    """Rewrite or move a row that is placed here; False without room, or the table of state[MISSING_TABLE]."""
    if not is_here(store, row):
        return True
    if not has_room(store):
        store.state[a.MISSING_TABLE] = a.NONE
        return False
    code_row(store, row, scratch)
    signature = store.rows[row, ROW_SIGNATURE]
    was_in_leaf = block_of(store, row) == IN_LEAF
    if store.signatures[signature, a.SIGN_LEAF] != 0:
        if was_in_leaf and stays_in_leaf(store, row, scratch, HASHED):
            rewrite_in_leaf(store, row, scratch, HASHED)
        else:
            remove_placed(store, row)
            put_in_leaf(store, row, scratch, HASHED, store.sorting)
        return True
    schema = access_schema(store, row, scratch)
    table = find_table(store, schema, np.int64(store.signatures[signature, a.SIGN_EQUAL]))
    if table == a.NONE:
        store.state[a.MISSING_TABLE] = schema
        return False
    if was_in_leaf:
        remove_placed(store, row)
        put(store, row, table, find_bucket(store, table), scratch)
        return True
    block, place = block_of(store, row), np.int64(store.where[row, a.PLACE])
    bucket = store.blocks[block, a.BLOCK_BUCKET]
    stays = store.buckets[bucket, a.BUCKET_TABLE] == table
    for part in range(store.tables[table, a.TABLE_WIDTH]):
        stays &= store.buckets[bucket, a.BUCKET_KEYS + part] == store.keys[part]
    zones = store.buckets[bucket, a.BUCKET_ZONES]
    if stays and zones > 0:
        directory = store.buckets[bucket, a.BUCKET_HEAD]
        zone = last_zone(store, directory, zones, order_code(store, table, scratch))
        stays = zone_block(store, directory, zone) == block
    if stays:
        write_codes(store, row, table, block, place, scratch)
    else:
        remove_placed(store, row)
        put(store, row, table, find_bucket(store, table), scratch)
    return True


@kernel(a.STORE, frozen(int64), int64, array(int64))
def update_rows(store, rows, start, scratch):  # type: ignore[no-untyped-def]
    """Process new bounds of rows[start:]; returns the first row that needs room or a table."""
    for i in range(start, rows.size):
        if i + PREFETCH_DISTANCE < rows.size:
            prefetch(store.where, 2 * rows[i + PREFETCH_DISTANCE])
            fetch_row(store, rows[i + PREFETCH_DISTANCE // 2])
            fetch_codes(store, rows[i + PREFETCH_DISTANCE // 4])
        if not update_row(store, rows[i], scratch):
            return i
    return rows.size


@kernel(a.STORE, frozen(int64), int64)
def remove_rows(store, rows, mark):  # type: ignore[no-untyped-def]
    """Remove rows that are placed here or wait; takes no room. They become `mark`, WAITING or ABSENT."""
    for i in range(rows.size):
        if is_here(store, rows[i]):
            remove_placed(store, rows[i])
        elif store.where[rows[i], a.PLACE] != a.WAITING:
            continue
        store.where[rows[i], a.PLACE] = mark
    return 0


@kernel(a.STORE, int64)
def enter_tables(store, first):  # type: ignore[no-untyped-def]
    mask = store.places.size - 1
    for table in range(first, store.state[a.TABLES]):
        place = mix(np.int64(-1), store.tables[table, a.TABLE_SCHEMA]) & mask
        while store.places[place] != a.NONE:
            place = (place + 1) & mask
        store.places[place] = -3 - table
        store.state[a.PLACES_USED] += 1
    return 0


@kernel(a.STORE)
def enter_buckets(store):  # type: ignore[no-untyped-def]
    """Enter all buckets into `places`, which has none."""
    mask = store.places.size - 1
    used = 0
    for b in range(store.state[a.BUCKET_TOP]):
        if b + PREFETCH_DISTANCE < store.state[a.BUCKET_TOP]:
            prefetch(store.places, hash_bucket(store, b + PREFETCH_DISTANCE) & mask)
        if store.buckets[b, a.BUCKET_TABLE] != a.NONE:
            place = hash_bucket(store, b) & mask
            while store.places[place] != a.NONE:
                place = (place + 1) & mask
            store.places[place] = b
            used += 1
    store.state[a.PLACES_USED] += used
    return used

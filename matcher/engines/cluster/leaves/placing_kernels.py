"""Helpers of kernels that place rows in leaves; the arrays are drawn in `layout/leaf_arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout.arrays import (
    BLOCK,
    CODE_COUNT,
    NARROW,
    NARROW_COLUMNS,
    NEVER,
    NONE,
    PLACE,
    SIGN_SIZE,
    SIGN_TESTS,
    TEST_COLUMN,
    TEST_FIELDS,
)
from covey.matcher.engines.cluster.layout.leaf_arrays import (
    BINS,
    CODE_MASK,
    FILLED,
    FREE_LEAF,
    IN_LEAF,
    LEAF,
    LEAF_COUNT,
    LEAF_FREE,
    LEAF_GUARD,
    LEAF_LEAST,
    LEAF_MOST,
    LEAF_RECORD,
    LEAF_ROWS,
    LEAF_TOP,
    LEAF_WORDS,
    LEAVES_USED,
    LINE,
)
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE, sort_range
from covey.matcher.jit.kernel import inlined, trailing_zeros

ALL = np.uint64(2**64 - 1)
ONE = np.uint64(1)


@inlined
def directory_line(leaves, guard):  # type: ignore[no-untyped-def]
    """The line of the directory for a guard: how many leaves it has, and which."""
    return np.int64(leaves.numbers[guard]) if guard != NONE else leaves.columns.shape[0]


@inlined
def leaf_room(store):  # type: ignore[no-untyped-def]
    """Whether there is room for a row, which may split a leaf."""
    return store.leaves.state[LEAF_FREE] != NONE or store.leaves.state[LEAF_TOP] < store.leaves.lines.shape[0]


@inlined
def narrowest_test(store, line, scratch, hashed):  # type: ignore[no-untyped-def]
    """The column with bitmaps of a row's narrowest test, or NONE; its codes are in scratch[hashed:]."""
    chosen, least = np.int64(NONE), np.int64(1) << 40
    for test in range(line[SIGN_SIZE]):
        column = np.int64(line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN])
        if column < NARROW_COLUMNS and store.leaves.numbers[column] != NONE:
            at = hashed + 2 * test
            width = max(scratch[at + 1] - scratch[at], 0) << 16
            width //= 2 * store.coding[column, CODE_COUNT] + 4
            if width < least:
                chosen, least = column, width
    return chosen


@inlined
def first_test_on(line, column):  # type: ignore[no-untyped-def]
    """The first test of a signature on a column, or NONE."""
    for test in range(line[SIGN_SIZE]):
        if line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN] == column:
            return np.int64(test)
    return np.int64(NONE)


@inlined
def leaf_order(store, row, scratch, hashed):  # type: ignore[no-untyped-def]
    """The guard and low end of a row whose codes are in scratch[hashed:], as one number."""
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    guard = narrowest_test(store, line, scratch, hashed)
    if guard == NONE:
        return np.int64(0)
    return (guard + 1) << 16 | scratch[hashed + 2 * first_test_on(line, guard)]


@inlined
def write_bits(store, leaf, place, number, first, last):  # type: ignore[no-untyped-def]
    """Set the bits of a place in bins `first` to `last` of a column's bitmaps, and clear the others."""
    leaves = store.leaves
    bins = leaves.state[BINS]
    at = leaf * leaves.state[LEAF_WORDS] + LINE * (1 + number * bins) + (place >> 6)
    mask = ONE << np.uint64(place & 63)
    for b in range(bins):
        word = leaves.words[at + LINE * b]
        leaves.words[at + LINE * b] = word | mask if first <= b <= last else word & ~mask


@inlined
def write_row(store, row, leaf, place, guard, scratch, hashed, fresh):  # type: ignore[no-untyped-def]
    """Write the bits and the record of a row, its test on the guard first; `fresh`: the place was free."""
    leaves = store.leaves
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    record = LEAF_RECORD * (LEAF * leaf + place)
    written, narrow = np.int64(0), True
    columns = np.int64(0)
    first = first_test_on(line, guard)
    for turn in range(2):
        for test in range(line[SIGN_SIZE]):
            if (test == first) != (turn == 0):
                continue
            column = np.int64(line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN])
            if column >= NARROW_COLUMNS:
                narrow = False
                continue
            low, high = scratch[hashed + 2 * test], scratch[hashed + 2 * test + 1]
            same = False
            if written < NARROW:
                codes, shift = low | high << 16, 32 * (written & 1)
                old = leaves.records[record + 2 + (written >> 1)]
                same = not fresh and (old >> shift) & 0xFFFFFFFF == codes
                old &= ~(np.int64(0xFFFFFFFF) << shift)
                leaves.records[record + 2 + (written >> 1)] = old | codes << shift
                columns |= column << (8 * written)
                written += 1
            else:
                narrow = False
            number = np.int64(leaves.numbers[column])
            if same or number == NONE:
                continue
            for other in range(line[SIGN_SIZE]):  # another test of the same column narrows it
                if line[SIGN_TESTS + TEST_FIELDS * other + TEST_COLUMN] == column:
                    low = max(low, scratch[hashed + 2 * other])
                    high = min(high, scratch[hashed + 2 * other + 1])
            scale = leaves.columns[number, 1]
            if low > high:
                write_bits(store, leaf, place, number, np.int64(1), np.int64(0))
            else:
                write_bits(store, leaf, place, number, low * scale >> 16, high * scale >> 16)
    for t in range(written, NARROW):
        side = 32 * (t & 1)
        old = leaves.records[record + 2 + (t >> 1)] & ~(np.int64(0xFFFFFFFF) << side)
        leaves.records[record + 2 + (t >> 1)] = old | np.int64(NEVER) << (16 + side)
    leaves.records[record] = store.ids[row]
    leaves.records[record + 1] = (row if narrow else ~row) << 32 | columns


@inlined
def new_leaf(store, guard, least):  # type: ignore[no-untyped-def]
    leaves = store.leaves
    leaf = leaves.state[LEAF_FREE]
    if leaf == NONE:
        leaf = leaves.state[LEAF_TOP]
        leaves.state[LEAF_TOP] += 1
    else:
        leaves.state[LEAF_FREE] = leaves.lines[leaf, LEAF_LEAST]
    leaves.state[LEAVES_USED] += 1
    leaves.lines[leaf, LEAF_GUARD], leaves.lines[leaf, LEAF_COUNT] = guard, 0
    leaves.lines[leaf, LEAF_LEAST], leaves.lines[leaf, LEAF_MOST] = least, least
    start = leaf * leaves.state[LEAF_WORDS]
    for w in range(LINE):
        leaves.words[start + w] = 0
    for w in range(LINE, leaves.state[LEAF_WORDS]):
        leaves.words[start + w] = ALL
    return leaf


@inlined
def insert_leaf(store, guard, at, leaf):  # type: ignore[no-untyped-def]
    """Insert a leaf at a position of its guard's line of the directory."""
    entries = store.leaves.directory[directory_line(store.leaves, guard)]
    for i in range(entries[0], at, -1):
        entries[i + 1] = entries[i]
    entries[at + 1] = leaf
    entries[0] += 1


@inlined
def drop_leaf(store, leaf):  # type: ignore[no-untyped-def]
    """Remove an empty leaf from the directory."""
    leaves = store.leaves
    guard = leaves.lines[leaf, LEAF_GUARD]
    entries = leaves.directory[directory_line(leaves, guard)]
    at = 1
    while entries[at] != leaf:
        at += 1
    for i in range(at, entries[0]):
        entries[i] = entries[i + 1]
    entries[0] -= 1
    leaves.lines[leaf, LEAF_COUNT] = FREE_LEAF
    leaves.lines[leaf, LEAF_LEAST] = leaves.state[LEAF_FREE]
    leaves.state[LEAF_FREE] = leaf
    leaves.state[LEAVES_USED] -= 1


@inlined
def leaf_before(store, guard, low):  # type: ignore[no-untyped-def]
    """The position, in its guard's line of the directory, of the last leaf whose least is at most `low`; 0
    where there is none.
    """
    entries = store.leaves.directory[directory_line(store.leaves, guard)]
    at, end = np.int64(0), np.int64(entries[0])
    while at < end:
        middle = (at + end) >> 1
        if store.leaves.lines[entries[middle + 1], LEAF_LEAST] <= low:
            at = middle + 1
        else:
            end = middle
    return max(at - 1, np.int64(0))


@inlined
def free_place(store, leaf):  # type: ignore[no-untyped-def]
    """A free place of a leaf that has one."""
    start = leaf * store.leaves.state[LEAF_WORDS]
    w = np.int64(0)
    while store.leaves.words[start + w] == ALL:
        w += 1
    return 64 * w + trailing_zeros(~store.leaves.words[start + w])


@inlined
def low_of(store, leaf, place):  # type: ignore[no-untyped-def]
    """The low end of a row on the guard of its leaf, 0 where there is no guard."""
    if store.leaves.lines[leaf, LEAF_GUARD] == NONE:
        return np.int64(0)
    return store.leaves.records[LEAF_RECORD * (LEAF * leaf + place) + 2] & CODE_MASK


@inlined
def mark_taken(store, leaf, place):  # type: ignore[no-untyped-def]
    store.leaves.words[leaf * store.leaves.state[LEAF_WORDS] + (place >> 6)] |= ONE << np.uint64(place & 63)
    store.leaves.lines[leaf, LEAF_COUNT] += 1


@inlined
def mark_free(store, leaf, place):  # type: ignore[no-untyped-def]
    store.leaves.words[leaf * store.leaves.state[LEAF_WORDS] + (place >> 6)] &= ~(
        ONE << np.uint64(place & 63)
    )
    store.leaves.lines[leaf, LEAF_COUNT] -= 1


@inlined
def move_rows(store, leaf, target, split_code):  # type: ignore[no-untyped-def]
    """Move the rows whose low ends are `split_code` or more to the same places of an empty leaf."""
    leaves = store.leaves
    size = leaves.state[LEAF_WORDS]
    source, end = leaf * size, target * size
    stay, go = np.int64(0), np.int64(0)
    for place in range(LEAF):
        old, new = LEAF_RECORD * (LEAF * leaf + place), LEAF_RECORD * (LEAF * target + place)
        high = (leaves.records[old + 2] >> 16) & CODE_MASK
        if low_of(store, leaf, place) < split_code:
            stay = max(stay, high)
            continue
        go = max(go, high)
        for i in range(LEAF_RECORD):
            leaves.records[new + i] = leaves.records[old + i]
        row = leaves.records[new + 1] >> 32
        store.where[row if row >= 0 else ~row, PLACE] = LEAF * target + place
        mark_free(store, leaf, place)
        mark_taken(store, target, place)
    leaves.lines[leaf, LEAF_MOST], leaves.lines[target, LEAF_MOST] = stay, go
    for w in range(LINE):
        moved = leaves.words[end + w]
        for at in range(LINE + w, size, LINE):
            leaves.words[end + at] = leaves.words[source + at] | ~moved
            leaves.words[source + at] |= moved


@inlined
def split_leaf(store, guard, at, low, sorting):  # type: ignore[no-untyped-def]
    """Add a leaf after a full one, for a row of this low end: empty where the row comes last, else with the
    rows from the middle on. Returns the leaf for the row.
    """
    leaves = store.leaves
    leaf = np.int64(leaves.directory[directory_line(leaves, guard), at + 1])
    for p in range(LEAF):
        sorting[p] = low_of(store, leaf, p)
    sort_range(sorting, np.int64(0), np.int64(LEAF))
    if low >= sorting[LEAF - 1]:
        fresh = new_leaf(store, guard, low)
        insert_leaf(store, guard, at + 1, fresh)
        return fresh
    middle = np.int64(LEAF >> 1)
    while middle < LEAF - 1 and sorting[middle] == sorting[0]:
        middle += 1
    split_code = sorting[middle]
    fresh = new_leaf(store, guard, split_code)
    insert_leaf(store, guard, at + 1, fresh)
    move_rows(store, leaf, fresh, split_code)
    return fresh if low >= split_code else leaf


@inlined
def put_in_leaf(store, row, scratch, hashed, sorting):  # type: ignore[no-untyped-def]
    """Place a row in the leaf for its low end; its codes are in scratch[hashed:]."""
    leaves = store.leaves
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    guard = narrowest_test(store, line, scratch, hashed)
    low, high = np.int64(0), np.int64(0)
    if guard != NONE:
        test = first_test_on(line, guard)
        low, high = scratch[hashed + 2 * test], scratch[hashed + 2 * test + 1]
    entries = leaves.directory[directory_line(leaves, guard)]
    at = leaf_before(store, guard, low)
    if entries[0] == 0:
        leaf = new_leaf(store, guard, low)
        insert_leaf(store, guard, at, leaf)
    else:
        leaf = np.int64(entries[at + 1])
        if leaves.lines[leaf, LEAF_COUNT] == LEAF:
            leaf = split_leaf(store, guard, at, low, sorting)
        elif leaves.lines[leaf, LEAF_COUNT] >= leaves.state[FILLED]:
            leaf = new_leaf(store, guard, low)
            insert_leaf(store, guard, at + 1, leaf)
    leaves.lines[leaf, LEAF_LEAST] = min(np.int64(leaves.lines[leaf, LEAF_LEAST]), low)
    leaves.lines[leaf, LEAF_MOST] = max(np.int64(leaves.lines[leaf, LEAF_MOST]), high)
    place = free_place(store, leaf)
    write_row(store, row, leaf, place, guard, scratch, hashed, True)
    mark_taken(store, leaf, place)
    leaves.state[LEAF_ROWS] += 1
    store.where[row, PLACE] = LEAF * leaf + place
    store.where[row, BLOCK] = IN_LEAF


@inlined
def remove_from_leaf(store, row):  # type: ignore[no-untyped-def]
    """Free the place of a row in a leaf."""
    leaves = store.leaves
    leaf, place = np.int64(store.where[row, PLACE]) // LEAF, np.int64(store.where[row, PLACE]) % LEAF
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    for test in range(line[SIGN_SIZE]):
        column = np.int64(line[SIGN_TESTS + TEST_FIELDS * test + TEST_COLUMN])
        if column < NARROW_COLUMNS and leaves.numbers[column] != NONE:
            write_bits(store, leaf, place, np.int64(leaves.numbers[column]), np.int64(0), leaves.state[BINS])
    mark_free(store, leaf, place)
    leaves.state[LEAF_ROWS] -= 1
    if leaves.lines[leaf, LEAF_COUNT] == 0:
        drop_leaf(store, leaf)


@inlined
def stays_in_leaf(store, row, scratch, hashed):  # type: ignore[no-untyped-def]
    """Whether a row with new codes may keep its place: all events that it matches search its leaf."""
    leaf = np.int64(store.where[row, PLACE]) // LEAF
    guard = store.leaves.lines[leaf, LEAF_GUARD]
    if guard == NONE:
        return True
    test = first_test_on(store.signatures[store.rows[row, ROW_SIGNATURE]], guard)
    low, high = scratch[hashed + 2 * test], scratch[hashed + 2 * test + 1]
    return low > high or (
        store.leaves.lines[leaf, LEAF_LEAST] <= low and high <= store.leaves.lines[leaf, LEAF_MOST]
    )


@inlined
def rewrite_in_leaf(store, row, scratch, hashed):  # type: ignore[no-untyped-def]
    """Rewrite the bits and codes of a row in its place."""
    leaf, place = np.int64(store.where[row, PLACE]) // LEAF, np.int64(store.where[row, PLACE]) % LEAF
    write_row(store, row, leaf, place, store.leaves.lines[leaf, LEAF_GUARD], scratch, hashed, False)

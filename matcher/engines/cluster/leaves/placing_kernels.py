"""Helpers of kernels that place rows in leaves; the arrays are drawn in `layout/arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import set_place
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout import arrays as f
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE, id_of
from covey.matcher.jit.kernel import inlined, trailing_zeros
from covey.matcher.jit.sort_kernels import sort_range

ALL = np.uint64(2**64 - 1)
ONE = np.uint64(1)


@inlined
def directory_line(leaves, guard):  # type: ignore[no-untyped-def]
    """The guard's line of the directory: how many leaves, and which."""
    return np.int64(leaves.numbers[guard]) if guard != a.NONE else leaves.columns.shape[0]


@inlined
def leaf_room(store):  # type: ignore[no-untyped-def]
    """Whether there is room for a row, which may split a leaf."""
    return (
        store.leaves.state[f.LEAF_FREE] != a.NONE
        or store.leaves.state[f.LEAF_TOP] < store.leaves.lines.shape[0]
    )


@inlined
def narrowest_test(store, line, scratch, hashed):  # type: ignore[no-untyped-def]
    """The column with bitmaps of a row's narrowest test, or NONE; its codes are in scratch[hashed:]."""
    chosen, least = np.int64(a.NONE), np.int64(1) << 40
    for test in range(line[a.SIGN_SIZE]):
        column = np.int64(line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN])
        if column < a.NARROW_COLUMNS and store.leaves.numbers[column] != a.NONE:
            at = hashed + 2 * test
            width = max(scratch[at + 1] - scratch[at], 0) << 16
            width //= 2 * store.coding[column, a.CODE_COUNT] + 4
            if width < least:
                chosen, least = column, width
    return chosen


@inlined
def first_test_on(line, column):  # type: ignore[no-untyped-def]
    for test in range(line[a.SIGN_SIZE]):
        if line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN] == column:
            return np.int64(test)
    return np.int64(a.NONE)


@inlined
def leaf_order(store, row, scratch, hashed):  # type: ignore[no-untyped-def]
    """The guard and low end of a row as one number; its codes are in scratch[hashed:]."""
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    guard = narrowest_test(store, line, scratch, hashed)
    if guard == a.NONE:
        return np.int64(0)
    return (guard + 1) << 16 | scratch[hashed + 2 * first_test_on(line, guard)]


@inlined
def write_bits(store, leaf, place, number, first, last):  # type: ignore[no-untyped-def]
    """Set a place's bits in bins `first` to `last` of a column, and clear the others."""
    leaves = store.leaves
    bins = leaves.state[f.BINS]
    at = leaf * leaves.state[f.LEAF_WORDS] + f.LINE * (1 + number * bins) + (place >> 6)
    mask = ONE << np.uint64(place & 63)
    for b in range(bins):
        word = leaves.words[at + f.LINE * b]
        leaves.words[at + f.LINE * b] = word | mask if first <= b <= last else word & ~mask


@inlined
def write_row(store, row, leaf, place, guard, scratch, hashed, fresh):  # type: ignore[no-untyped-def]
    """Write a row's bits and record, its test on the guard first; `fresh`: the place was free."""
    leaves = store.leaves
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    record = f.LEAF_RECORD * (f.LEAF * leaf + place)
    written, narrow = np.int64(0), True
    columns = np.int64(0)
    first = first_test_on(line, guard)
    for turn in range(2):
        for test in range(line[a.SIGN_SIZE]):
            if (test == first) != (turn == 0):
                continue
            column = np.int64(line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN])
            if column >= a.NARROW_COLUMNS:
                narrow = False
                continue
            low, high = scratch[hashed + 2 * test], scratch[hashed + 2 * test + 1]
            same = False
            if written < a.NARROW:
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
            if same or number == a.NONE:
                continue
            for other in range(line[a.SIGN_SIZE]):  # another test of the same column narrows it
                if line[a.SIGN_TESTS + a.TEST_FIELDS * other + a.TEST_COLUMN] == column:
                    low = max(low, scratch[hashed + 2 * other])
                    high = min(high, scratch[hashed + 2 * other + 1])
            scale = leaves.columns[number, 1]
            if low > high:
                write_bits(store, leaf, place, number, np.int64(1), np.int64(0))
            else:
                write_bits(store, leaf, place, number, low * scale >> 16, high * scale >> 16)
    for t in range(written, a.NARROW):
        side = 32 * (t & 1)
        old = leaves.records[record + 2 + (t >> 1)] & ~(np.int64(0xFFFFFFFF) << side)
        leaves.records[record + 2 + (t >> 1)] = old | np.int64(a.NEVER) << (16 + side)
    leaves.records[record] = id_of(store.ids, row)
    leaves.records[record + 1] = (row if narrow else ~row) << 32 | columns


@inlined
def new_leaf(store, guard, least):  # type: ignore[no-untyped-def]
    leaves = store.leaves
    leaf = leaves.state[f.LEAF_FREE]
    if leaf == a.NONE:
        leaf = leaves.state[f.LEAF_TOP]
        if leaf >= leaves.lines.shape[0]:
            raise MemoryError("no room for a leaf: a kernel has not checked `leaf_room`")
        leaves.state[f.LEAF_TOP] += 1
    else:
        leaves.state[f.LEAF_FREE] = leaves.lines[leaf, f.LEAF_LEAST]
    leaves.state[f.LEAVES_USED] += 1
    leaves.lines[leaf, f.LEAF_GUARD], leaves.lines[leaf, f.LEAF_COUNT] = guard, 0
    leaves.lines[leaf, f.LEAF_LEAST], leaves.lines[leaf, f.LEAF_MOST] = least, least
    start = leaf * leaves.state[f.LEAF_WORDS]
    for w in range(f.LINE):
        leaves.words[start + w] = 0
    for w in range(f.LINE, leaves.state[f.LEAF_WORDS]):
        leaves.words[start + w] = ALL
    return leaf


@inlined
def insert_leaf(store, guard, at, leaf):  # type: ignore[no-untyped-def]
    entries = store.leaves.directory[directory_line(store.leaves, guard)]
    for i in range(entries[0], at, -1):
        entries[i + 1] = entries[i]
    entries[at + 1] = leaf
    entries[0] += 1


@inlined
def drop_leaf(store, leaf):  # type: ignore[no-untyped-def]
    leaves = store.leaves
    guard = leaves.lines[leaf, f.LEAF_GUARD]
    entries = leaves.directory[directory_line(leaves, guard)]
    at = 1
    while entries[at] != leaf:
        at += 1
    for i in range(at, entries[0]):
        entries[i] = entries[i + 1]
    entries[0] -= 1
    leaves.lines[leaf, f.LEAF_COUNT] = f.FREE_LEAF
    leaves.lines[leaf, f.LEAF_LEAST] = leaves.state[f.LEAF_FREE]
    leaves.state[f.LEAF_FREE] = leaf
    leaves.state[f.LEAVES_USED] -= 1


@inlined
def leaf_before(store, guard, low):  # type: ignore[no-untyped-def]
    """The position in the guard's line of the last leaf whose least is at most `low`; 0 without any."""
    entries = store.leaves.directory[directory_line(store.leaves, guard)]
    at, end = np.int64(0), np.int64(entries[0])
    while at < end:
        middle = (at + end) >> 1
        if store.leaves.lines[entries[middle + 1], f.LEAF_LEAST] <= low:
            at = middle + 1
        else:
            end = middle
    return max(at - 1, np.int64(0))


@inlined
def free_place(store, leaf):  # type: ignore[no-untyped-def]
    """A free place of a leaf that has one."""
    start = leaf * store.leaves.state[f.LEAF_WORDS]
    w = np.int64(0)
    while store.leaves.words[start + w] == ALL:
        w += 1
    return 64 * w + trailing_zeros(~store.leaves.words[start + w])


@inlined
def low_of(store, leaf, place):  # type: ignore[no-untyped-def]
    """The low end of a row on its leaf's guard, 0 without a guard."""
    if store.leaves.lines[leaf, f.LEAF_GUARD] == a.NONE:
        return np.int64(0)
    return store.leaves.records[f.LEAF_RECORD * (f.LEAF * leaf + place) + 2] & f.CODE_MASK


@inlined
def mark_taken(store, leaf, place):  # type: ignore[no-untyped-def]
    store.leaves.words[leaf * store.leaves.state[f.LEAF_WORDS] + (place >> 6)] |= ONE << np.uint64(place & 63)
    store.leaves.lines[leaf, f.LEAF_COUNT] += 1


@inlined
def mark_free(store, leaf, place):  # type: ignore[no-untyped-def]
    store.leaves.words[leaf * store.leaves.state[f.LEAF_WORDS] + (place >> 6)] &= ~(
        ONE << np.uint64(place & 63)
    )
    store.leaves.lines[leaf, f.LEAF_COUNT] -= 1


@inlined
def move_rows(store, leaf, target, split_code):  # type: ignore[no-untyped-def]
    """Move the rows whose low ends are `split_code` or more to the same places of an empty leaf."""
    leaves = store.leaves
    size = leaves.state[f.LEAF_WORDS]
    source, end = leaf * size, target * size
    stay, go = np.int64(0), np.int64(0)
    for place in range(f.LEAF):
        old, new = f.LEAF_RECORD * (f.LEAF * leaf + place), f.LEAF_RECORD * (f.LEAF * target + place)
        high = (leaves.records[old + 2] >> 16) & f.CODE_MASK
        if low_of(store, leaf, place) < split_code:
            stay = max(stay, high)
            continue
        go = max(go, high)
        for i in range(f.LEAF_RECORD):
            leaves.records[new + i] = leaves.records[old + i]
        row = leaves.records[new + 1] >> 32
        store.where[row if row >= 0 else ~row, a.PLACE] = f.LEAF * target + place
        mark_free(store, leaf, place)
        mark_taken(store, target, place)
    leaves.lines[leaf, f.LEAF_MOST], leaves.lines[target, f.LEAF_MOST] = stay, go
    for w in range(f.LINE):
        moved = leaves.words[end + w]
        for at in range(f.LINE + w, size, f.LINE):
            leaves.words[end + at] = leaves.words[source + at] | ~moved
            leaves.words[source + at] |= moved


@inlined
def split_leaf(store, guard, at, low, sorting):  # type: ignore[no-untyped-def]
    """Split a full leaf, or add an empty one where the row comes last; returns the leaf for the row."""
    leaves = store.leaves
    leaf = np.int64(leaves.directory[directory_line(leaves, guard), at + 1])
    for p in range(f.LEAF):
        sorting[p] = low_of(store, leaf, p)
    sort_range(sorting, np.int64(0), np.int64(f.LEAF))
    if low >= sorting[f.LEAF - 1]:
        fresh = new_leaf(store, guard, low)
        insert_leaf(store, guard, at + 1, fresh)
        return fresh
    middle = np.int64(f.LEAF >> 1)
    while middle < f.LEAF - 1 and sorting[middle] == sorting[0]:
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
    if guard != a.NONE:
        test = first_test_on(line, guard)
        low, high = scratch[hashed + 2 * test], scratch[hashed + 2 * test + 1]
    entries = leaves.directory[directory_line(leaves, guard)]
    at = leaf_before(store, guard, low)
    if entries[0] == 0:
        leaf = new_leaf(store, guard, low)
        insert_leaf(store, guard, at, leaf)
    else:
        leaf = np.int64(entries[at + 1])
        if leaves.lines[leaf, f.LEAF_COUNT] == f.LEAF:
            leaf = split_leaf(store, guard, at, low, sorting)
        elif leaves.lines[leaf, f.LEAF_COUNT] >= leaves.state[f.FILLED]:
            leaf = new_leaf(store, guard, low)
            insert_leaf(store, guard, at + 1, leaf)
    leaves.lines[leaf, f.LEAF_LEAST] = min(np.int64(leaves.lines[leaf, f.LEAF_LEAST]), low)
    leaves.lines[leaf, f.LEAF_MOST] = max(np.int64(leaves.lines[leaf, f.LEAF_MOST]), high)
    place = free_place(store, leaf)
    write_row(store, row, leaf, place, guard, scratch, hashed, True)
    mark_taken(store, leaf, place)
    leaves.state[f.LEAF_ROWS] += 1
    set_place(store, row, f.IN_LEAF, f.LEAF * leaf + place)


@inlined
def remove_from_leaf(store, row):  # type: ignore[no-untyped-def]
    leaves = store.leaves
    leaf, place = np.int64(store.where[row, a.PLACE]) // f.LEAF, np.int64(store.where[row, a.PLACE]) % f.LEAF
    line = store.signatures[store.rows[row, ROW_SIGNATURE]]
    for test in range(line[a.SIGN_SIZE]):
        column = np.int64(line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN])
        if column < a.NARROW_COLUMNS and leaves.numbers[column] != a.NONE:
            write_bits(
                store, leaf, place, np.int64(leaves.numbers[column]), np.int64(0), leaves.state[f.BINS]
            )
    mark_free(store, leaf, place)
    leaves.state[f.LEAF_ROWS] -= 1
    if leaves.lines[leaf, f.LEAF_COUNT] == 0:
        drop_leaf(store, leaf)


@inlined
def stays_in_leaf(store, row, scratch, hashed):  # type: ignore[no-untyped-def]
    """Whether a row with new codes may keep its place: all events that it matches search its leaf."""
    leaf = np.int64(store.where[row, a.PLACE]) // f.LEAF
    guard = store.leaves.lines[leaf, f.LEAF_GUARD]
    if guard == a.NONE:
        return True
    test = first_test_on(store.signatures[store.rows[row, ROW_SIGNATURE]], guard)
    low, high = scratch[hashed + 2 * test], scratch[hashed + 2 * test + 1]
    return low > high or (
        store.leaves.lines[leaf, f.LEAF_LEAST] <= low and high <= store.leaves.lines[leaf, f.LEAF_MOST]
    )


@inlined
def rewrite_in_leaf(store, row, scratch, hashed):  # type: ignore[no-untyped-def]
    leaf, place = np.int64(store.where[row, a.PLACE]) // f.LEAF, np.int64(store.where[row, a.PLACE]) % f.LEAF
    write_row(store, row, leaf, place, store.leaves.lines[leaf, f.LEAF_GUARD], scratch, hashed, False)

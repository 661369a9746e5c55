"""Helpers of kernels that compare an event with the rows of one block, or one leaf; the arrays are drawn in
`cluster/arrays.py`.

Rows are compared by codes, one after the other where each tests columns of its own, in vectors where all test
the same column first; what codes leave open is compared with the bounds.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.arrays import (
    BLOCK_COUNT,
    MOST,
    NARROW,
    NONE,
    SIGN_SIZE,
    SIGN_TESTS,
    TABLE_HEAD,
    TABLE_TESTS,
    TEST_COLUMN,
    TEST_FIELDS,
)
from covey.matcher.engines.cluster.code_kernels import high_bound, low_bound
from covey.matcher.engines.cluster.leaves.arrays import RECORD
from covey.matcher.engines.cluster.leaves.match_kernels import combine_bitmaps, compare_codes
from covey.matcher.engines.cluster.slot_kernels import capacity_of, column_at, low_at, row_at, tests_of
from covey.matcher.engines.rows.kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import inlined

STEP = 256
FEW = 48
"""Rows of a block up to which vectors do not pay."""


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
    """The places of a block whose rows match an event, one row after the other; returns how many."""
    capacity, tests, found = capacity_of(store, block), tests_of(store, block), 0
    for p in range(store.blocks[block, BLOCK_COUNT]):
        row = store.words[row_at(store, block, capacity) + p]
        doubt = row < 0
        t = 0
        while t < tests:
            at = low_at(store, block, capacity, t) + p
            code = np.int64(codes[e, store.bytes[column_at(store, block, capacity, tests, t) + p]])
            low, high = np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity])
            if code < low or code > high:
                break
            doubt |= doubtful(code, low, high)
            t += 1
        if t == tests and (not doubt or passes_bounds(store, row if row >= 0 else ~row, keys, e)):
            hits[found] = p
            found += 1
    return found


@inlined
def pass_first(store, block, table, event, flags, words, hits):  # type: ignore[no-untyped-def]
    """The places of a block whose rows pass their first test; returns how many."""
    count, capacity = np.int64(store.blocks[block, BLOCK_COUNT]), capacity_of(store, block)
    first = low_at(store, block, capacity, 0)
    lows, highs = store.shorts[first : first + MOST], store.shorts[first + capacity : first + capacity + MOST]
    head = store.tables[table, TABLE_HEAD]
    if head != NONE and count >= FEW:
        flag_alike(lows, highs, event[head], count, flags)
    else:
        first = column_at(store, block, capacity, tests_of(store, block), 0)
        flag_each(store.bytes[first : first + MOST], lows, highs, event, count, flags)
    for p in range(count, (count + 7) & ~7):
        flags[p] = 0
    passed = np.int64(0)
    for w in range((count + 7) >> 3):
        if words[w] != 0:
            for p in range(8 * w, 8 * w + 8):
                hits[passed] = p
                passed += np.int64(flags[p])
    return passed


@inlined
def pass_second(store, block, tests, event, passed, hits):  # type: ignore[no-untyped-def]
    """Of so many places of a block those whose rows pass their second test, found without branches; returns
    twice how many, and one more where a code leaves some in doubt.
    """
    capacity = capacity_of(store, block)
    first = low_at(store, block, capacity, 1)
    lows, highs = store.shorts[first : first + MOST], store.shorts[first + capacity :]
    first = column_at(store, block, capacity, tests, 1)
    columns = store.bytes[first : first + MOST]
    left, odd = np.int64(0), np.int64(0)
    for i in range(passed):
        place = np.int64(hits[i])
        code = event[columns[place]]
        hits[left] = place
        passes = np.int64(lows[place] <= code) & np.int64(code <= highs[place])
        odd |= passes & np.int64(code)
        left += passes
    return 2 * left + (odd & 1)


@inlined
def search_block(store, block, table, whole, keys, codes, e, flags, words, hits):  # type: ignore[no-untyped-def]
    """The places of a block whose rows match an event; returns how many. `whole`: all pass their first test,
    without a doubt.
    """
    event = codes[e]
    tests, head = store.tables[table, TABLE_TESTS], store.tables[table, TABLE_HEAD]
    sure = whole or tests == 0 or (head != NONE and event[head] & 1 == 0)  # about the first test
    if whole or tests == 0:
        passed = np.int64(store.blocks[block, BLOCK_COUNT])
        for p in range(passed):
            hits[p] = p
    else:
        passed = pass_first(store, block, table, event, flags, words, hits)
    if tests <= 1 and sure:
        return passed
    if tests > 1:
        passed = pass_second(store, block, tests, event, passed, hits)
        odd, passed = passed & 1 != 0, passed >> 1
        if tests == 2 and sure and not odd:
            return passed
    capacity, found = capacity_of(store, block), np.int64(0)
    rows, columns = row_at(store, block, capacity), column_at(store, block, capacity, tests, 0)
    lows = low_at(store, block, capacity, 0)
    highs = lows + capacity
    for i in range(passed):
        place = np.int64(hits[i])
        doubt = tests == NARROW and store.words[rows + place] < 0
        if not sure:
            code = np.int64(event[store.bytes[columns + place]])
            doubt |= doubtful(
                code, np.int64(store.shorts[lows + place]), np.int64(store.shorts[highs + place])
            )
        t = 1
        while t < tests:
            at = low_at(store, block, capacity, t) + place
            code = np.int64(event[store.bytes[column_at(store, block, capacity, tests, t) + place]])
            low, high = np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity])
            if code < low or code > high:
                break
            doubt |= doubtful(code, low, high)
            t += 1
        if t < tests:
            continue
        if doubt:
            row = store.words[rows + place]
            if not passes_bounds(store, row if row >= 0 else ~row, keys, e):
                continue
        hits[found] = place
        found += 1
    return found


@inlined
def search_leaf(store, leaf, keys, codes, e, buffers):  # type: ignore[no-untyped-def]
    """The places of a leaf's rows that match an event, to buffers.hits; returns how many."""
    event, records, hits = codes[e], store.leaves.records, buffers.hits
    found = np.int64(0)
    for i in range(combine_bitmaps(store.leaves, leaf, buffers)):
        place = hits[i]
        tested = records[RECORD * place + 1]
        here = compare_codes(tested, records[RECORD * place + 2], event, 0)
        there = compare_codes(tested, records[RECORD * place + 3], event, 1)
        hits[found] = place
        if here & there & 1 != 0 and ((here | there) & 2 != 0 or tested < 0):
            row = tested >> 32
            found += np.int64(passes_bounds(store, row if row >= 0 else ~row, keys, e))
        else:
            found += here & there & 1
    return found

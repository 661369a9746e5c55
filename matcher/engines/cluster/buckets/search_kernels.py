"""Helpers of kernels that compare an event with the rows of one block.

Codes are compared row by row where each row tests columns of its own, and in vectors where all test the same
column first; exact bounds are compared where codes leave rows undecided.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import (
    capacity_of,
    column_at,
    low_at,
    row_at,
    tests_of,
)
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.word_kernels import passes_bounds
from covey.matcher.jit.kernel import inlined

STEP = 256
FEW = 48
"""Rows of a block up to which vectors do not pay."""


@inlined
def is_undecided(code, low, high):  # type: ignore[no-untyped-def]
    """Whether a bound lies between the same cuts as a code that passes."""
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
    """As `flag_alike`, every row by the code of its own column; without branches, which would be
    mispredicted.
    """
    for p in range(count):
        code = codes[columns[p]]
        flags[p] = np.uint8(lows[p] <= code) & np.uint8(code <= highs[p])


@inlined
def search_plainly(store, block, keys, codes, e, hits):  # type: ignore[no-untyped-def]
    """The places of a block whose rows match an event, one row after the other; returns how many."""
    capacity, tests, matched = capacity_of(store, block), tests_of(store, block), 0
    for p in range(store.blocks[block, a.BLOCK_COUNT]):
        row = store.words[row_at(store, block, capacity) + p]
        undecided = row < 0
        t = 0
        while t < tests:
            at = low_at(store, block, capacity, t) + p
            code = np.int64(codes[e, store.bytes[column_at(store, block, capacity, tests, t) + p]])
            low, high = np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity])
            if code < low or code > high:
                break
            undecided |= is_undecided(code, low, high)
            t += 1
        if t == tests and (not undecided or passes_bounds(store, row if row >= 0 else ~row, keys, e)):
            hits[matched] = p
            matched += 1
    return matched


@inlined
def pass_first(store, block, table, event, buffers):  # type: ignore[no-untyped-def]
    """The places of a block whose rows pass their first test; returns how many."""
    flags, words, hits = buffers.flags, buffers.words, buffers.hits
    count, capacity = np.int64(store.blocks[block, a.BLOCK_COUNT]), capacity_of(store, block)
    first = low_at(store, block, capacity, 0)
    lows, highs = (
        store.shorts[first : first + a.MOST],
        store.shorts[first + capacity : first + capacity + a.MOST],
    )
    head = store.tables[table, a.TABLE_HEAD]
    if head != a.NONE and count >= FEW:
        flag_alike(lows, highs, event[head], count, flags)
    else:
        first = column_at(store, block, capacity, tests_of(store, block), 0)
        flag_each(store.bytes[first : first + a.MOST], lows, highs, event, count, flags)
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
    """Of so many places of a block those whose rows pass their second test, matched without branches; returns
    twice how many, and one more where a code leaves some undecided.
    """
    capacity = capacity_of(store, block)
    first = low_at(store, block, capacity, 1)
    lows, highs = store.shorts[first : first + a.MOST], store.shorts[first + capacity :]
    first = column_at(store, block, capacity, tests, 1)
    columns = store.bytes[first : first + a.MOST]
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
def search_block(store, block, table, whole, keys, codes, e, buffers):  # type: ignore[no-untyped-def]
    """The places of a block whose rows match an event; returns how many. `whole`: all pass their first test,
    without a undecided.
    """
    event, hits = codes[e], buffers.hits
    tests, head = store.tables[table, a.TABLE_TESTS], store.tables[table, a.TABLE_HEAD]
    sure = whole or tests == 0 or (head != a.NONE and event[head] & 1 == 0)  # about the first test
    if whole or tests == 0:
        passed = np.int64(store.blocks[block, a.BLOCK_COUNT])
        for p in range(passed):
            hits[p] = p
    else:
        passed = pass_first(store, block, table, event, buffers)
    if tests <= 1 and sure:
        return passed
    if tests > 1:
        passed = pass_second(store, block, tests, event, passed, hits)
        odd, passed = passed & 1 != 0, passed >> 1
        if tests == 2 and sure and not odd:
            return passed
    capacity, matched = capacity_of(store, block), np.int64(0)
    rows, columns = row_at(store, block, capacity), column_at(store, block, capacity, tests, 0)
    lows = low_at(store, block, capacity, 0)
    highs = lows + capacity
    for i in range(passed):
        place = np.int64(hits[i])
        undecided = tests == a.NARROW and store.words[rows + place] < 0
        if not sure:
            code = np.int64(event[store.bytes[columns + place]])
            undecided |= is_undecided(
                code, np.int64(store.shorts[lows + place]), np.int64(store.shorts[highs + place])
            )
        t = 1
        while t < tests:
            at = low_at(store, block, capacity, t) + place
            code = np.int64(event[store.bytes[column_at(store, block, capacity, tests, t) + place]])
            low, high = np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity])
            if code < low or code > high:
                break
            undecided |= is_undecided(code, low, high)
            t += 1
        if t < tests:
            continue
        if undecided:
            row = store.words[rows + place]
            if not passes_bounds(store, row if row >= 0 else ~row, keys, e):
                continue
        hits[matched] = place
        matched += 1
    return matched

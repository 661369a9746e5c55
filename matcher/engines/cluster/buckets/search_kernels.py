"""Helpers of kernels that compare an event with the rows of one block.

Tests that all rows of a table have on one column are compared in vectors, the others one by one, each on the
rows left. Exact bounds are compared where codes leave rows undecided.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import (
    capacity_of,
    column_at,
    low_at,
    row_at,
)
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.code_kernels import passes_bounds
from covey.matcher.jit.kernel import inlined

ONE = np.uint8(1)
STEP = 64
FEW = 16  # rows of a block up to which vectors do not pay


@inlined
def is_undecided(code, low, high):  # type: ignore[no-untyped-def]
    """Whether a bound lies between the same cuts as a code that passes."""
    return (code & 1 != 0) & ((code == low) | (code == high))


@inlined
def flag_alike(lows, highs, code, count, fresh, odd, flags):  # type: ignore[no-untyped-def]
    """Flag rows whose ends include a code: 1, or 3 where an end is the code itself and `odd` is 1. Writes
    flags of `count` rows and a few more; flags of 0 stay so unless `fresh` is 1. Slices of a fixed length
    become vector instructions.
    """
    for start in range(0, count, STEP):
        low, high, flag = lows[start : start + STEP], highs[start : start + STEP], flags[start : start + STEP]
        for i in range(STEP):
            passes = (flag[i] | fresh) & np.uint8(low[i] <= code) & np.uint8(code <= high[i]) & ONE
            edge = (np.uint8(low[i] == code) | np.uint8(high[i] == code)) & odd
            flag[i] = passes | ((((flag[i] >> ONE) & (fresh ^ ONE)) | edge) & passes) << ONE


@inlined
def flag_each(columns, lows, highs, codes, count, flags):  # type: ignore[no-untyped-def]
    """Flag rows by the codes of their own columns: 1 or 0, never 3. Branches would be mispredicted."""
    for p in range(count):
        code = codes[columns[p]]
        flags[p] = np.uint8(lows[p] <= code) & np.uint8(code <= highs[p])


@inlined
def column_of(store, table, test):  # type: ignore[no-untyped-def]
    """The column that all rows of a table have that test on; negative where they differ."""
    return store.tables[table, a.TABLE_COLUMNS + test] - 1


@inlined
def flag_tests(store, block, table, start, stop, event, flags):  # type: ignore[no-untyped-def]
    """As `flag_alike`, by the tests start:stop of a block's rows, each on one column."""
    count, capacity = np.int64(store.blocks[block, a.BLOCK_COUNT]), capacity_of(store, block)
    for test in range(start, stop):
        first = low_at(store, block, capacity, test)
        code = event[min(column_of(store, table, test), event.size - 1)]  # rows that had the test may be gone
        flag_alike(
            store.shorts[first : first + a.MOST],
            store.shorts[first + capacity : first + capacity + a.MOST],
            code,
            count,
            np.uint8(test == start),
            np.uint8(code & 1),
            flags,
        )


@inlined
def list_flagged(count, flags, words, hits):  # type: ignore[no-untyped-def]
    """Write the flagged places below `count` to `hits`; returns how many."""
    for p in range(count, (count + 7) & ~7):
        flags[p] = 0
    passed = np.int64(0)
    for w in range((count + 7) >> 3):
        if words[w] != 0:
            for p in range(8 * w, 8 * w + 8):
                hits[passed] = p
                passed += np.int64(flags[p] & 1)
    return passed


@inlined
def pass_test(store, block, tests, test, event, passed, hits):  # type: ignore[no-untyped-def]
    """Keep the hits that pass a test; returns twice how many, plus one where codes leave some undecided."""
    capacity = capacity_of(store, block)
    first = low_at(store, block, capacity, test)
    lows, highs = store.shorts[first : first + a.MOST], store.shorts[first + capacity :]
    first = column_at(store, block, capacity, tests, test)
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
def pass_exactly(store, block, flagged, start, tests, keys, codes, e, passed, buffers):  # type: ignore[no-untyped-def]
    """Keep the hits that pass exactly; returns how many. `flagged`: flags are of the tests before `start`."""
    capacity, matched, hits = capacity_of(store, block), np.int64(0), buffers.hits
    rows = row_at(store, block, capacity)
    for i in range(passed):
        place = np.int64(hits[i])
        undecided = (flagged and buffers.flags[place] > 1) or (
            tests == a.NARROW and store.words[rows + place] < 0
        )
        for test in range(start, tests):
            at = low_at(store, block, capacity, test) + place
            code = np.int64(codes[e, store.bytes[column_at(store, block, capacity, tests, test) + place]])
            undecided |= is_undecided(code, np.int64(store.shorts[at]), np.int64(store.shorts[at + capacity]))
        if undecided:
            row = store.words[rows + place]
            if not passes_bounds(store, row if row >= 0 else ~row, keys, e):
                continue
        hits[matched] = place
        matched += 1
    return matched


@inlined
def search_block(store, block, table, whole, listed, keys, codes, e, buffers):  # type: ignore[no-untyped-def]
    """How many rows match, in buffers.hits if `listed`; `whole`: all certainly pass their first test."""
    event, hits, flags = codes[e], buffers.hits, buffers.flags
    count, tests = np.int64(store.blocks[block, a.BLOCK_COUNT]), store.tables[table, a.TABLE_TESTS]
    start, alike = np.int64(whole), np.int64(0)
    while alike < tests and column_of(store, table, alike) >= 0:
        alike += 1
    passed, odd = count, np.int64(0)
    flagged = alike > start and count >= FEW
    if flagged:
        flag_tests(store, block, table, start, alike, event, flags)
        start, edges = alike, np.int64(0)
        for p in range(count):
            edges |= np.int64(flags[p])
        odd = edges >> 1
        if not listed and start == tests and odd == 0 and tests < a.NARROW:
            passed = np.int64(0)
            for p in range(count):
                passed += np.int64(flags[p])
            return passed
        passed = list_flagged(count, flags, buffers.words, hits) if edges != 0 else np.int64(0)
    elif start < min(tests, 1):
        capacity = capacity_of(store, block)
        first = column_at(store, block, capacity, tests, 0)
        columns = store.bytes[first : first + a.MOST]
        first = low_at(store, block, capacity, 0)
        lows, highs = store.shorts[first : first + a.MOST], store.shorts[first + capacity :]
        flag_each(columns, lows, highs, event, count, flags)
        passed, odd = list_flagged(count, flags, buffers.words, hits), np.int64(1)
    else:
        for p in range(count):
            hits[p] = p
    test = start if flagged else max(start, min(tests, 1))
    while test < tests:
        passed = pass_test(store, block, tests, test, event, passed, hits)
        odd, passed, test = odd | passed & 1, passed >> 1, test + 1
    if odd == 0 and tests < a.NARROW:
        return passed
    return pass_exactly(store, block, flagged, start, tests, keys, codes, e, passed, buffers)

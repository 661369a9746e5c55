"""Kernels that measure rows and buckets for tuning: bounds, ranges, and how often buckets are searched."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.buckets.block_kernels import capacity_of, row_at
from covey.matcher.engines.cluster.buckets.zone_kernels import nth_block
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.code_kernels import HASHED, code_row, nth_bound
from covey.matcher.engines.cluster.match_kernels import QUEUE_BUCKET, enqueue, find_queued
from covey.matcher.engines.cluster.placing_kernels import choose_ranges
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import array, float64, frozen, int64, kernel, uint16


@kernel(a.STORE, int64, int64, int64, frozen(int64), frozen(int64), array(int64), array(int64))
def sample_bounds(store, start, stop, step, every, starts, samples, counts):  # type: ignore[no-untyped-def]
    """Add the bounds on column c of every `step`-th row of start:stop to counts[c]; write one in every[c] of
    them to samples[starts[c]:starts[c + 1]], if there are samples.
    """
    for row in range(start, stop, step):
        if store.where[row, a.PLACE] == a.ABSENT:
            continue
        signature, place = store.rows[row, ROW_SIGNATURE], store.rows[row, ROW_PLACE]
        for test in range(store.signatures[signature, a.SIGN_SIZE]):
            line = a.SIGN_TESTS + a.TEST_FIELDS * test
            column = store.signatures[signature, line + a.TEST_COLUMN]
            if column >= counts.size:
                continue
            for end in range(2 if store.signatures[signature, line + a.TEST_SHAPE] == a.BOTH else 1):
                if samples.size > 0 and counts[column] % every[column] == 0:
                    at = starts[column] + counts[column] // every[column]
                    if at < starts[column + 1]:
                        samples[at] = nth_bound(store, signature, place, test, end)
                counts[column] += 1
    return 0


@kernel(a.STORE, frozen(int64), array(int64), array(int64, 2))
def sample_ranges(store, rows, scratch, ranges):  # type: ignore[no-untyped-def]
    """ranges[i] = column (NONE for none), width in codes, width as a part of 2**16 of row i's narrowest
    range; the same of the second; then, as a part of 2**30, the events that pass all its tests, with bins of
    a 16th.
    """
    for i in range(rows.size):
        code_row(store, rows[i], scratch)
        choose_ranges(store, rows[i], scratch)
        line = store.signatures[store.rows[rows[i], ROW_SIGNATURE]]
        for r in range(2):
            test = scratch[r]
            ranges[i, 3 * r] = a.NONE
            if test != a.NONE:
                ranges[i, 3 * r] = line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN]
                ranges[i, 3 * r + 1] = scratch[HASHED + 2 * test + 1] - scratch[HASHED + 2 * test]
                ranges[i, 3 * r + 2] = scratch[2 + r]
        passed = 1.0
        for test in range(line[a.SIGN_SIZE]):
            column = line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN]
            if column < a.NARROW_COLUMNS:
                width = scratch[HASHED + 2 * test + 1] - scratch[HASHED + 2 * test]
                passed *= min(1.0, max(width, 0) / (2 * store.coding[column, a.CODE_COUNT] + 4) + 0.0625)
        ranges[i, 6] = np.int64(passed * 2**30)
    return 0


@kernel(a.STORE, frozen(int64, 2), frozen(uint16, 2), array(int64, 2), array(int64, 2), array(int64))
def count_probes(store, keys, codes, probe, queue, probed):  # type: ignore[no-untyped-def]
    """Add to probed[b] how many of the events search bucket b; `probe` and `queue` are working memory."""
    for e in range(keys.shape[0]):
        for table in range(store.state[a.TABLES]):
            if store.tables[table, a.TABLE_BUCKETS] > 0:
                queued = enqueue(store, table, keys, codes, e, False, probe, queue, np.int64(0))
                for q in range(find_queued(store, queued, False, queue)):
                    probed[queue[q, QUEUE_BUCKET]] += 1
    return 0


@kernel(a.STORE, frozen(int64), int64, int64, float64, array(float64))
def count_checks(store, probed, start, stop, least, checks):  # type: ignore[no-untyped-def]
    """Add to checks[s] how often rows of signature s are checked if bucket b is searched probed[b] times, in
    those buckets of start:stop with at least `least` checks; returns how many rows these have.
    """
    looked_at = np.int64(0)
    for bucket in range(start, stop):
        if store.buckets[bucket, a.BUCKET_TABLE] == a.NONE or probed[bucket] == 0:
            continue
        rows, number = np.int64(0), np.int64(0)
        block = nth_block(store, bucket, np.int64(a.NONE), number)
        while block != a.NONE:
            rows += store.blocks[block, a.BLOCK_COUNT]
            number += 1
            block = nth_block(store, bucket, block, number)
        if rows * probed[bucket] < least:
            continue
        looked_at += rows
        number = np.int64(0)
        block = nth_block(store, bucket, np.int64(a.NONE), number)
        while block != a.NONE:
            first = row_at(store, block, capacity_of(store, block))
            for p in range(store.blocks[block, a.BLOCK_COUNT]):
                row = store.words[first + p]
                signature = store.rows[row if row >= 0 else ~row, ROW_SIGNATURE]
                if signature < checks.size:
                    checks[signature] += probed[bucket]
            number += 1
            block = nth_block(store, bucket, block, number)
    return looked_at

"""Moving rows from one arrangement to another, in steps.

First the order in which rows will be placed is found, so that rows of one bucket, or of neighbouring leaves,
come one after the other: then a bucket has room for exactly its rows. Rows that change in between move at
once, those that are new are placed in the new arrangement. Invariant: a row is in one arrangement, or waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning.steps import STEP, Steps, parts
from covey.matcher.engines.rows.arrays import Numbers

_KEPT_TESTS = 8
"""Tests of a row whose codes are kept until it is placed."""
_CHUNK = 1 << 14
_MOST_CHUNKS = 64
"""Rows are sorted by their order in chunks; each is found by a pass over all rows."""
_SAMPLE = 4096
_ROWS_PER_STEP = STEP // 4
_SCANNED_PER_UNIT, _SORTED_PER_UNIT = 512, 8


def move_rows(former: Arrangement | None, target: Arrangement, row_top: int, most_tests: int) -> Steps[None]:
    """Move all rows below `row_top` from `former` to `target`, or those that wait where that is None; they
    have up to `most_tests` tests.
    """
    codes = np.empty((row_top, 2 * min(most_tests, _KEPT_TESTS)), dtype=np.uint16)
    orders = np.empty(row_top, dtype=np.int64)
    for start, stop in parts(0, row_top, _ROWS_PER_STEP):
        target.order(start, stop, codes, orders)
        yield stop - start
    target.reserve_leaves(int(np.count_nonzero(orders >= k.IN_LEAVES)))
    for rows in _chunks(orders, at_once=former is None):
        yield len(orders) // _SCANNED_PER_UNIT + len(rows) // _SORTED_PER_UNIT
        sizes = _run_lengths(orders[rows])
        for start, stop in parts(0, len(rows), _ROWS_PER_STEP):
            some, room = rows[start:stop], sizes[start:stop]
            if former is not None:
                where = former.arrays.where[some]
                stayed = (where[:, a.PLACE] >= 0) & (
                    where[:, a.BLOCK] & 1 == int(former.arrays.state[a.GENERATION])
                )
                some, room = some[stayed], room[stayed]
                former.remove(some, a.WAITING)
            target.place(some, codes, room)
            yield 2 * (stop - start)


def _chunks(orders: Numbers, *, at_once: bool) -> Iterator[Numbers]:
    """The rows that have an order, in it, in chunks; those of one order are in one chunk."""
    count = 1 if at_once else max(1, min(_MOST_CHUNKS, len(orders) // _CHUNK))
    sample = np.sort(orders[:: max(1, len(orders) // _SAMPLE)])
    limits = np.unique(sample[np.arange(1, count) * len(sample) // count]) if len(sample) else sample
    limits = limits[limits > 0]
    for low, high in zip([0, *limits.tolist()], [*limits.tolist(), None], strict=True):
        chosen = orders >= low
        rows = np.flatnonzero(chosen if high is None else chosen & (orders < high))
        yield rows[np.argsort(orders[rows], kind="stable")]


def _run_lengths(values: Numbers) -> Numbers:
    """How often each value stands in its run of equal ones."""
    ends = np.append(np.flatnonzero(np.diff(values)) + 1, len(values))
    lengths = np.diff(ends, prepend=0)
    return np.repeat(lengths, lengths)

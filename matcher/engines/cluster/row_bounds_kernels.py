"""Kernels that write and read the exact bounds of rows; the arrays are drawn in `layout/arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.code_kernels import (
    fits,
    high_bound,
    low_bound,
    read_bound,
    write_bound,
)
from covey.matcher.engines.cluster.placing_kernels import PREFETCH_DISTANCE
from covey.matcher.engines.rows.row_kernels import ROW_FIELDS, ROW_PLACE, ROW_SIGNATURE
from covey.matcher.events.int64 import NOTHING
from covey.matcher.jit.kernel import array, frozen, int32, int64, kernel, prefetch, uint8


@kernel(frozen(int32, 2), int64, frozen(int64, 2), frozen(int64, 2), array(uint8))
def find_widths(signatures, signature, lows, highs, widths):  # type: ignore[no-untyped-def]
    """widths[i] = the least variant that holds lows[t, i] and highs[t, i]; returns the highest."""
    highest = np.int64(a.ONE_BYTE)
    for i in range(widths.size):
        widths[i] = a.ONE_BYTE
    for t in range(lows.shape[0]):
        if signatures[signature, a.SIGN_TESTS + a.TEST_FIELDS * t + a.TEST_VARIES] != 0:
            for i in range(widths.size):
                while widths[i] < a.EIGHT_BYTES and not (
                    fits(lows[t, i], 1 << np.int64(widths[i])) and fits(highs[t, i], 1 << np.int64(widths[i]))
                ):
                    widths[i] += 1
                highest = max(highest, np.int64(widths[i]))
    return highest


@kernel(array(int32, 2), array(int32, 2), frozen(int32, 2), array(uint8), frozen(int64), frozen(int64),
        frozen(int64, 2), frozen(int64, 2))  # fmt: skip
def insert_rows(row_table, where, signatures, bounds, rows, places, lows, highs):  # type: ignore[no-untyped-def]
    """Set the places of rows of one signature, and write lows[t, i] and highs[t, i] there; they wait."""
    for i in range(rows.size):
        row_table[rows[i], ROW_PLACE] = places[i]
        where[rows[i], a.PLACE] = a.WAITING
    signature = row_table[rows[0], ROW_SIGNATURE]
    for t in range(lows.shape[0]):
        line = a.SIGN_TESTS + a.TEST_FIELDS * t
        shape, byte = signatures[signature, line + a.TEST_SHAPE], signatures[signature, line + a.TEST_BYTE]
        width = signatures[signature, line + a.TEST_WIDTH]
        for i in range(rows.size):
            at = places[i] + byte
            if shape <= a.FIXED:
                write_bound(bounds, at, width, lows[t, i] if lows[t, i] == highs[t, i] else np.int64(NOTHING))
            if shape in (a.LOW, a.BOTH):
                write_bound(bounds, at, width, lows[t, i])
            if shape in (a.HIGH, a.BOTH):
                write_bound(bounds, at + (width if shape == a.BOTH else 0), width, highs[t, i])
    return 0


@kernel(frozen(int32, 2), frozen(int32, 2), array(uint8), frozen(int64), frozen(int64), frozen(int64, 2),
        array(int64))  # fmt: skip
def write_bounds(row_table, signatures, bounds, rows, parts, values, moves):  # type: ignore[no-untyped-def]
    """Write bounds values[p, i], as `RowStore.write_parts`; returns how many are not written because they do
    not fit. An equality whose ends differ holds for nothing; moves[c] counts the new values of equalities on
    column c. Three arrays, not the store: unpacking it costs more than writing one bound.
    """
    unwritten = 0
    for p in range(parts.size):
        line = a.SIGN_TESTS + a.TEST_FIELDS * ((parts[p] - 1) >> 1)
        is_high = parts[p] & 1 == 0
        for i in range(rows.size):
            if i + PREFETCH_DISTANCE < rows.size:
                prefetch(row_table, ROW_FIELDS * rows[i + PREFETCH_DISTANCE])
                prefetch(bounds, row_table[rows[i + PREFETCH_DISTANCE // 2], ROW_PLACE])
            signature = row_table[rows[i], ROW_SIGNATURE]
            at = row_table[rows[i], ROW_PLACE] + signatures[signature, line + a.TEST_BYTE]
            shape, width = (
                signatures[signature, line + a.TEST_SHAPE],
                signatures[signature, line + a.TEST_WIDTH],
            )
            if shape == a.BOTH and is_high:
                at += width
            if shape == a.EQUAL and not is_high:
                moves[signatures[signature, line + a.TEST_COLUMN]] += 1
            if not fits(values[p, i], width):
                unwritten += 1
            elif shape <= a.FIXED and is_high and read_bound(bounds, at, width) != values[p, i]:
                write_bound(bounds, at, width, np.int64(NOTHING))
            else:
                write_bound(bounds, at, width, values[p, i])
    return unwritten


@kernel(a.STORE, frozen(int64), array(int64, 2), array(int64, 2))
def read_bounds(store, rows, lows, highs):  # type: ignore[no-untyped-def]
    """The bounds lows[t, i], highs[t, i] of rows with as many tests as `lows` has lines."""
    for i in range(rows.size):
        signature, place = store.rows[rows[i], ROW_SIGNATURE], store.rows[rows[i], ROW_PLACE]
        for t in range(lows.shape[0]):
            lows[t, i] = low_bound(store, signature, place, t)
            highs[t, i] = high_bound(store, signature, place, t)
    return 0

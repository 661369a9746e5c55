"""Kernels of the scan: every subscription is compared with every event, column by column.

Rows lie in groups with the same first tests (up to three, on the same columns and of the same kind). Bounds
are narrow codes, which compare exactly as keys do; one byte serves a column with up to 255 distinct bounds:

    members [ row row row -1 -1 | row row ... ]      group 0 | group 1 ...; -1 where there is none
    bytes   [ lo of test 0 ... | hi of test 0 ... | ... ]       one memory, seen as words of 8, 16 and 32 bits
    tails   [ column lo hi | column lo hi | ... ]    tests beyond the third; member m's from starts[m] on
    groups  [ first count slots | column kind width lo hi | column kind width lo hi | ... ]

A block of 1,024 rows is compared by vector instructions into one byte per row. Once few rows are left, they
are finished one by one, on the remaining columns and their tails (on the row's own bounds instead, which cost
four cache misses each, BOX took half as long again). Blocks of 256 rows were up to a fifth slower (W0,
100,000), blocks of 64 rows half as fast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.store_kernels import ROWS, finish_event
from covey.matcher.events.int64 import FIRST
from covey.matcher.jit.kernel import (
    array,
    frozen,
    inlined,
    int32,
    int64,
    kernel,
    record,
    uint8,
    uint16,
    uint32,
    uint64,
)

BLOCK = 1024
SLOTS = 3
STEP = 64  # groups have room for a multiple of this many rows
ROW_COST = 64  # bytes of a column that are compared in the time of one row by itself

GROUP_FIRST, GROUP_COUNT, GROUP_SLOTS, GROUP_SLOT = range(4)
SLOT_COLUMN, SLOT_KIND, SLOT_WIDTH, SLOT_LOW, SLOT_HIGH = range(5)
SLOT_FIELDS = 5
GROUP_FIELDS = GROUP_SLOT + SLOTS * SLOT_FIELDS

EQUAL, RANGE, BELOW, ABOVE = range(4)
"""Kinds of a slot: lo = hi and one column of codes; both ends; only hi; only lo."""

EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
EVERY_SHORT = np.uint64(0x0001000100010001)
BYTE_NUMBERS = np.uint64(0x0001020304050607)  # times 2**(8 * i), its highest byte is i


class Scan(NamedTuple):
    groups: npt.NDArray[np.int64]  # [groups, GROUP_FIELDS]
    starts: npt.NDArray[np.int32]  # [members + 1]
    tails: npt.NDArray[np.int64]  # [tests after the third, 3]
    bytes: npt.NDArray[np.uint8]
    shorts: npt.NDArray[np.uint16]  # the memory of `bytes`
    words: npt.NDArray[np.uint32]  # the memory of `bytes`
    coding: npt.NDArray[np.int64]  # [columns, 3]: is linear, first cut or base, how many
    cuts: npt.NDArray[np.int64]
    tops: npt.NDArray[np.int64]  # [columns]: the largest key of a value


SCAN = record(
    [array(int64, 2), array(int32), array(int64, 2), array(uint8), array(uint16), array(uint32),
     array(int64, 2), array(int64), array(int64)],
    Scan,
)  # fmt: skip


@inlined
def code_of(scan, column, key):  # type: ignore[no-untyped-def]
    count = scan.coding[column, 2]
    if scan.coding[column, 0] == 1:
        base = scan.coding[column, 1]
        if key >= base + count - 1:  # before a difference that might not fit 64 bits
            return count
        return np.int64(0) if key < base else key - base + 1
    start = scan.coding[column, 1]
    end = start + count
    low = start
    while low < end:
        middle = (low + end) >> 1
        if scan.cuts[middle] <= key:
            low = middle + 1
        else:
            end = middle
    return low - start


@inlined
def compare(pool, low, high, kind, code, count, fresh, ok):  # type: ignore[no-untyped-def]
    """ok[i] = (fresh or ok[i]) and code is within the bounds of row i, for `count` rows, a multiple of STEP.
    Slices of a fixed length become vector instructions; computed indices would not, since Numba checks their
    sign.
    """
    for step in range(0, count, STEP):
        lows, highs = pool[low + step : low + step + STEP], pool[high + step : high + step + STEP]
        left = ok[step : step + STEP]
        if kind == EQUAL:
            for i in range(STEP):
                left[i] = (left[i] | fresh) & np.uint8(lows[i] == code)
        elif kind == BELOW:
            for i in range(STEP):
                left[i] = (left[i] | fresh) & np.uint8(code <= highs[i])
        elif kind == ABOVE:
            for i in range(STEP):
                left[i] = (left[i] | fresh) & np.uint8(lows[i] <= code)
        else:
            for i in range(STEP):
                left[i] = (left[i] | fresh) & np.uint8(lows[i] <= code) & np.uint8(code <= highs[i])


@inlined
def count_ones(ok_words):  # type: ignore[no-untyped-def]
    """How many bytes, each 0 or 1, are 1 in at most 255 words."""
    total = np.uint64(0)
    for w in range(ok_words.size):
        total += ok_words[w]
    total = (total & EVEN_BYTES) + ((total >> np.uint64(8)) & EVEN_BYTES)
    return np.int64((total * EVERY_SHORT) >> np.uint64(48))


@inlined
def within(pool, low, high, kind, code):  # type: ignore[no-untyped-def]
    if kind == EQUAL:
        return pool[low] == code
    if kind == BELOW:
        return code <= pool[high]
    if kind == ABOVE:
        return pool[low] <= code
    return pool[low] <= code and code <= pool[high]


@inlined
def tail_passes(starts, tails, member, keys, e):  # type: ignore[no-untyped-def]
    """Whether event e passes the tests of a member beyond its group's columns."""
    for t in range(starts[member], starts[member + 1]):
        key = keys[e, tails[t, 0]]
        if key < tails[t, 1] or key > tails[t, 2]:
            return False
    return True


@inlined
def slots_pass(scan, g, slot, position, codes):  # type: ignore[no-untyped-def]
    """Whether the row at a position passes the group's tests from `slot` on."""
    while slot < scan.groups[g, GROUP_SLOTS]:
        s = GROUP_SLOT + slot * SLOT_FIELDS
        low, high = scan.groups[g, s + SLOT_LOW] + position, scan.groups[g, s + SLOT_HIGH] + position
        kind, width = scan.groups[g, s + SLOT_KIND], scan.groups[g, s + SLOT_WIDTH]
        code = codes[scan.groups[g, s + SLOT_COLUMN]]
        if width == 1:
            passed = within(scan.bytes, low, high, kind, np.uint8(code))
        elif width == 2:
            passed = within(scan.shorts, low, high, kind, np.uint16(code))
        else:
            passed = within(scan.words, low, high, kind, np.uint32(code))
        if not passed:
            return False
        slot += 1
    return True


@inlined
def may_pass(scan, g, keys, e):  # type: ignore[no-untyped-def]
    """Whether the event's values are present and not NaN, as one-sided tests of a group assume."""
    for slot in range(scan.groups[g, GROUP_SLOTS]):
        s = GROUP_SLOT + slot * SLOT_FIELDS
        kind, column = scan.groups[g, s + SLOT_KIND], scan.groups[g, s + SLOT_COLUMN]
        if kind == BELOW and keys[e, column] < FIRST:
            return False
        if kind == ABOVE and keys[e, column] > scan.tops[column]:
            return False
    return True


@kernel(
    SCAN, ROWS, frozen(int64, 2), int64, int64,
    array(int64), array(uint8), array(uint64), array(int64), array(int64),
)  # fmt: skip
def scan_events(  # type: ignore[no-untyped-def]
    scan, rows, keys, start, room, codes, ok, ok_words, offsets, found
):
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows.
    `codes` has a place per column, `ok` BLOCK bytes; `ok_words` is the same memory.
    """
    for e in range(start, keys.shape[0]):
        end = offsets[e]
        if end + room > found.size:
            return e
        for column in range(scan.coding.shape[0]):
            codes[column] = code_of(scan, column, keys[e, column])
        for g in range(scan.groups.shape[0]):
            if not may_pass(scan, g, keys, e):
                continue
            first, size = scan.groups[g, GROUP_FIRST], scan.groups[g, GROUP_COUNT]
            slots = scan.groups[g, GROUP_SLOTS]
            for block in range(0, size, BLOCK):
                count = min(np.int64(BLOCK), size - block)
                fresh, left, slot = np.uint8(1), count, np.int64(0)
                if slots == 0 or count < BLOCK:
                    ok_words[:] = np.uint64(0x0101010101010101) if slots == 0 else np.uint64(0)
                while slot < slots:
                    s = GROUP_SLOT + slot * SLOT_FIELDS
                    kind, width = scan.groups[g, s + SLOT_KIND], scan.groups[g, s + SLOT_WIDTH]
                    if slot > 0 and left * ROW_COST <= count * width * (2 if kind == RANGE else 1):
                        break
                    low, high = scan.groups[g, s + SLOT_LOW] + block, scan.groups[g, s + SLOT_HIGH] + block
                    code = codes[scan.groups[g, s + SLOT_COLUMN]]
                    if width == 1:
                        compare(scan.bytes, low, high, kind, np.uint8(code), count, fresh, ok)
                    elif width == 2:
                        compare(scan.shorts, low, high, kind, np.uint16(code), count, fresh, ok)
                    else:
                        compare(scan.words, low, high, kind, np.uint32(code), count, fresh, ok)
                    left = count_ones(ok_words)
                    fresh = np.uint8(0)
                    slot += 1
                if left == 0:
                    continue
                for w in range(count >> 3):
                    word = ok_words[w]
                    while word != 0:
                        lowest = word & (~word + np.uint64(1))
                        word ^= lowest
                        i = block + 8 * w + np.int64((lowest * BYTE_NUMBERS) >> np.uint64(56))
                        if slot < slots and not slots_pass(scan, g, slot, i, codes):
                            continue
                        if rows.members[first + i] >= 0 and tail_passes(
                            scan.starts, scan.tails, first + i, keys, e
                        ):
                            found[end] = first + i
                            end += 1
        offsets[e + 1] = finish_event(rows, keys, e, found, offsets[e], end)
    return keys.shape[0]

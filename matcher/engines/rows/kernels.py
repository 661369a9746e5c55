"""Kernels that turn matching rows into answers: the ids of subscriptions, or the interfaces they are for.

    rows [ signature place plan interface | ... ]     one line of int32 per row; the fields below

Engines whose structures know rows alone share these. A subscription of several rows (boxes) must be answered
once: the stamp of the last event that it matched stands in seen[first row].
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64, uint64

from covey.matcher.jit.kernel import array, frozen, inlined, kernel

ROW_SIGNATURE, ROW_PLACE, ROW_PLAN, ROW_INTERFACE = range(4)
"""The interface has 16 bits; above them stands which row of its subscription this is, from 0 on."""
ROW_FIELDS = 4
INTERFACE_BITS = 16
INTERFACE_MASK = (1 << INTERFACE_BITS) - 1


@inlined
def first_of(rows, row):  # type: ignore[no-untyped-def]
    """The first row of the subscription that a row is of."""
    return row - (rows[row, ROW_INTERFACE] >> INTERFACE_BITS)


@inlined
def interface_of(rows, row):  # type: ignore[no-untyped-def]
    """The interface of the subscription that a row is of."""
    return rows[row, ROW_INTERFACE] & INTERFACE_MASK


@inlined
def sift(values, start, root, size):  # type: ignore[no-untyped-def]
    value = values[start + root]
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and values[start + child + 1] > values[start + child]:
            child += 1
        if values[start + child] <= value:
            break
        values[start + root] = values[start + child]
        root = child
    values[start + root] = value


@inlined
def sort_range(values, start, end):  # type: ignore[no-untyped-def]
    """Sort values[start:end]: by insertion where that is short work, else by a heap (no allocation, no worst
    case).
    """
    moves, allowed = 0, 8 * (end - start)
    for i in range(start + 1, end):
        value, j = values[i], i
        while j > start and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
        moves += i - j
        if moves > allowed:
            break
    else:
        return
    size = end - start
    for root in range(size // 2 - 1, -1, -1):
        sift(values, start, root, size)
    for last in range(size - 1, 0, -1):
        values[start], values[start + last] = values[start + last], values[start]
        sift(values, start, 0, last)


@kernel(frozen(int64), int64, frozen(int64), int64, frozen(int64), array(int32, 2), array(int64))
def describe_rows(firsts, each, wanted, plan, interfaces, rows, ids):  # type: ignore[no-untyped-def]
    """Enter in `rows` and `ids` what `each` rows from firsts[i] on have in common: subscription wanted[i], a
    plan, an interface.
    """
    for i in range(firsts.size):
        for row in range(firsts[i], firsts[i] + each):
            ids[row] = wanted[i]
            rows[row, ROW_PLAN] = plan
            rows[row, ROW_INTERFACE] = interfaces[i] | (row - firsts[i]) << INTERFACE_BITS
    return 0


@kernel(frozen(int64), int64, array(int64))
def count_interfaces(interfaces, sign, counts):  # type: ignore[no-untyped-def]
    """Add `sign` to the count of every interface; False, and nothing done, where there is no room for one."""
    for i in range(interfaces.size):
        if interfaces[i] >= counts.size:
            return False
    for i in range(interfaces.size):
        counts[interfaces[i]] += sign
    return True


@kernel(array(int32, 2), frozen(int64), int64)
def sign_rows(rows, numbers, signature):  # type: ignore[no-untyped-def]
    """These rows have this signature now."""
    for i in range(numbers.size):
        rows[numbers[i], ROW_SIGNATURE] = signature
    return 0


@kernel(frozen(int32, 2), frozen(int64), array(int64), int64, boolean, boolean, array(int64), array(int64))
def resolve_rows(rows, ids, seen, stamp, shared, ordered, offsets, found):  # type: ignore[no-untyped-def]
    """Replace row numbers, CSR in `offsets` and `found`, by subscription ids, each once; returns the last
    stamp.

    `shared`: some subscription has several rows. `ordered`: ids ascend per event.
    """
    end, start = np.int64(0), np.int64(0)
    for e in range(offsets.size - 1):
        stop, first_id = offsets[e + 1], end
        stamp += 1
        for i in range(start, stop):
            row = found[i]
            if shared:
                first = first_of(rows, row)
                if seen[first] == stamp:
                    continue
                seen[first] = stamp
            found[end] = ids[row]
            end += 1
        if ordered:
            sort_range(found, first_id, end)
        start = stop
        offsets[e + 1] = end
    return stamp


@kernel(frozen(int32, 2), frozen(int64), frozen(int64), array(uint64, 2))
def interface_bits(rows, offsets, found, bits):  # type: ignore[no-untyped-def]
    """Set the bits of the interfaces of the rows that each event matches."""
    for e in range(offsets.size - 1):
        for i in range(offsets[e], offsets[e + 1]):
            interface = interface_of(rows, found[i])
            bits[e, interface >> 6] |= np.uint64(1) << np.uint64(interface & 63)
    return 0

"""Kernels for the fields of rows.

rows [ signature place interface | ... ]     one line of int32 per row; the fields below
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64

from covey.matcher.jit.kernel import array, frozen, inlined, kernel

ROW_SIGNATURE, ROW_PLACE, ROW_INTERFACE = range(3)
"""The signature is ~plan where the row is in no structure, as the row of a plan without boxes. The interface
has 16 bits; above them is the row's number within its subscription, from 0 on.
"""
ROW_FIELDS = 3
INTERFACE_BITS = 16
INTERFACE_MASK = (1 << INTERFACE_BITS) - 1
DIGIT_BITS = 11
DIGIT = np.uint64((1 << DIGIT_BITS) - 1)
"""A digit of the ids that are sorted: two digits are enough for four million subscriptions."""


@inlined
def first_of(rows, row):  # type: ignore[no-untyped-def]
    """The first row of a row's subscription."""
    return row - (rows[row, ROW_INTERFACE] >> INTERFACE_BITS)


@inlined
def interface_of(rows, row):  # type: ignore[no-untyped-def]
    """The interface of a row's subscription."""
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
    """Sort values[start:end] by insertion where few moves suffice, else by a heap; nothing is allocated."""
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


@inlined
def sort_by_digits(values, start, end, counts):  # type: ignore[no-untyped-def]
    """Sort values[start:end] by digits of DIGIT_BITS bits, from the least; `values` has as many free places
    behind `end`. About 5 ns per value where a heap takes 80.
    """
    size = end - start
    low = high = values[start]
    for i in range(start, end):
        low, high = min(low, values[i]), max(high, values[i])
    span = np.uint64(high) - np.uint64(low)
    source, target = start, end
    shift = np.uint64(0)
    while shift < 64 and span >> shift != 0:
        counts[:] = 0
        for i in range(source, source + size):
            counts[(np.uint64(values[i]) - np.uint64(low)) >> shift & DIGIT] += 1
        total = target
        for digit in range(counts.size):
            count = counts[digit]
            counts[digit] = total
            total += count
        for i in range(source, source + size):
            own = (np.uint64(values[i]) - np.uint64(low)) >> shift & DIGIT
            values[counts[own]] = values[i]
            counts[own] += 1
        source, target = target, source
        shift += np.uint64(DIGIT_BITS)
    if source != start:
        for i in range(size):
            values[start + i] = values[source + i]


@kernel(frozen(int64), int64, frozen(int64), int64, frozen(int64), array(int32, 2), array(int64))
def describe_rows(firsts, each, subscriptions, plan, interfaces, rows, ids):  # type: ignore[no-untyped-def]
    """Write the subscription, plan and interface of the `each` rows from firsts[i] on."""
    for i in range(firsts.size):
        for row in range(firsts[i], firsts[i] + each):
            ids[row] = subscriptions[i]
            rows[row, ROW_SIGNATURE] = ~plan
            rows[row, ROW_INTERFACE] = interfaces[i] | (row - firsts[i]) << INTERFACE_BITS
    return 0


@kernel(frozen(int64), int64, array(int64))
def count_interfaces(interfaces, sign, counts):  # type: ignore[no-untyped-def]
    """Add `sign` to the count of every interface; False, without a change, where one is out of range."""
    for i in range(interfaces.size):
        if interfaces[i] >= counts.size:
            return False
    for i in range(interfaces.size):
        counts[interfaces[i]] += sign
    return True


@kernel(array(int32, 2), frozen(int64), int64)
def set_signature(rows, numbers, signature):  # type: ignore[no-untyped-def]
    """Give rows a signature."""
    for i in range(numbers.size):
        rows[numbers[i], ROW_SIGNATURE] = signature
    return 0

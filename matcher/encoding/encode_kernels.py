"""Kernels that turn Arrow's buffers into keys: one column of a batch into one column of the key matrix.

    keys[e, c]: row e is the key vector of event e, side by side, since a matching kernel looks at one
    event at a time.

`valid` is Arrow's validity bitmap, empty when nothing is null; `first` is the offset of a slice within
its buffers.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.events.int64 import FIRST, INFINITY_KEY, INT64_MIN, LAST, MISSING, NAN_KEY
from covey.matcher.jit.hashing import product
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, uint8


@inlined
def is_null(valid, position):  # type: ignore[no-untyped-def]
    return valid.size > 0 and (valid[position >> 3] >> (position & 7)) & 1 == 0


@kernel(frozen(int64), frozen(uint8), int64, int64, array(int64, 2))
def encode_integers(values, valid, first, column, keys):  # type: ignore[no-untyped-def]
    """Keys of int64 or timestamp values; those that no batch has get the outermost keys."""
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        keys[e, column] = min(max(values[first + e], np.int64(FIRST)), np.int64(LAST))
    return 0


@kernel(frozen(int64), frozen(uint8), int64, int64, array(int64, 2))
def encode_floats(bits, valid, first, column, keys):  # type: ignore[no-untyped-def]
    """Keys of float64 values, given as their bits."""
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        key = bits[first + e]
        if key < 0:
            key = INT64_MIN - key  # 0 for -0.0
        if key > INFINITY_KEY or key < -INFINITY_KEY:
            key = np.int64(NAN_KEY)
        keys[e, column] = key
    return 0


@kernel(frozen(uint8), frozen(uint8), int64, int64, array(int64, 2))
def encode_bools(packed, valid, first, column, keys):  # type: ignore[no-untyped-def]
    """Keys of bools, which Arrow packs eight to a byte."""
    for e in range(keys.shape[0]):
        position = first + e
        if is_null(valid, position):
            keys[e, column] = MISSING
        else:
            keys[e, column] = (packed[position >> 3] >> (position & 7)) & 1
    return 0


@inlined
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    """FNV-1a, folded."""
    h = np.int64(-3750763034362895579)
    for i in range(start, end):
        h = product(h ^ np.int64(data[i]), np.int64(1099511628211))
    return h ^ (h >> 32)


# The dictionary of constants: an open-addressing table of string ids, and where the bytes of each lie.
#
#     table  [ 0 | 3 | 0 | 1 | ... ]     0 is free; its size is a power of two
#     spans  [ -, (0,3), (9,4), (3,6) ]  start and length in the heap, by id
#     heap   "IBMgoogleAAPL"


@kernel(frozen(uint8), int64, int64, int64, array(int32), array(int64, 2), array(uint8))
def enter_string(data, start, end, string_id, table, spans, heap):  # type: ignore[no-untyped-def]
    """Enter the string data[start:end], which is in the heap already, under an id; returns its place."""
    mask = table.size - 1
    place = hash_bytes(data, start, end) & mask
    while table[place] != 0:
        place = (place + 1) & mask
    table[place] = string_id
    return place


@kernel(
    frozen(int32), frozen(uint8), frozen(uint8), int64, int64, int64,
    array(int32), array(int64, 2), array(uint8), array(int64, 2),
)  # fmt: skip
def encode_strings(offsets, data, valid, first, last, column, table, spans, heap, keys):  # type: ignore[no-untyped-def]
    """Keys of strings: the id of the equal constant, or 0; or of their `last` bytes, if that is not negative:
    the id, or MISSING, for which engines look nothing up.
    """
    other = np.int64(MISSING) if last >= 0 else np.int64(0)
    mask = table.size - 1
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        start, end = np.int64(offsets[first + e]), np.int64(offsets[first + e + 1])
        if end - start < last:
            keys[e, column] = other
            continue
        if last >= 0:
            start = end - last
        place = hash_bytes(data, start, end) & mask
        key = other
        while table[place] != 0:
            string_id = table[place]
            if spans[string_id, 1] == end - start:
                at = spans[string_id, 0]
                i = 0
                while i < end - start and heap[at + i] == data[start + i]:
                    i += 1
                if i == end - start:
                    key = string_id
                    break
            place = (place + 1) & mask
        keys[e, column] = key
    return 0


@inlined
def compare_text(text, start, end, other, first, last):  # type: ignore[no-untyped-def]
    """Below 0 where text[start:end] precedes other[first:last], 0 where they are equal."""
    length = min(end - start, last - first)
    for i in range(length):
        if text[start + i] != other[first + i]:
            return np.int64(text[start + i]) - np.int64(other[first + i])
    return (end - start) - (last - first)


@kernel(
    frozen(int32), frozen(uint8), frozen(uint8), int64, int64,
    frozen(int64), frozen(uint8), frozen(int64), array(int64, 2),
)  # fmt: skip
def encode_ranks(offsets, data, valid, first, column, ends, text, ranks, keys):  # type: ignore[no-untyped-def]
    """Keys of strings among constants in ascending order, text[ends[i] : ends[i + 1]]: ranks[2i + 1] of the
    i-th constant, ranks[2i] of strings between it and its predecessor.
    """
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        start, end = np.int64(offsets[first + e]), np.int64(offsets[first + e + 1])
        low, high = np.int64(0), np.int64(ends.size - 1)
        place = np.int64(-1)
        while low < high:
            middle = (low + high) >> 1
            order = compare_text(data, start, end, text, ends[middle], ends[middle + 1])
            if order == 0:
                place = 2 * middle + 1
                low = high
            elif order < 0:
                high = middle
            else:
                low = middle + 1
        keys[e, column] = ranks[place if place >= 0 else 2 * low]
    return 0

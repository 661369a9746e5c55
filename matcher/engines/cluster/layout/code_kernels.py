"""Helpers of kernels for the exact bounds of rows, and for codes of keys and bounds; drawn in `arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.events.int64 import FIRST, INT64_MAX, LAST, MISSING, NOTHING
from covey.matcher.jit.kernel import inlined, load_word, store_word


@inlined
def far_from(width):  # type: ignore[no-untyped-def]
    """How far the two outermost keys of either side move to be outermost in so many bytes."""
    return np.int64(INT64_MAX) - (np.int64(INT64_MAX) >> (64 - 8 * np.int64(width)))


@inlined
def fits(key, width):  # type: ignore[no-untyped-def]
    """Whether so many bytes hold a key: it is near 0, or one of the two outermost of either side."""
    far = far_from(width)
    return key <= FIRST or key >= LAST or FIRST + far < key < LAST - far


@inlined
def read_bound(bounds, at, width):  # type: ignore[no-untyped-def]
    shift, far = 64 - 8 * np.int64(width), far_from(width)
    word = load_word(bounds, at) << shift >> shift
    if word <= FIRST + far:
        return word - far
    return word + far if word >= LAST - far else word


@inlined
def write_bound(bounds, at, width, key):  # type: ignore[no-untyped-def]
    far = far_from(width)
    word = np.int64(key)
    if word <= FIRST:
        word += far
    elif word >= LAST:
        word -= far
    others = np.int64(-256) << (8 * np.int64(width) - 8)
    store_word(bounds, at, (load_word(bounds, at) & others) | (word & ~others))


@inlined
def nth_bound(store, signature, place, test, end):  # type: ignore[no-untyped-def]
    """The first bound of a test, or the second one of a range."""
    line = a.SIGN_TESTS + a.TEST_FIELDS * test
    width = store.signatures[signature, line + a.TEST_WIDTH]
    at = np.int64(place) + store.signatures[signature, line + a.TEST_BYTE] + end * width
    return read_bound(store.bounds, at, width)


@inlined
def low_bound(store, signature, place, test):  # type: ignore[no-untyped-def]
    if store.signatures[signature, a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_SHAPE] == a.HIGH:
        return np.int64(FIRST)
    return nth_bound(store, signature, place, test, 0)


@inlined
def high_bound(store, signature, place, test):  # type: ignore[no-untyped-def]
    line = a.SIGN_TESTS + a.TEST_FIELDS * test
    shape = store.signatures[signature, line + a.TEST_SHAPE]
    if shape == a.LOW:
        return store.coding[store.signatures[signature, line + a.TEST_COLUMN], a.CODE_TOP]
    key = nth_bound(store, signature, place, test, 1 if shape == a.BOTH else 0)
    return np.int64(MISSING) if shape <= a.FIXED and key == NOTHING else key


@inlined
def passes_bounds(store, row, keys, e):  # type: ignore[no-untyped-def]
    """Whether an event passes all tests of a row, by exact bounds."""
    signature, place = store.rows[row, ROW_SIGNATURE], store.rows[row, ROW_PLACE]
    for test in range(store.signatures[signature, a.SIGN_SIZE]):
        key = keys[e, store.signatures[signature, a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN]]
        if key < low_bound(store, signature, place, test) or key > high_bound(store, signature, place, test):
            return False
    return True


FIRST_TEST, HASHED = 4, 5
"""Words of scratch before the codes of tests: tests and widths of the hashed ranges, and the first test."""


@inlined
def code_of(coding, cuts, column, key):  # type: ignore[no-untyped-def]
    if key == MISSING:
        return np.int64(0)
    count = coding[column, a.CODE_COUNT]
    start = coding[column, a.CODE_START]
    if key > coding[column, a.CODE_TOP]:
        return 2 * count + 5
    if count == 0:
        return np.int64(3)
    if coding[column, a.CODE_LINEAR] != 0:  # all integers from the first cut to the last
        if key < cuts[start]:
            return np.int64(3)
        if key > cuts[start + count - 1]:
            return 2 * count + 3
        return 2 * (key - cuts[start]) + 4
    at, size = start, count
    while size > 1:
        half = size >> 1
        if cuts[at + half - 1] < key:
            at += half
        size -= half
    if cuts[at] < key:
        return 2 * (at - start) + 5
    return 2 * (at - start) + (4 if cuts[at] == key else 3)


@inlined
def code_of_low(coding, cuts, column, bound):  # type: ignore[no-untyped-def]
    """An open low end has a code below all keys, so that it decides for all events."""
    return np.int64(2) if bound == FIRST else code_of(coding, cuts, column, bound)


@inlined
def code_of_high(coding, cuts, column, bound):  # type: ignore[no-untyped-def]
    """An open high end has a code above all keys but NaN."""
    if bound == coding[column, a.CODE_TOP]:
        return 2 * coding[column, a.CODE_COUNT] + 4
    return code_of(coding, cuts, column, bound)


@inlined
def code_row(store, row, scratch):  # type: ignore[no-untyped-def]
    """Write the codes of each test to scratch[HASHED + 2 * test :]; NEVER and 0 if nothing passes."""
    signature = store.rows[row, ROW_SIGNATURE]
    place = store.rows[row, ROW_PLACE]
    line = store.signatures[signature]
    for test in range(line[a.SIGN_SIZE]):
        column = line[a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN]
        if column >= a.NARROW_COLUMNS:
            continue
        low = low_bound(store, signature, place, test)
        high = high_bound(store, signature, place, test)
        at = HASHED + 2 * test
        if low > high:
            scratch[at], scratch[at + 1] = a.NEVER, 0
        else:
            scratch[at] = code_of_low(store.coding, store.cuts, column, low)
            if low == high and low != FIRST:
                scratch[at + 1] = scratch[at]
            else:
                scratch[at + 1] = code_of_high(store.coding, store.cuts, column, high)


@inlined
def save_codes(store, row, scratch, codes, saved):  # type: ignore[no-untyped-def]
    """Copy a row's codes from scratch to codes[saved], as many as fit."""
    for c in range(min(codes.shape[1], 2 * store.signatures[store.rows[row, ROW_SIGNATURE], a.SIGN_SIZE])):
        codes[saved, c] = scratch[HASHED + c]


@inlined
def load_codes(store, row, scratch, codes, saved):  # type: ignore[no-untyped-def]
    """Copy a row's codes from codes[saved] to scratch, or compute them where not all fit."""
    words = 2 * store.signatures[store.rows[row, ROW_SIGNATURE], a.SIGN_SIZE]
    if words > codes.shape[1]:
        code_row(store, row, scratch)
        return
    for c in range(words):
        scratch[HASHED + c] = codes[saved, c]


@inlined
def is_hashed(line, test):  # type: ignore[no-untyped-def]
    """Whether a test is an equality that its signature hashes."""
    hashed = False
    for part in range(line[a.SIGN_EQUAL]):
        hashed |= line[a.SIGN_ACCESS + part] == test
    return hashed

"""Helpers of kernels that read and write the exact bounds of rows; drawn in `layout/arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.events.int64 import FIRST, INT64_MAX, LAST, MISSING, NOTHING
from covey.matcher.jit.kernel import inlined, load_word, store_word


@inlined
def far_from(width):  # type: ignore[no-untyped-def]
    """How far the two outermost keys on either side are moved to be the outermost of so many bytes."""
    return np.int64(INT64_MAX) - (np.int64(INT64_MAX) >> (64 - 8 * np.int64(width)))


@inlined
def fits(key, width):  # type: ignore[no-untyped-def]
    """Whether so many bytes hold a key: it is near 0, or one of the two outermost on either side."""
    far = far_from(width)
    return key <= FIRST or key >= LAST or FIRST + far < key < LAST - far


@inlined
def read_bound(bounds, at, width):  # type: ignore[no-untyped-def]
    """The key in the `width` bytes from bounds[at] on."""
    shift, far = 64 - 8 * np.int64(width), far_from(width)
    word = load_word(bounds, at) << shift >> shift
    if word <= FIRST + far:
        return word - far
    return word + far if word >= LAST - far else word


@inlined
def write_bound(bounds, at, width, key):  # type: ignore[no-untyped-def]
    """Write a key to the `width` bytes from bounds[at] on."""
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
    """The first bound of a row's test, or the second one of a range."""
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
    """Whether an event passes all tests of a row, by the bounds."""
    signature, place = store.rows[row, ROW_SIGNATURE], store.rows[row, ROW_PLACE]
    for test in range(store.signatures[signature, a.SIGN_SIZE]):
        key = keys[e, store.signatures[signature, a.SIGN_TESTS + a.TEST_FIELDS * test + a.TEST_COLUMN]]
        if key < low_bound(store, signature, place, test) or key > high_bound(store, signature, place, test):
            return False
    return True

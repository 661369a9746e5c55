"""Helpers of kernels that read and write the exact bounds of rows; drawn in `layout/arrays.py`."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.events.int64 import FIRST, LAST, MISSING, NOTHING
from covey.matcher.jit.kernel import inlined

FAR = 2**63 - 2**31
"""How far the outermost keys are moved to fit a word, where they are the outermost as well."""


@inlined
def fits_word(key):  # type: ignore[no-untyped-def]
    """Whether a key fits a word: it is near 0, or one of the two outermost on either side."""
    return key <= FIRST or key >= LAST or FIRST + FAR < key < LAST - FAR


@inlined
def read_bound(bounds, at, long):  # type: ignore[no-untyped-def]
    """The key in bounds[at]; a long one is in the next word as well."""
    word = np.int64(bounds[at])
    if long != 0:
        return np.int64(bounds[at + 1]) << 32 | word & 0xFFFF_FFFF
    if word <= FIRST + FAR:
        return word - FAR
    return word + FAR if word >= LAST - FAR else word


@inlined
def write_bound(bounds, at, long, key):  # type: ignore[no-untyped-def]
    """Write a key to bounds[at], for `read_bound`."""
    if long != 0:
        bounds[at] = np.int32(key << 32 >> 32)
        bounds[at + 1] = np.int32(key >> 32)
    elif key <= FIRST:
        bounds[at] = np.int32(key + FAR)
    else:
        bounds[at] = np.int32(key - FAR if key >= LAST else key)


@inlined
def nth_bound(store, signature, place, test, end):  # type: ignore[no-untyped-def]
    """The first bound of a row's test, or the second one of a range."""
    line = a.SIGN_TESTS + a.TEST_FIELDS * test
    long = store.signatures[signature, line + a.TEST_LONG]
    return read_bound(
        store.bounds, place + store.signatures[signature, line + a.TEST_WORD] + end * (1 + long), long
    )


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

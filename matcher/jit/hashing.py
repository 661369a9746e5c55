"""Helpers of kernels that hash: products modulo 2**64.

Numba compiles a product of signed integers for one that never overflows, and LLVM relies on that: two kernels
that inline the same hash could get different ones.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.jit.kernel import inlined

_MULTIPLIER = np.int64(-7046029254386353131)
_OTHER_MULTIPLIER = np.int64(-4417276706812531889)


@inlined
def product(a, b):  # type: ignore[no-untyped-def]
    """The product of two int64 modulo 2**64."""
    return np.int64(np.uint64(np.int64(a)) * np.uint64(np.int64(b)))


@inlined
def spread(key):  # type: ignore[no-untyped-def]
    """A number in which the upper bits depend on all bits of an int64."""
    return product(key, _MULTIPLIER)


@inlined
def first_hash(key):  # type: ignore[no-untyped-def]
    """A hash to mix further keys into."""
    return product(key, _OTHER_MULTIPLIER)


@inlined
def mix(h, key):  # type: ignore[no-untyped-def]
    """A hash of what `h` is a hash of, and of one more int64."""
    h = spread(h ^ key)
    return h ^ (h >> 32)

"""Bounds of tests from the values of operands: `keys.lower_key` and `keys.upper_key` as a kernel.
    side [ family low-operand low-strict low-constant high-operand high-strict high-constant ]"""

from __future__ import annotations

import numpy as np

from covey.matcher.events.int64 import FIRST, INT64_MIN, LAST, MISSING, NOTHING
from covey.matcher.jit.kernel import array, frozen, inlined, int64, kernel

INTEGER, FLOAT, PLAIN = range(3)
"""Family of a test. Values are int64; the bits of float64; or keys already: times, string ids, bools."""
SIDE_FAMILY, SIDE_LOW, SIDE_HIGH = 0, 1, 4
SIDE_FIELDS = 7
NO_OPERAND = -1  # the constant that follows is the end


@inlined
def float_key(bits):  # type: ignore[no-untyped-def]
    return bits if bits >= 0 else INT64_MIN - bits


@inlined
def low_key(family, value, strict):  # type: ignore[no-untyped-def]
    """The least key at or above a value, or above it if `strict`."""
    if family == FLOAT:
        return float_key(value) + strict
    key = value + strict if value != NOTHING else value
    return max(key, np.int64(FIRST)) if family == INTEGER else key


@inlined
def high_key(family, value, strict):  # type: ignore[no-untyped-def]
    """The greatest key at or below a value, or below it if `strict`."""
    if family == FLOAT:
        return float_key(value) - strict
    key = value - strict if value != MISSING else value
    return min(key, np.int64(LAST)) if family == INTEGER else key


@kernel(frozen(int64, 2), frozen(int64, 2), array(int64, 2), array(int64, 2))
def make_bounds(sides, values, lows, highs):  # type: ignore[no-untyped-def]
    """lows[t, i] and highs[t, i] of the test sides[t], where operand o has the value values[o, i]."""
    for t in range(sides.shape[0]):
        family = sides[t, SIDE_FAMILY]
        for end in range(2):
            side = SIDE_LOW if end == 0 else SIDE_HIGH
            operand, strict = sides[t, side], sides[t, side + 1]
            for i in range(lows.shape[1]):
                if operand == NO_OPERAND:
                    key = sides[t, side + 2]
                else:
                    value = values[operand, i]
                    key = low_key(family, value, strict) if end == 0 else high_key(family, value, strict)
                if end == 0:
                    lows[t, i] = key
                else:
                    highs[t, i] = key
    return 0

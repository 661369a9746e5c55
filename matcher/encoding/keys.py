"""Keys: every attribute value as an int64 in the order of its kind, so that a test is `lo <= key <= hi`.

          MISSING | FIRST ................ values of the kind ................ LAST | NOTHING
    int64 -2**63    -2**63 + 1                                           2**63 - 2    2**63 - 1

A value's key is the cut before it (`covering/cuts.py`); a missing value has the key MISSING, NaN the key
above infinity's. A string has two keys: its *string id* if some filter names it, else 0; and, in another
column, its *rank*, which keeps the order (`ranks.py`). Every list has the key 0. `EventBatch` refuses the two
outermost values of int64, whose keys are MISSING and NOTHING; bounds may have them.

Invariant: `lower_key(v) <= key(x)` exactly when `x >= v`, for every kind of v that x compares with (int64
with 10.5, float64 with 2**53 + 1). A lower bound above all values is NOTHING, an upper one below all values
MISSING; no value satisfies either."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.cuts import LINES
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, INT64_MAX, INT64_MIN, LAST, MISSING, NOTHING
from covey.matcher.events.times import microseconds
from covey.matcher.expressions.expression import Scalar

Keys = npt.NDArray[np.int64]

_EXACT = 2**53
_TWO_63 = 2.0**63


def largest_key(kind: Kind) -> int:
    """The upper end of a test with only a lower bound: NaN lies above it."""
    return INFINITY_KEY if kind is Kind.FLOAT64 else LAST


def float_of_key(key: int) -> float:
    return float(np.int64(key if key >= 0 else INT64_MIN - key).view(np.float64))


# --- one bound ------------------------------------------------------------------------------------


def _cut(kind: Kind, value: Scalar, after: bool) -> int:
    """The cut before or after a bound; strings come as ids."""
    if kind is Kind.FLOAT64 or kind is Kind.INT64:
        line = LINES[kind]
        cut: int = line.after(value) if after else line.before(value)
        return cut
    return (microseconds(value) if isinstance(value, datetime) else int(value)) + after


def lower_key(kind: Kind, value: Scalar, strict: bool) -> int:
    """The least key of values at or above a bound, or above it if `strict`."""
    cut = _cut(kind, value, strict)
    return min(max(cut, FIRST), NOTHING) if kind is Kind.INT64 else cut


def upper_key(kind: Kind, value: Scalar, strict: bool) -> int:
    """The greatest key of values at or below a bound, or below it if `strict`."""
    cut = _cut(kind, value, not strict)
    return max(min(cut - 1, LAST), MISSING) if kind is Kind.INT64 else cut - 1


# --- many bounds ----------------------------------------------------------------------------------


def float_keys(values: npt.NDArray[np.float64]) -> Keys:
    """The keys of float64 values that are not NaN."""
    bits = values.view(np.int64)
    signs = bits >> 63
    keys: Keys = bits & INT64_MAX
    keys ^= signs
    keys -= signs  # negated where the sign is set
    return keys


def bound_keys(kind: Kind, values: npt.NDArray[np.generic], strict: bool, *, lower: bool) -> Keys:
    """`lower_key` or `upper_key` of an array: int64, float64 or object for numbers, else int64."""
    if values.dtype == np.object_ or _is_inexact(kind, values):
        one = lower_key if lower else upper_key
        return np.array([one(kind, value, strict) for value in values.tolist()], dtype=np.int64)
    step = (1 if lower else -1) if strict else 0
    if kind is Kind.FLOAT64:
        keys = float_keys(values.astype(np.float64, copy=False))
        return keys + step if strict else keys
    if kind is Kind.INT64 and values.dtype == np.float64:
        whole = (np.floor if strict is lower else np.ceil)(values) + step
        below, above = whole < -_TWO_63, whole >= _TWO_63
        keys = np.where(below | above, 0.0, whole).astype(np.int64)
        keys[below], keys[above] = MISSING, NOTHING
    else:
        keys = values.astype(np.int64, copy=False)
        if strict:
            keys = keys + step * (keys != (NOTHING if lower else MISSING))
    if kind is not Kind.INT64:
        return keys
    return np.maximum(keys, FIRST) if lower else np.minimum(keys, LAST)


def _is_inexact(kind: Kind, values: npt.NDArray[np.generic]) -> bool:
    """Whether some value needs Python's exact arithmetic, beyond 2**53 between int64 and float64."""
    if kind is Kind.FLOAT64 and values.dtype == np.int64:
        return bool(((values > _EXACT) | (values < -_EXACT)).any())  # type: ignore[operator]
    if kind is Kind.INT64 and values.dtype == np.float64:
        return bool(((np.abs(values) >= _EXACT) & np.isfinite(values)).any())
    return False

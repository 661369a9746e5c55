"""Keys: every attribute value as an int64, in the order of its kind, so that a comparison is `lo <= key
<= hi`.

          MISSING | smallest ............. values of the kind ............. largest | NaN (float64) | NOTHING
    int64 -2**63    -2**63+1                                              2**63-2                     2**63-1

- float64: the bits, with those of negative numbers flipped; -0.0 is 0.0; NaN is one key above +inf.
- bool: 0 and 1. timestamp: microseconds. string: the code of a constant that some filter names, 0 for all
  others.
- int64: itself. No event has the two outermost values, whose keys are MISSING and NOTHING (`EventBatch`
  refuses them); bounds may.

Invariant: `lower_key(v) <= key(x)` exactly when `x >= v`, for every kind of v that x
compares with (int64 with 10.5, float64 with 2**53 + 1). A bound beyond all values is NOTHING (lower) or
MISSING (upper), which no value's key meets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil, floor, inf
from struct import Struct

import numpy as np
import numpy.typing as npt

from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Scalar

Keys = npt.NDArray[np.int64]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
MISSING = INT64_MIN
FIRST = INT64_MIN + 1
LAST = INT64_MAX - 1
NOTHING = INT64_MAX
INFINITY_KEY = 0x7FF0_0000_0000_0000
NAN_KEY = INFINITY_KEY + 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DOUBLE, _BITS = Struct("=d"), Struct("=q")
_EXACT = 2**53
_TWO_63 = 2.0**63


def largest_key(kind: Kind) -> int:
    """The upper end of a test that only has a lower bound: NaN lies beyond it."""
    return INFINITY_KEY if kind is Kind.FLOAT64 else LAST


def microseconds(moment: datetime) -> int:
    """A timestamp's key: microseconds since 1970, in UTC (also where the datetime names no zone)."""
    return ((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH) // _MICROSECOND


def float_key(value: float) -> int:
    """The key of a float64 that is not NaN."""
    bits: int = _BITS.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ INT64_MAX


# --- one bound ------------------------------------------------------------------------------------


def least_integer(value: int | float, strict: bool) -> int | float:
    """The least integer x with x >= value (x > value, if strict); infinities stay."""
    if value in (inf, -inf):
        return value
    return floor(value) + 1 if strict else ceil(value)


def greatest_integer(value: int | float, strict: bool) -> int | float:
    """The greatest integer x with x <= value (x < value, if strict); infinities stay."""
    if value in (inf, -inf):
        return value
    return ceil(value) - 1 if strict else floor(value)


def lower_key(kind: Kind, value: Scalar, strict: bool) -> int:
    """The least key of values at or above a bound (above it, if strict). Strings come as their codes."""
    if kind is Kind.FLOAT64:
        assert isinstance(value, (int, float))
        near = _nearest(value)
        if near < value:
            return float_key(near) + 1
        return float_key(near) + (1 if strict and near == value else 0)
    if kind is Kind.INT64:
        assert isinstance(value, (int, float))
        return int(min(max(least_integer(value, strict), FIRST), NOTHING))
    key = microseconds(value) if isinstance(value, datetime) else int(value)
    return key + 1 if strict else key


def upper_key(kind: Kind, value: Scalar, strict: bool) -> int:
    """The greatest key of values at or below a bound (below it, if strict). Strings come as their codes."""
    if kind is Kind.FLOAT64:
        assert isinstance(value, (int, float))
        near = _nearest(value)
        if near > value:
            return float_key(near) - 1
        return float_key(near) - (1 if strict and near == value else 0)
    if kind is Kind.INT64:
        assert isinstance(value, (int, float))
        return int(max(min(greatest_integer(value, strict), LAST), MISSING))
    key = microseconds(value) if isinstance(value, datetime) else int(value)
    return key - 1 if strict else key


def _nearest(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


# --- many bounds ----------------------------------------------------------------------------------


def float_keys(values: npt.NDArray[np.float64]) -> Keys:
    """The keys of float64 values that are not NaN."""
    bits = (values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & INT64_MAX)


def lower_keys(kind: Kind, values: npt.NDArray[np.generic], strict: bool) -> Keys:
    """`lower_key` of an array: int64, float64 or object for numbers, int64 for times, codes and bools."""
    if values.dtype == np.object_ or _inexact(kind, values):
        exact = [lower_key(kind, value, strict) for value in values.tolist()]
        return np.array(exact, dtype=np.int64)
    if kind is Kind.FLOAT64:
        keys = float_keys(values.astype(np.float64, copy=False))
        return keys + 1 if strict else keys
    if kind is Kind.INT64 and values.dtype == np.float64:
        whole = np.floor(values) + 1 if strict else np.ceil(values)
        nothing, everything = whole >= _TWO_63, whole < -_TWO_63
        keys = np.where(nothing | everything, 0.0, whole).astype(np.int64)
        keys[everything], keys[nothing] = FIRST, NOTHING
    else:
        keys = values.astype(np.int64, copy=False)
        if strict:
            keys = keys + (keys != NOTHING)
    return np.maximum(keys, FIRST) if kind is Kind.INT64 else keys


def upper_keys(kind: Kind, values: npt.NDArray[np.generic], strict: bool) -> Keys:
    """`upper_key` of an array, as `lower_keys`."""
    if values.dtype == np.object_ or _inexact(kind, values):
        exact = [upper_key(kind, value, strict) for value in values.tolist()]
        return np.array(exact, dtype=np.int64)
    if kind is Kind.FLOAT64:
        keys = float_keys(values.astype(np.float64, copy=False))
        return keys - 1 if strict else keys
    if kind is Kind.INT64 and values.dtype == np.float64:
        whole = np.ceil(values) - 1 if strict else np.floor(values)
        nothing, everything = whole < -_TWO_63, whole >= _TWO_63
        keys = np.where(nothing | everything, 0.0, whole).astype(np.int64)
        keys[everything], keys[nothing] = LAST, MISSING
    else:
        keys = values.astype(np.int64, copy=False)
        if strict:
            keys = keys - (keys != MISSING)
    return np.minimum(keys, LAST) if kind is Kind.INT64 else keys


def _inexact(kind: Kind, values: npt.NDArray[np.generic]) -> bool:
    """Whether some value needs Python's exact arithmetic: it lies where int64 and float64 cannot hold
    each other.
    """
    if kind is Kind.FLOAT64 and values.dtype == np.int64:
        return bool(((values > _EXACT) | (values < -_EXACT)).any())  # type: ignore[operator]
    if kind is Kind.INT64 and values.dtype == np.float64:
        return bool(((np.abs(values) >= _EXACT) & np.isfinite(values)).any())
    return False

"""Cuts: exact points between the values of a kind's order, so that "open" and "closed" need no flag.

    int64, timestamp   the cut before n is n            (timestamps: microseconds since the epoch; bool: 0, 1)
    float64            the cut before x is an integer that grows with x; NaN lies above infinity
    string             the cut before s is "\\1" + s, the cut after it "\\1" + s + "\\0", its next neighbour
    list of strings    the cut before every list is 0, since only its presence counts
    missing            a point of its own below all values

The int64 keys of engines are these cuts, within 64 bits (`encoding/keys.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import ceil, floor, inf
from struct import Struct
from typing import Any

from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MAX, INT64_MIN
from covey.matcher.events.times import microseconds
from covey.matcher.expressions.expression import Scalar

Cut = Any  # int, or str for strings; cuts of one kind compare with each other

_DOUBLE = Struct("<d").pack
_BITS = Struct("<q").unpack
_TWO_DOUBLES = Struct("<2d").pack
_TWO_BITS = Struct("<2q").unpack
_BEYOND_INT64 = INT64_MAX + 1


@dataclass(frozen=True, slots=True)
class Line:
    """The cut points of one kind: `before` and `after` a value in its inner form, and the ends of the order.

    Values lie in [low, top), NaN in [top, end) where the kind has it, a missing attribute in [missing, low).
    """

    before: Callable[[Any], Cut]
    after: Callable[[Any], Cut]
    missing: Cut
    low: Cut
    top: Cut
    end: Cut

    @property
    def everything(self) -> tuple[Cut, Cut]:
        return (self.missing, self.end)

    @property
    def present(self) -> tuple[Cut, Cut]:
        return (self.low, self.end)


def _before_int(value: float) -> int:
    if value.__class__ is int:
        return value
    if value == inf:
        return _BEYOND_INT64
    return INT64_MIN if value == -inf else _clamped(ceil(value))


def _after_int(value: float) -> int:
    if value.__class__ is int:
        return value + 1
    if value == inf:
        return _BEYOND_INT64
    return INT64_MIN if value == -inf else _clamped(floor(value) + 1)


def _clamped(cut: int) -> int:
    return max(INT64_MIN, min(cut, _BEYOND_INT64))


def float_cut(value: float) -> int:
    """The cut before a float."""
    bits: int = _BITS(_DOUBLE(value))[0]
    return bits if bits >= 0 else INT64_MIN - bits  # -0.0 and 0.0 both give 0


def float_cuts(low: float, high: float) -> tuple[int, int]:
    """The cuts before two floats."""
    first: int
    second: int
    first, second = _TWO_BITS(_TWO_DOUBLES(low, high))
    return first if first >= 0 else INT64_MIN - first, second if second >= 0 else INT64_MIN - second


def _before_float(value: float) -> int:
    if value.__class__ is int:
        nearest = float(value)
        return float_cut(nearest) + (nearest < value)
    return float_cut(value)


def _after_float(value: float) -> int:
    if value.__class__ is int:
        nearest = float(value)
        return float_cut(nearest) + (nearest <= value)
    return float_cut(value) + 1


def _after_time(value: datetime) -> int:
    return microseconds(value) + 1


def _before_string(value: str) -> str:
    return "\1" + value


def _after_string(value: str) -> str:
    return "\1" + value + "\0"


def _before_bool(value: bool) -> int:
    return int(value)


def _after_bool(value: bool) -> int:
    return value + 1


def _before_list(value: object) -> int:
    return 0


def _after_list(value: object) -> int:
    return 1


_LOWEST_FLOAT = float_cut(-inf)
_BEYOND_FLOAT = float_cut(inf) + 1

LINES: dict[Kind, Line] = {
    Kind.INT64: Line(_before_int, _after_int, INT64_MIN - 1, INT64_MIN, _BEYOND_INT64, _BEYOND_INT64),
    Kind.TIMESTAMP: Line(microseconds, _after_time, INT64_MIN - 1, INT64_MIN, _BEYOND_INT64, _BEYOND_INT64),
    Kind.FLOAT64: Line(
        _before_float, _after_float, _LOWEST_FLOAT - 1, _LOWEST_FLOAT, _BEYOND_FLOAT, _BEYOND_FLOAT + 1
    ),
    Kind.STRING: Line(_before_string, _after_string, "", "\1", "\2", "\2"),
    Kind.BOOL: Line(_before_bool, _after_bool, -1, 0, 2, 2),
    Kind.STRINGS: Line(_before_list, _after_list, -1, 0, 1, 1),
}


def point_of(line: Line, value: Scalar | None) -> Cut:
    """The cut before an event's value, NaN and None included: the value is in the interval that holds it."""
    if value is None:
        return line.missing
    return line.top if value != value else line.before(value)

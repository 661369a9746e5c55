"""Cuts: exact points between the values of a kind's order, so that "open" and "closed" need no flag; and sets
of values as intervals between them.

    int64, timestamp   the cut before n is n            (timestamps: microseconds since the epoch; bool: 0, 1)
    float64            the cut before x is an integer that grows with x; NaN lies above infinity
    string             the cut before s is "\\1" + s, the cut after it "\\1" + s + "\\0", its next neighbour
    list of strings    the cut before every list is 0, since only its presence counts
    missing            a point of its own below all values

The int64 keys of engines are these cuts, within 64 bits (`encoding/keys.py`). A set of values is a flat tuple
of cuts (low, high, low, high, ...), strictly ascending; () is empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from struct import Struct
from typing import Any

from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MAX, INT64_MIN
from covey.matcher.events.times import microseconds
from covey.matcher.expressions.expression import Scalar

# --- cuts -----------------------------------------------------------------------------------------


Cut = Any  # int, or str for strings; cuts of one kind compare with each other

_DOUBLE = Struct("<d").pack
_BITS = Struct("<q").unpack
_TWO_DOUBLES = Struct("<2d").pack
_TWO_BITS = Struct("<2q").unpack
_BEYOND_INT64 = INT64_MAX + 1


@dataclass(frozen=True, slots=True)
class Line:
    """The order of one kind: the cuts `before` and `after` a value in its inner form, and the ends. Values
    lie in [low, top), NaN in [top, end) if the kind has it, a missing attribute in [missing, low)."""

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
    bits: int = _BITS(_DOUBLE(value))[0]
    return bits if bits >= 0 else INT64_MIN - bits  # -0.0 and 0.0 both give 0


def float_cuts(low: float, high: float) -> tuple[int, int]:
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


_LOWEST_FLOAT = float_cut(-inf)
_BEYOND_FLOAT = float_cut(inf) + 1

LINES: dict[Kind, Line] = {
    Kind.INT64: Line(_before_int, _after_int, INT64_MIN - 1, INT64_MIN, _BEYOND_INT64, _BEYOND_INT64),
    Kind.TIMESTAMP: Line(
        microseconds,
        lambda time: microseconds(time) + 1,
        INT64_MIN - 1,
        INT64_MIN,
        _BEYOND_INT64,
        _BEYOND_INT64,
    ),
    Kind.FLOAT64: Line(
        _before_float, _after_float, _LOWEST_FLOAT - 1, _LOWEST_FLOAT, _BEYOND_FLOAT, _BEYOND_FLOAT + 1
    ),
    Kind.STRING: Line(lambda text: "\1" + text, lambda text: "\1" + text + "\0", "", "\1", "\2", "\2"),
    Kind.BOOL: Line(int, lambda flag: flag + 1, -1, 0, 2, 2),
    Kind.STRINGS: Line(lambda texts: 0, lambda texts: 1, -1, 0, 1, 1),
}


def point_of(line: Line, value: Scalar | None) -> Cut:
    """The cut before an event's value, NaN and None included; the value is in an interval if this cut is."""
    if value is None:
        return line.missing
    return line.top if value != value else line.before(value)


# --- sets of values -------------------------------------------------------------------------------


Cuts = tuple[Cut, ...]


def only_string(cuts: Cuts, i: int) -> str | None:
    """The string in the interval at `cuts[i]` if it holds exactly one."""
    low: str = cuts[i]
    return low[1:] if low and cuts[i + 1] == low + "\0" else None


def intersection(a: Cuts, b: Cuts) -> Cuts:
    if len(a) == 2 and len(b) == 2:
        low = a[0] if a[0] >= b[0] else b[0]
        high = a[1] if a[1] <= b[1] else b[1]
        return (low, high) if low < high else ()
    shared: list[Cut] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i], b[j]), min(a[i + 1], b[j + 1])
        if low < high:
            shared += (low, high)
        if a[i + 1] <= b[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(shared)


def common(sets: Sequence[Cuts]) -> Cuts:
    """The intersection of one or more sets of n cuts, in O(n log n): in pairs, since one after the other
    would copy the many gaps of each `!=` constant."""
    while len(sets) > 1:
        pairs = [intersection(sets[i], sets[i + 1]) for i in range(0, len(sets) - 1, 2)]
        sets = [*pairs, sets[-1]] if len(sets) % 2 else pairs
    return sets[0]


def union(sets: list[Cuts]) -> Cuts:
    """The union of any number of sets; sets that touch become one interval."""
    pairs = sorted([(cuts[i], cuts[i + 1]) for cuts in sets for i in range(0, len(cuts), 2)])
    merged: list[Cut] = []
    for low, high in pairs:
        if merged and low <= merged[-1]:
            merged[-1] = max(merged[-1], high)
        else:
            merged += (low, high)
    return tuple(merged)


def difference(a: Cuts, b: Cuts, line: Line) -> Cuts:
    if not b:
        return a
    ends = (line.missing, *b, line.end)
    gaps: list[Cut] = []
    for i in range(0, len(ends), 2):
        if ends[i] < ends[i + 1]:
            gaps += (ends[i], ends[i + 1])
    return intersection(a, tuple(gaps))


def within(inner: Cuts, outer: Cuts) -> bool:
    j = 0
    for i in range(0, len(inner), 2):
        while j < len(outer) and outer[j + 1] <= inner[i]:
            j += 2
        if j == len(outer) or inner[i] < outer[j] or inner[i + 1] > outer[j + 1]:
            return False
    return True


def overlap(a: Cuts, b: Cuts) -> bool:
    if len(a) == 2 and len(b) == 2:
        return bool(a[0] < b[1] and b[0] < a[1])
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] < b[j + 1] and b[j] < a[i + 1]:
            return True
        if a[i + 1] <= b[j + 1]:
            i += 2
        else:
            j += 2
    return False

"""Hulls: one interval per attribute around one or several roots; and a hull as a filter.

Numbers and timestamps have any interval, strings and booleans a single value. All hulls of the same
attributes have one structure, `x between $1 and $2 and s == $3`: an open end is a bound at infinity, so
adding or dropping a bound updates a value (proposed in Jayaram et al., section 6). An attribute without an
interval may be missing, which no bounds express: another set of attributes is another structure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from struct import Struct

from covey.matcher import EventType, Filter
from covey.matcher.covering.cuts import LINES, Cut, only_string
from covey.matcher.covering.region import Region
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MIN
from covey.matcher.expressions.expression import And, Predicate, Scalar, Variable
from covey.matcher.expressions.operators import Operator

Span = tuple[Cut, Cut]
"""A half-open interval of cuts, as in `matcher/covering/cuts.py`."""

Hull = dict[str, Span]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SINGLE = (Kind.STRING, Kind.BOOL)
_BITS = Struct("<q").pack
_DOUBLE = Struct("<d").unpack


def exact_hull(region: Region) -> Hull | None:
    """The hull equal to a region, None if there is none."""
    conjunctions = region.conjunctions
    if conjunctions is None or len(conjunctions) != 1 or conjunctions[0].atoms:
        return None
    hull: Hull = {}
    for attribute in sorted(conjunctions[0].cuts):
        cuts = conjunctions[0].cuts[attribute]
        if len(cuts) != 2 or ends(region.event_type.attributes[attribute], cuts[0], cuts[1]) is None:
            return None
        hull[attribute] = (cuts[0], cuts[1])
    return hull


def around(region: Region) -> Hull:
    """A hull that covers a region; an arbitrary one for an empty region."""
    hull: Hull = {}
    for conjunction in (region.conjunctions or ())[:1]:
        for attribute in sorted(conjunction.cuts):
            box = region.box_of(attribute)
            if box is not None and ends(region.event_type.attributes[attribute], *box) is not None:
                hull[attribute] = box
    return hull


def join(event_type: EventType, a: Hull, b: Hull) -> Hull:
    """The smallest hull that covers both."""
    joined: Hull = {}
    for attribute, (low, high) in a.items():
        other = b.get(attribute)
        if other is None:
            continue
        if event_type.attributes[attribute] not in _SINGLE:
            joined[attribute] = (min(low, other[0]), max(high, other[1]))
        elif other == (low, high):
            joined[attribute] = other
    return joined


def covers_hull(wider: Hull, narrower: Hull) -> bool:
    for attribute, (low, high) in wider.items():
        other = narrower.get(attribute)
        if other is None or other[0] < low or other[1] > high:
            return False
    return True


def axes(event_type: EventType, hull: Hull) -> list[str]:
    """The attributes with an interval that can grow."""
    return [attribute for attribute in hull if event_type.attributes[attribute] not in _SINGLE]


def ends(kind: Kind, low: Cut, high: Cut) -> tuple[Scalar, Scalar] | None:
    """The least and the greatest value between two cuts, None if no closed interval is equivalent."""
    line = LINES[kind]
    if kind is Kind.STRING:
        only = only_string((low, high), 0)
        return None if only is None else (only, only)
    if low < line.low or high > line.top or kind is Kind.STRINGS:
        return None  # missing values, NaN, or any list
    if kind is Kind.BOOL:
        return (bool(low), bool(low)) if high == low + 1 else None
    if kind is Kind.INT64:
        return low, high - 1
    if kind is Kind.FLOAT64:
        return _float_of(low), _float_of(high - 1)
    try:
        return _EPOCH + timedelta(microseconds=low), _EPOCH + timedelta(microseconds=high - 1)
    except OverflowError:
        return None


def _float_of(key: int) -> float:
    value: float = _DOUBLE(_BITS(key if key >= 0 else INT64_MIN - key))[0]
    return value


class Shape:
    """The structure of all hulls of one set of attributes."""

    __slots__ = ("_event_type", "_parts", "structure")

    def __init__(self, event_type: EventType, attributes: tuple[str, ...]) -> None:
        predicates = []
        parts: dict[str, tuple[str, int]] = {}
        for attribute in attributes:
            low, high = Variable(f"low{len(parts)}"), Variable(f"high{len(parts)}")
            parts |= {low.name: (attribute, 0), high.name: (attribute, 1)}
            if event_type.attributes[attribute] in _SINGLE:
                predicates.append(Predicate(attribute, Operator.EQ, (low,)))
            else:
                predicates.append(Predicate(attribute, Operator.BETWEEN, (low, high)))
        self._event_type = event_type
        self.structure, operands = Filter(event_type, And(tuple(predicates))).lift()
        self._parts = []
        for place, operand in enumerate(operands, 1):
            assert isinstance(operand, Variable)
            self._parts.append((str(place), *parts[operand.name]))

    def values(self, hull: Hull) -> dict[str, Scalar]:
        """Values of the structure's variables; `hull` has the shape's attributes."""
        values: dict[str, Scalar] = {}
        for name, attribute, end in self._parts:
            pair = ends(self._event_type.attributes[attribute], *hull[attribute])
            assert pair is not None
            values[name] = pair[end]
        return values

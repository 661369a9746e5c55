"""From values to cuts: what is known beforehand of operands and predicates, as functions of the values alone.

Routing evaluates the same few predicates with new values tens of thousands of times a second. So whatever an
operand or a predicate says that does not depend on values (kind, operator, scale, which end of an interval)
is decided once, and what is left is a function with as few steps as can be. All of them raise `KeyError` when
a variable has no value. Invariant: they come to what `values.evaluate` and `intervals.py` say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from covey.matcher.covering.intervals import (
    LINES,
    Cut,
    Cuts,
    Line,
    difference,
    float_cut,
    float_cuts,
    interval,
    prefix,
    union,
)
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Constant, Operand, Operator, Predicate, Scalar, Variable
from covey.matcher.expressions.values import affine, normal

Values = Mapping[str, Scalar]
Getter = Callable[[Values], Scalar]
Span = Callable[[Values], tuple[Cut, Cut]]
"""The ends of one interval."""


def getter(operand: Operand, kind: Kind) -> Getter:
    """What an operand stands for on an attribute of a kind, in the form that `values.normal` gives."""
    if isinstance(operand, Constant):
        constant = operand.value
        return lambda values: constant
    name, usual = operand.name, _USUAL.get(kind)
    if usual is None:
        if operand.scale == 1 and operand.offset == 0:
            return itemgetter(name)
        return lambda values: normal(kind, affine(operand, values[name]))
    if operand.scale == 1 and operand.offset == 0:

        def given(values: Values) -> Scalar:
            value = values[name]
            return value if value.__class__ is usual else normal(kind, value)

        return given
    if usual is float:
        scale, offset = float(operand.scale), float(operand.offset)

        def of_float(values: Values) -> Scalar:
            value = values[name]
            if value.__class__ is float:  # by far the most usual: in one step what the others come to
                return scale * value + offset
            return normal(kind, affine(operand, value))

        return of_float
    return lambda values: normal(kind, affine(operand, values[name]))


_USUAL: dict[Kind, type] = {Kind.FLOAT64: float, Kind.INT64: int}
"""What a number of a kind is in the form that `normal` gives, nearly always."""


# --- one interval -------------------------------------------------------------------------------------------

_End = tuple[Operand, bool]
"""An operand, and whether the end lies after it rather than before."""

_ENDS: dict[Operator, tuple[bool | None, bool | None]] = {
    Operator.LT: (None, False),
    Operator.LE: (None, True),
    Operator.GT: (True, None),
    Operator.GE: (False, None),
    Operator.EQ: (False, True),
    Operator.BETWEEN: (False, True),
}
"""Whether the low and the high end lie after the operand; None for an open end."""


def span_of(predicates: Sequence[Predicate], kind: Kind) -> Span | None:
    """The one interval that predicates on one attribute leave; None if it may be several.

    It is empty when its low end is not below its high end.
    """
    lows: list[_End] = []
    highs: list[_End] = []
    for predicate in predicates:
        ends = _ENDS.get(predicate.operator)
        if ends is None:
            return None
        if ends[0] is not None:
            lows.append((predicate.operands[0], ends[0]))
        if ends[1] is not None:
            highs.append((predicate.operands[-1], ends[1]))
    span = _any_span(kind, lows, highs)
    if kind is not Kind.FLOAT64 or len(lows) > 1 or len(highs) > 1:
        return span
    return _float_span(lows[0] if lows else None, highs[0] if highs else None, span)


def _any_span(kind: Kind, lows: list[_End], highs: list[_End]) -> Span:
    line = LINES[kind]
    low_ends, high_ends = [[_ending(*end, kind) for end in ends] for ends in (lows, highs)]
    if len(lows) == len(highs) == 1:
        low_end, high_end = low_ends[0], high_ends[0]
        return lambda values: (low_end(values), high_end(values))

    def span(values: Values) -> tuple[Cut, Cut]:
        low = max([end(values) for end in low_ends], default=line.low)
        return low, min([end(values) for end in high_ends], default=line.top)

    return span


def _ending(operand: Operand, after: bool, kind: Kind) -> Callable[[Values], Cut]:
    get, edge = getter(operand, kind), LINES[kind].after if after else LINES[kind].before
    return lambda values: edge(get(values))


def _float_span(low: _End | None, high: _End | None, general: Span) -> Span:
    """The same for floats with one operand at each end, as bounds and boxes have it, in as few steps as can
    be: it takes most of the time of a region.
    """
    first, last = low or high, high or low
    assert first is not None
    assert last is not None
    if not isinstance(first[0], Variable) or not isinstance(last[0], Variable):
        return general
    one, other = first[0], last[0]
    name, scale, offset = one.name, float(one.scale), float(one.offset)
    bottom, top = LINES[Kind.FLOAT64].low, LINES[Kind.FLOAT64].top

    if one == other:  # a bound, or an equality
        after_low, after_high = low is not None and low[1], high is not None and high[1]

        def bound(values: Values) -> tuple[Cut, Cut]:
            value = values[name]
            if value.__class__ is not float:
                return general(values)
            cut = float_cut(scale * value + offset)
            return bottom if low is None else cut + after_low, top if high is None else cut + after_high

        return bound
    name_high, scale_high, offset_high = other.name, float(other.scale), float(other.offset)
    after_low, after_high = first[1], last[1]

    def box(values: Values) -> tuple[Cut, Cut]:
        value, value_high = values[name], values[name_high]
        if value.__class__ is not float or value_high.__class__ is not float:
            return general(values)
        low_cut, high_cut = float_cuts(scale * value + offset, scale_high * value_high + offset_high)
        return low_cut + after_low, high_cut + after_high

    return box


# --- any predicate ------------------------------------------------------------------------------------------


def cuts_of(predicate: Predicate, kind: Kind) -> Callable[[Values], Cuts]:
    """How to come from values to the set of the attribute's values that satisfy a predicate."""
    line, operator = LINES[kind], predicate.operator
    getters = [getter(operand, kind) for operand in predicate.operands]
    if operator is Operator.EXISTS:
        return lambda values: line.present
    if operator is Operator.NOT_EXISTS:
        return lambda values: (line.missing, line.low)
    if operator is Operator.EQ:
        return _points(line, getters[0])
    if operator in (Operator.NE, Operator.IN, Operator.NOT_IN):
        outside = operator is not Operator.IN
        points = [_points(line, getter) for getter in getters]

        def members(values: Values) -> Cuts:
            inside = union([point(values) for point in points])
            return difference(line.present, inside, line) if outside else inside

        return members
    if operator is Operator.PREFIX:
        return lambda values: prefix(str(getters[0](values)))
    if operator is Operator.NOT_PREFIX:
        return lambda values: difference(line.present, prefix(str(getters[0](values))), line)
    if operator is Operator.BETWEEN:
        return lambda values: interval(line.before(getters[0](values)), line.after(getters[1](values)))
    if operator is Operator.NOT_BETWEEN:
        below, above = _below(line, getters[0], True), _above(line, getters[1], True)
        return lambda values: union([below(values), above(values)])
    strict = operator is Operator.LT or operator is Operator.GT
    if operator is Operator.LT or operator is Operator.LE:
        return _below(line, getters[0], strict)
    return _above(line, getters[0], strict)


def _points(line: Line, get: Callable[[Values], Scalar]) -> Callable[[Values], Cuts]:
    before, after = line.before, line.after

    def cuts(values: Values) -> Cuts:
        value = get(values)
        low, high = before(value), after(value)
        return (low, high) if low < high else ()

    return cuts


def _below(line: Line, get: Callable[[Values], Scalar], strict: bool) -> Callable[[Values], Cuts]:
    edge, low = line.before if strict else line.after, line.low

    def cuts(values: Values) -> Cuts:
        cut = edge(get(values))
        return (low, cut) if low < cut else ()

    return cuts


def _above(line: Line, get: Callable[[Values], Scalar], strict: bool) -> Callable[[Values], Cuts]:
    edge, top = line.after if strict else line.before, line.top

    def cuts(values: Values) -> Cuts:
        cut = edge(get(values))
        return (cut, top) if cut < top else ()

    return cuts

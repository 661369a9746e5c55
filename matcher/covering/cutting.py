"""From values to cuts: operands and predicates as functions of the variables' values.

Routing evaluates the same predicates with new values tens of thousands of times a second, so everything that
does not depend on values is evaluated once. The functions raise `KeyError` if a variable has no value.
Invariant: they return what `values.evaluate` and `cuts.py` imply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from covey.matcher.covering.cuts import LINES, Cut, Cuts, Line, difference, float_cut, float_cuts, union
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Constant, Operand, Predicate, Scalar, Variable
from covey.matcher.expressions.operators import SPECS, Interval
from covey.matcher.expressions.values import affine, normal

Values = Mapping[str, Scalar]
Getter = Callable[[Values], Scalar]
Span = Callable[[Values], tuple[Cut, Cut]]  # the ends of one interval


def getter(operand: Operand, kind: Kind | None) -> Getter:
    """The value of an operand on an attribute of a kind, as a function; in the form of `values.normal`."""
    if isinstance(operand, Constant):
        constant = operand.value
        return lambda values: constant
    name, usual = operand.name, _USUAL.get(kind)
    if usual is None:
        if operand.scale == 1 and operand.offset == 0:
            return itemgetter(name)
        return lambda values: normal(kind, affine(operand, values[name]))
    if operand.scale == 1 and operand.offset == 0:

        def plain(values: Values) -> Scalar:
            value = values[name]
            return value if value.__class__ is usual else normal(kind, value)

        return plain
    if usual is float:
        scale, offset = float(operand.scale), float(operand.offset)

        def of_float(values: Values) -> Scalar:
            value = values[name]
            if value.__class__ is float:  # by far the most usual: in one step what the others come to
                return scale * value + offset
            return normal(kind, affine(operand, value))

        return of_float
    return lambda values: normal(kind, affine(operand, values[name]))


_USUAL: dict[Kind | None, type] = {Kind.FLOAT64: float, Kind.INT64: int}
"""The class of nearly all numbers in `normal` form."""


# --- one interval -------------------------------------------------------------------------------------------

_End = tuple[Operand, bool]  # the operand, and whether the end lies after it rather than before


def span_of(predicates: Sequence[Predicate], kind: Kind) -> Span | None:
    """The one interval that predicates on one attribute leave, empty if low >= high; None if possibly
    several."""
    lows: list[_End] = []
    highs: list[_End] = []
    for predicate in predicates:
        spec = SPECS[predicate.operator]
        if not spec.is_interval:
            return None
        ((low, high),) = spec.intervals
        if low is not None:
            lows.append((predicate.operands[low.operand], low.after))
        if high is not None:
            highs.append((predicate.operands[high.operand], high.after))
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
    """The interval of floats with at most one operand per end, in few steps: it takes most of the time of a
    region."""
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
    """The set of the attribute's values that satisfy a predicate, as a function of the variables' values."""
    line, spec, operands = LINES[kind], SPECS[predicate.operator], predicate.operands
    if spec.presence is not None:
        cuts = line.present if spec.presence else (line.missing, line.low)
        return lambda values: cuts
    if spec.outside:
        inside = cuts_of(predicate.negated(), kind)
        return lambda values: difference(line.present, inside(values), line)
    if spec.span is not None:
        return _strings(line, getter(operands[0], kind), spec.span)
    groups = [operands] if spec.operand_count else [(operand,) for operand in operands]
    sets = [_between(line, kind, interval, group) for group in groups for interval in spec.intervals]
    if len(sets) == 1:
        return sets[0]
    return lambda values: union([cuts(values) for cuts in sets])


def _strings(
    line: Line, get: Getter, span: Callable[[str], tuple[str, str | None]]
) -> Callable[[Values], Cuts]:
    def cuts(values: Values) -> Cuts:
        least, above = span(str(get(values)))
        return line.before(least), line.top if above is None else line.before(above)

    return cuts


def _between(
    line: Line, kind: Kind, interval: Interval, operands: Sequence[Operand]
) -> Callable[[Values], Cuts]:
    low, high = interval
    if low is not None and high is not None and low.operand == high.operand:
        return _point(line, getter(operands[low.operand], kind))
    low_end = None if low is None else _ending(operands[low.operand], low.after, kind)
    high_end = None if high is None else _ending(operands[high.operand], high.after, kind)

    def cuts(values: Values) -> Cuts:
        low_cut = line.low if low_end is None else low_end(values)
        high_cut = line.top if high_end is None else high_end(values)
        return (low_cut, high_cut) if low_cut < high_cut else ()

    return cuts


def _point(line: Line, get: Getter) -> Callable[[Values], Cuts]:
    before, after = line.before, line.after

    def cuts(values: Values) -> Cuts:
        value = get(values)
        low, high = before(value), after(value)
        return (low, high) if low < high else ()

    return cuts

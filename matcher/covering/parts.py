"""Parts: what a predicate tests, as intervals of an attribute, absence, and derived booleans of strings."""

from __future__ import annotations

from dataclasses import dataclass

from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Operand, Predicate
from covey.matcher.expressions.operators import SPECS, Interval, Operator, end_operator


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an interval; `strict` leaves the end itself out."""

    operand: Operand
    strict: bool


@dataclass(frozen=True, slots=True)
class Test:
    """`lower <= attribute <= upper` in the order of the attribute's kind; of several bounds all must hold.

    Equality is one same bound, not strict, on both sides. A side without bounds is open up to and including
    infinity, but NaN lies in no interval. Without any bound the test is `exists`, which NaN passes; with
    `nan` it is "exactly NaN". On strings there are only equalities and `exists`.
    """

    __test__ = False  # not for pytest

    attribute: str
    lower: tuple[Bound, ...] = ()
    upper: tuple[Bound, ...] = ()
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """`not exists(attribute)`."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Text:
    """The attribute, a string, is there, and `attribute operator operand` is `expected`.

    The operator is PREFIX, SUFFIX, CONTAINS, LT, LE, GT, GE, or EQ; all but EQ, which is only ever expected
    to be false (`!=`), also occur with `expected` true.
    """

    attribute: str
    operator: Operator
    operand: Operand
    expected: bool


Part = Test | Absent | Text

Alternatives = list[tuple[Part, ...]]
"""A disjunction of conjunctions of parts."""


def requirements(predicate: Predicate, kind: Kind) -> list[Alternatives]:
    """The parts of a predicate: it holds where all requirements do, each by one of its alternatives.

    A test of them has at most one bound on a side.
    """
    attribute, operands, spec = predicate.attribute, predicate.operands, SPECS[predicate.operator]
    if spec.presence is not None:
        return [[(Test(attribute) if spec.presence else Absent(attribute),)]]
    if spec.outside:
        unlike = [_unlike(attribute, kind, spec.complement, operand) for operand in dict.fromkeys(operands)]
        return unlike or [[(Test(attribute),)]]
    if kind is Kind.STRING and spec.column is not None and not spec.is_point:
        return [[(Text(attribute, predicate.operator, operands[0], True),)]]
    groups = [operands] if spec.operand_count else [(operand,) for operand in dict.fromkeys(operands)]
    return [[_within(attribute, kind, each, group) for group in groups for each in spec.intervals]]


def _unlike(attribute: str, kind: Kind, operator: Operator, operand: Operand) -> Alternatives:
    """The present values that do not pass an operator."""
    point = SPECS[operator].is_point
    if kind is Kind.STRING:
        return [(Text(attribute, Operator.EQ if point else operator, operand, False),)]
    assert point
    bound = (Bound(operand, True),)
    either: Alternatives = [(Test(attribute, (), bound),), (Test(attribute, bound, ()),)]
    return [*either, (Test(attribute, nan=True),)] if kind is Kind.FLOAT64 else either


def _within(
    attribute: str, kind: Kind, interval: Interval, operands: tuple[Operand, ...]
) -> tuple[Part, ...]:
    low, high = interval
    if kind is Kind.STRING and (low is None or high is None or low.operand != high.operand):
        return tuple(
            [
                Text(attribute, end_operator(end, is_low), operands[end.operand], True)
                for end, is_low in ((low, True), (high, False))
                if end is not None
            ]
        )
    lower = () if low is None else (Bound(operands[low.operand], low.after),)
    upper = () if high is None else (Bound(operands[high.operand], not high.after),)
    return (Test(attribute, lower, upper),)

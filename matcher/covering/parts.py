"""Parts: what a predicate tests, as intervals of an attribute, absence, and derived booleans of strings."""

from __future__ import annotations

from dataclasses import dataclass

from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import Constant, Operand, Predicate, Scalar
from covey.matcher.expressions.operators import SPECS, Interval, Operator, Syntax


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an interval; `strict` leaves the end itself out. `past`: the end is the least string above
    all that begin with the operand.
    """

    operand: Operand
    strict: bool
    past: bool = False


@dataclass(frozen=True, slots=True)
class Test:
    """`lower <= attribute <= upper` in the order of the attribute's kind; of several bounds all must hold.

    Equality is one same bound, not strict, on both sides. A side without bounds is open up to and including
    infinity, but NaN lies in no interval. Without any bound the test is `exists`, which NaN passes; with
    `nan` it is "exactly NaN".
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
class Members:
    """The constants of a long list, each once."""

    value: tuple[Scalar, ...]


PartOperand = Operand | Members


@dataclass(frozen=True, slots=True)
class Text:
    """The attribute is there, and `attribute operator operand` is `expected`; the operator is SUFFIX or
    CONTAINS, on a string, or IN, whose operand is `Members`.
    """

    attribute: str
    operator: Operator
    operand: PartOperand
    expected: bool

    def decides(self, value: Scalar) -> bool | None:
        """Whether a value passes; None where the operand is a variable."""
        if isinstance(self.operand, Members):
            return (value in self.operand.value) is self.expected
        if not isinstance(self.operand, Constant):
            return None
        return passes(self.operator, value, [self.operand.value]) is self.expected


Part = Test | Absent | Text

Alternatives = list[tuple[Part, ...]]
"""A disjunction of conjunctions of parts."""


def members_of(predicate: Predicate, most: int) -> Members | None:
    """The constants of an `in` or `not in`, if they are more than `most` and there are no variables."""
    if SPECS[predicate.operator].syntax is not Syntax.LIST or len(predicate.operands) <= most:
        return None
    constants = [operand.value for operand in predicate.operands if isinstance(operand, Constant)]
    if len(constants) < len(predicate.operands):
        return None
    return Members(tuple(dict.fromkeys(constants)))


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
    if spec.span is not None:
        (operand,) = operands
        return [[(Test(attribute, (Bound(operand, False),), (Bound(operand, True, past=True),)),)]]
    if spec.is_text:
        return [[(Text(attribute, predicate.operator, operands[0], True),)]]
    groups = [operands] if spec.operand_count else [(operand,) for operand in dict.fromkeys(operands)]
    return [[_within(attribute, each, group) for group in groups for each in spec.intervals]]


def _unlike(attribute: str, kind: Kind, operator: Operator, operand: Operand) -> Alternatives:
    """The present values that do not pass an operator: a point, a prefix, or a text."""
    if SPECS[operator].is_text:
        return [(Text(attribute, operator, operand, False),)]
    above = Bound(operand, True) if SPECS[operator].is_point else Bound(operand, False, past=True)
    either: Alternatives = [(Test(attribute, (), (Bound(operand, True),)),), (Test(attribute, (above,), ()),)]
    return [*either, (Test(attribute, nan=True),)] if kind is Kind.FLOAT64 else either


def _within(attribute: str, interval: Interval, operands: tuple[Operand, ...]) -> tuple[Part, ...]:
    low, high = interval
    lower = () if low is None else (Bound(operands[low.operand], low.after),)
    upper = () if high is None else (Bound(operands[high.operand], not high.after),)
    return (Test(attribute, lower, upper),)

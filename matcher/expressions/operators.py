"""The operators of filters: one entry each, which every module that handles operators reads.

An entry has an operator's syntax, its attributes and operands, the truth for a value, and the values that
pass: intervals of the attribute's order (`Interval`), on strings a range of them (`span`) or a derived
boolean column. Evaluation reads `passes`; normal form, covering, plans and columns read the other fields, so
that each checks the other. An operator, as `!=`, is *outside* its complement if it passes every present
value, NaN included, that the complement does not. Comparisons are not: NaN passes neither `<` nor `>=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple

from covey.matcher.events.event_type import Kind


class Operator(StrEnum):
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "not in"
    BETWEEN = "between"
    NOT_BETWEEN = "not between"
    PREFIX = "prefix"
    NOT_PREFIX = "not prefix"
    SUFFIX = "suffix"
    NOT_SUFFIX = "not suffix"
    CONTAINS = "contains"
    NOT_CONTAINS = "not contains"
    EXISTS = "exists"
    NOT_EXISTS = "not exists"

    @property
    def complement(self) -> Operator:
        return SPECS[self].complement


class Syntax(Enum):
    COMPARISON = auto()  # `price < 5` or `5 > price`
    WORD = auto()  # `firm prefix "A"`
    RANGE = auto()  # `price between 1 and 2`
    LIST = auto()  # `firm in ("A", "B")`
    PRESENCE = auto()  # `exists(firm)`


class End(NamedTuple):
    """An end of an interval: before or `after` the value of the operand of that number."""

    operand: int
    after: bool


class Interval(NamedTuple):
    """The values between two ends; None is the end of the order, infinity included and NaN not."""

    low: End | None
    high: End | None


Passes = Callable[[Any, Sequence[Any]], bool]
"""The truth for a present value, which may be NaN, and the values of the operands."""


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSpec:
    complement: Operator
    syntax: Syntax
    passes: Passes
    kinds: frozenset[Kind] = frozenset(Kind) - {Kind.STRINGS}  # of attributes
    operand_count: int | None = 1
    """None for any number: the operator is true for any of them, or if it is `outside` for all."""
    intervals: tuple[Interval, ...] = ()  # values in any of these pass
    outside: bool = False
    presence: bool | None = None  # required presence of the attribute, if it tests nothing else
    span: Callable[[str], tuple[str, str | None]] | None = None
    """The strings that pass as a range: the least, and the least above all of them, or None."""
    is_text: bool = False  # neither an interval nor a range of strings passes
    weaker: tuple[Operator, ...] = ()  # true wherever this one is, with the same operands
    mirrored: Operator | None = None  # the operator with its two sides exchanged

    @property
    def is_interval(self) -> bool:
        """Whether it holds in one interval between its operands."""
        return len(self.intervals) == 1 and self.operand_count is not None

    @property
    def widening(self) -> dict[int, int]:
        """For operands that bound a single interval: 1 if a greater value widens it, -1 if a smaller one."""
        if not self.is_interval or self.is_point:
            return {}
        ((low, high),) = self.intervals
        return {end.operand: sign for end, sign in ((low, -1), (high, 1)) if end is not None}

    @property
    def is_point(self) -> bool:
        """Whether it holds for a value that equals an operand."""
        return self.intervals == _POINT


_ALL = frozenset(Kind)
_ORDERED = _ALL - {Kind.BOOL, Kind.STRINGS}
_TEXT = frozenset({Kind.STRING})

_POINT = (Interval(End(0, False), End(0, True)),)
_BELOW, _UP_TO = (Interval(None, End(0, False)),), (Interval(None, End(0, True)),)
_ABOVE, _FROM = (Interval(End(0, True), None),), (Interval(End(0, False), None),)
_BETWEEN = (Interval(End(0, False), End(1, True)),)
_NOT_BETWEEN = (Interval(None, End(0, False)), Interval(End(1, True), None))


def prefix_span(text: str) -> tuple[str, str | None]:
    """The least string with a prefix, and the least string above all of them."""
    for i in range(len(text) - 1, -1, -1):
        code = ord(text[i]) + 1
        if code == 0xD800:  # strings hold no lone surrogates
            code = 0xE000
        if code <= 0x10FFFF:
            return text, text[:i] + chr(code)
    return text, None


def _outside(
    complement: Operator, spec: OperatorSpec, passes: Passes, *, mirrored: Operator | None = None
) -> OperatorSpec:
    return OperatorSpec(
        complement, spec.syntax, passes, spec.kinds, spec.operand_count, outside=True, mirrored=mirrored
    )


# Python compares int with float exactly, strings by code point, and NaN with nothing, as filters do.
_EQ = OperatorSpec(
    Operator.NE, Syntax.COMPARISON, lambda value, operands: bool(value == operands[0]),
    intervals=_POINT, weaker=(Operator.LE, Operator.GE), mirrored=Operator.EQ,
)  # fmt: skip
_IN = OperatorSpec(
    Operator.NOT_IN, Syntax.LIST, lambda value, operands: value in operands, _ORDERED, None, _POINT,
)  # fmt: skip
_PREFIX = OperatorSpec(
    Operator.NOT_PREFIX, Syntax.WORD, lambda value, operands: value.startswith(operands[0]), _TEXT,
    span=prefix_span,
)  # fmt: skip
_SUFFIX = OperatorSpec(
    Operator.NOT_SUFFIX, Syntax.WORD, lambda value, operands: value.endswith(operands[0]), _TEXT,
    is_text=True, weaker=(Operator.CONTAINS,),
)  # fmt: skip
_CONTAINS = OperatorSpec(
    Operator.NOT_CONTAINS, Syntax.WORD, lambda value, operands: operands[0] in value, _TEXT,
    is_text=True,
)  # fmt: skip

SPECS: dict[Operator, OperatorSpec] = {
    Operator.EQ: _EQ,
    Operator.NE: _outside(
        Operator.EQ, _EQ, lambda value, operands: bool(value != operands[0]), mirrored=Operator.NE
    ),
    Operator.LT: OperatorSpec(
        Operator.GE, Syntax.COMPARISON, lambda value, operands: bool(value < operands[0]), _ORDERED,
        intervals=_BELOW,
        weaker=(Operator.LE, Operator.NE), mirrored=Operator.GT,
    ),
    Operator.LE: OperatorSpec(
        Operator.GT, Syntax.COMPARISON, lambda value, operands: bool(value <= operands[0]), _ORDERED,
        intervals=_UP_TO, mirrored=Operator.GE,
    ),
    Operator.GT: OperatorSpec(
        Operator.LE, Syntax.COMPARISON, lambda value, operands: bool(value > operands[0]), _ORDERED,
        intervals=_ABOVE,
        weaker=(Operator.GE, Operator.NE), mirrored=Operator.LT,
    ),
    Operator.GE: OperatorSpec(
        Operator.LT, Syntax.COMPARISON, lambda value, operands: bool(value >= operands[0]), _ORDERED,
        intervals=_FROM, mirrored=Operator.LE,
    ),
    Operator.IN: _IN,
    Operator.NOT_IN: _outside(
        Operator.IN, _IN, lambda value, operands: value not in operands
    ),
    Operator.BETWEEN: OperatorSpec(
        Operator.NOT_BETWEEN, Syntax.RANGE,
        lambda value, operands: bool(operands[0] <= value <= operands[1]), _ORDERED, 2, _BETWEEN,
    ),
    Operator.NOT_BETWEEN: OperatorSpec(
        Operator.BETWEEN, Syntax.RANGE,
        lambda value, operands: bool(value < operands[0] or value > operands[1]), _ORDERED, 2, _NOT_BETWEEN,
    ),
    Operator.PREFIX: _PREFIX,
    Operator.NOT_PREFIX: _outside(
        Operator.PREFIX, _PREFIX, lambda value, operands: not value.startswith(operands[0])
    ),
    Operator.SUFFIX: _SUFFIX,
    Operator.NOT_SUFFIX: _outside(
        Operator.SUFFIX, _SUFFIX, lambda value, operands: not value.endswith(operands[0])
    ),
    Operator.CONTAINS: _CONTAINS,
    Operator.NOT_CONTAINS: _outside(
        Operator.CONTAINS, _CONTAINS, lambda value, operands: operands[0] not in value
    ),
    Operator.EXISTS: OperatorSpec(
        Operator.NOT_EXISTS, Syntax.PRESENCE, lambda value, operands: True, _ALL, 0, presence=True
    ),
    Operator.NOT_EXISTS: OperatorSpec(
        Operator.EXISTS, Syntax.PRESENCE, lambda value, operands: False, _ALL, 0, presence=False
    ),
}  # fmt: skip

PASSES: dict[Operator, Passes] = {operator: spec.passes for operator, spec in SPECS.items()}

OPAQUE = frozenset(
    operator for operator, spec in SPECS.items() if spec.is_text or SPECS[spec.complement].is_text
)
"""Operators on strings that are no range of strings."""

COMPARISONS = {str(op): op for op, spec in SPECS.items() if spec.syntax is Syntax.COMPARISON}
WORDS = {
    str(op): op
    for op, spec in SPECS.items()
    if spec.syntax in (Syntax.WORD, Syntax.RANGE, Syntax.LIST) and not str(op).startswith("not ")
}
"""Operators written as a word between the attribute and its operands."""


def spellings(kind: Kind) -> list[str]:
    """The operators that follow an attribute of a kind, as they are written."""
    return [word for word, op in (COMPARISONS | WORDS).items() if kind in SPECS[op].kinds]

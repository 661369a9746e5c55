"""The expression tree of a filter: predicates joined by `and` and `or`, in negation normal form.

There is no `not` node: the parser and the builder push it to the predicates (De Morgan), whose operators all
have a complement. The rules of truth are in docs/filters.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from covey.matcher.expressions.operators import Operator

Scalar = bool | int | float | str | datetime
"""What a constant or a variable may hold. A datetime without a zone is taken as UTC."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that stands in the filter itself."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Variable:
    """`scale * $name + offset`. On a timestamp attribute the scale is 1 and the offset counts seconds.

    Integers are combined exactly; as soon as one of the three is a float, in float64.
    """

    name: str
    scale: int | float = 1
    offset: int | float = 0

    def __hash__(self) -> int:
        return hash(self.name)  # a fourth of the time of a hash of all three


Operand = Constant | Variable


@dataclass(frozen=True, slots=True)
class Predicate:
    """`attribute operator operands`: none for EXISTS, two for BETWEEN, any number for IN, else one."""

    attribute: str
    operator: Operator
    operands: tuple[Operand, ...] = ()

    def negated(self) -> Predicate:
        return Predicate(self.attribute, self.operator.complement, self.operands)


@dataclass(frozen=True, slots=True)
class And:
    """True when all parts are; the empty conjunction matches every event."""

    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Or:
    """True when any part is; the empty disjunction matches nothing."""

    parts: tuple[Expression, ...] = ()


Expression = Predicate | And | Or

TRUE = And()
FALSE = Or()


def all_of(parts: Iterable[Expression]) -> Expression:
    """The conjunction in normal form: nested ones joined, a single part as it is, FALSE if any part is."""
    flat: list[Expression] = []
    for part in parts:
        if isinstance(part, And):
            flat.extend(part.parts)
        elif part == FALSE:
            return FALSE
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def any_of(parts: Iterable[Expression]) -> Expression:
    """The disjunction in normal form: nested ones joined, a single part as it is, TRUE if any part is."""
    flat: list[Expression] = []
    for part in parts:
        if isinstance(part, Or):
            flat.extend(part.parts)
        elif part == TRUE:
            return TRUE
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else Or(tuple(flat))

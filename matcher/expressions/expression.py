"""The expression tree of a filter: predicates joined by `and` and `or`, in negation normal form.

There is no `not` node: parser and builder push it to the predicates (De Morgan), whose operators all have a
complement. The rules of truth are in docs/filters.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from covey.matcher.expressions.operators import Operator

Scalar = bool | int | float | str | datetime
"""The values of constants and variables. A datetime without a zone is UTC."""


@dataclass(frozen=True, slots=True)
class Constant:
    value: Scalar


@dataclass(frozen=True, slots=True)
class Variable:
    """`scale * $name + offset`. On a timestamp attribute the scale is 1 and the offset is in seconds.
    Integers are combined exactly; if any of the three is a float, in float64."""

    name: str
    scale: int | float = 1
    offset: int | float = 0

    def __hash__(self) -> int:
        return hash(self.name)  # a fourth of the time of a hash of all three


Operand = Constant | Variable


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute as the argument of a call."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Free:
    """`?name`: a free variable, which an operator binds and value constraints test."""

    name: str


Argument = Column | Constant | Variable | Free


@dataclass(frozen=True, slots=True)
class Predicate:
    """`attribute operator operands`: none for EXISTS, two for BETWEEN, any number for IN, else one."""

    attribute: str
    operator: Operator
    operands: tuple[Operand, ...] = ()

    def negated(self) -> Predicate:
        return Predicate(self.attribute, self.operator.complement, self.operands)


@dataclass(frozen=True, slots=True)
class Call:
    """A predicate by a named operator: `operator(arguments)` is `expected`, which is false under `not`.
    False, whatever is expected, if an attribute of the arguments is missing. With free variables it is true
    where the operator has a solution, and always `expected`. (Liu et al., section 2.1.)"""

    operator: str
    arguments: tuple[Argument, ...]
    expected: bool = True

    def negated(self) -> Call:
        return Call(self.operator, self.arguments, not self.expected)

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple([a.attribute for a in self.arguments if isinstance(a, Column)])

    @property
    def free(self) -> tuple[str, ...]:
        """The names of its free variables, in order, each once."""
        return tuple(dict.fromkeys([a.name for a in self.arguments if isinstance(a, Free)]))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A value constraint: `scale * ?name + ... operator operand`, a comparison of numbers; for one free
    variable with scale 1 also of other kinds. Each name is once in `terms`, in order of appearance. (Liu et
    al., section 2.1.)"""

    terms: tuple[tuple[int | float, str], ...]
    operator: Operator
    operand: Operand

    def negated(self) -> Constraint:
        return Constraint(self.terms, self.operator.complement, self.operand)


@dataclass(frozen=True, slots=True)
class And:
    """True when all parts are; the empty conjunction matches every event."""

    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Or:
    """True when any part is; the empty disjunction matches nothing."""

    parts: tuple[Expression, ...] = ()


Leaf = Predicate | Call | Constraint
Expression = Leaf | And | Or

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


def leaves(expression: Expression) -> Iterator[Leaf]:
    """The leaves of an expression, from left to right."""
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, (And, Or)):
            pending += part.parts[::-1]
        else:
            yield part


def mapped(
    expression: Expression, change: Callable[[Leaf], Expression], simplify: bool = False
) -> Expression:
    """The expression with every leaf changed; in normal form if leaves stay leaves, or with `simplify`."""
    if not isinstance(expression, (And, Or)):
        return change(expression)
    parts: list[Expression] = []
    for part in expression.parts:
        nested = isinstance(part, (And, Or))
        parts.append(mapped(part, change, simplify) if nested else change(part))  # type: ignore[arg-type]
    if not simplify:
        return expression.__class__(tuple(parts))
    return all_of(parts) if isinstance(expression, And) else any_of(parts)

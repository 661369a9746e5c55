"""Filters in Python: `(F.firm == "IBM") & (F.price < 1.01 * Var("ref") - 5)`.

`F.price` is an attribute by name, `Var("limit")` a variable; a comparison is a `Built`, which `&`, `|` and
`~` join. `filter_of(event_type, built)` checks it and returns the same `Filter` as the text. `F["name"]` is
for names that are methods or no Python names. `call("pedestrians", F.camera, Free("n")) & (Free("n") > 250)`
calls a named operator with attributes, constants, variables and free variables. Comparisons of sums of `Free`
with numbers, variables and each other are value constraints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NoReturn

import numpy as np

from covey.matcher.errors import FilterError
from covey.matcher.events.event_type import EventType
from covey.matcher.expressions import expression
from covey.matcher.expressions.constraints import Sum, added, constraint_of, scaled
from covey.matcher.expressions.expression import (
    And,
    Argument,
    Call,
    Column,
    Constant,
    Expression,
    Operand,
    Or,
    Predicate,
    Variable,
    all_of,
    any_of,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.expressions.values import NUMBERS
from covey.matcher.filters.filter import Filter


class Var:
    """A variable, or `scale * variable + offset`; offsets on timestamps are in seconds. Immutable."""

    __slots__ = ("_name", "_offset", "_scale")
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operator to this class
    __hash__ = None  # type: ignore[assignment]  # == makes a predicate

    def __init__(self, name: str, scale: int | float = 1, offset: int | float = 0) -> None:
        self._name = name
        self._scale = scale
        self._offset = offset

    def operand(self) -> Variable:
        return Variable(self._name, self._scale, self._offset)

    def __mul__(self, factor: int | float) -> Var:
        return (
            Var(self._name, self._scale * factor, self._offset * factor)
            if is_number(factor)
            else NotImplemented
        )

    def __add__(self, offset: int | float) -> Var:
        return Var(self._name, self._scale, self._offset + offset) if is_number(offset) else NotImplemented

    def __sub__(self, offset: int | float) -> Var:
        return Var(self._name, self._scale, self._offset - offset) if is_number(offset) else NotImplemented

    def __rsub__(self, offset: int | float) -> Var:
        return Var(self._name, -self._scale, offset - self._offset) if is_number(offset) else NotImplemented

    def __neg__(self) -> Var:
        return Var(self._name, -self._scale, -self._offset)

    __rmul__ = __mul__
    __radd__ = __add__

    def __repr__(self) -> str:
        return f"Var({self._name!r}, {self._scale!r}, {self._offset!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """An expression without an event type."""

    expression: Expression

    def __and__(self, other: Built) -> Built:
        return (
            Built(all_of([self.expression, other.expression])) if isinstance(other, Built) else NotImplemented
        )

    def __or__(self, other: Built) -> Built:
        return (
            Built(any_of([self.expression, other.expression])) if isinstance(other, Built) else NotImplemented
        )

    def __invert__(self) -> Built:
        return Built(_negated(self.expression))

    def __bool__(self) -> NoReturn:
        raise FilterError("a predicate has no truth value: join with & | ~ and parentheses, not and, or, not")


def operand_of(operand: object, where: str) -> Operand:
    """A constant or a `Var` as an operand; `FilterError` for anything else."""
    if isinstance(operand, Var):
        return operand.operand()
    if isinstance(operand, (bool, int, float, str, datetime, date, np.generic)):
        return Constant(operand)  # type: ignore[arg-type]  # filter_of brings dates and numpy scalars to form
    raise FilterError(f"{where}: operand {operand!r}, expected a constant or a variable")


class Attribute:
    """An attribute by name; its comparisons are predicates."""

    __slots__ = ("_name",)
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operator to this class
    __hash__ = None  # type: ignore[assignment]  # == makes a predicate

    def __init__(self, name: str) -> None:
        self._name = name

    def column(self) -> Column:
        return Column(self._name)

    def _built(self, operator: Operator, *operands: object) -> Built:
        return Built(Predicate(self._name, operator, tuple([self._operand(operand) for operand in operands])))

    def _operand(self, operand: object) -> Operand:
        if isinstance(operand, (Attribute, Built)):
            raise FilterError(f"{self._name}: expected a constant or a variable; attributes are not compared")
        return operand_of(operand, self._name)

    def __eq__(self, operand: object) -> Built:  # type: ignore[override]
        return self._built(Operator.EQ, operand)

    def __ne__(self, operand: object) -> Built:  # type: ignore[override]
        return self._built(Operator.NE, operand)

    def __lt__(self, operand: object) -> Built:
        return self._built(Operator.LT, operand)

    def __le__(self, operand: object) -> Built:
        return self._built(Operator.LE, operand)

    def __gt__(self, operand: object) -> Built:
        return self._built(Operator.GT, operand)

    def __ge__(self, operand: object) -> Built:
        return self._built(Operator.GE, operand)

    def in_(self, operands: Iterable[object]) -> Built:
        """Equal to any of these constants or variables; false for an empty list."""
        if isinstance(operands, str):
            raise FilterError(f"{self._name}.in_({operands!r}): expected a list of constants or variables")
        return self._built(Operator.IN, *operands)

    def not_in(self, operands: Iterable[object]) -> Built:
        return ~self.in_(operands)

    def between(self, low: object, high: object) -> Built:
        """From low to high, both included."""
        return self._built(Operator.BETWEEN, low, high)

    def prefix(self, text: object) -> Built:
        return self._built(Operator.PREFIX, text)

    def suffix(self, text: object) -> Built:
        return self._built(Operator.SUFFIX, text)

    def contains(self, text: object) -> Built:
        return self._built(Operator.CONTAINS, text)

    def exists(self) -> Built:
        return self._built(Operator.EXISTS)

    def __repr__(self) -> str:
        return f"F[{self._name!r}]"


class _Attributes:
    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__"):  # a protocol of Python
            raise AttributeError(name)
        return Attribute(name)

    def __getitem__(self, name: str) -> Attribute:
        return Attribute(name)


F: Any = _Attributes()


def filter_of(event_type: EventType, built: Built | bool) -> Filter:
    """The filter over this event type; `True` matches everything. `FilterError` if it does not fit."""
    if isinstance(built, bool):
        return Filter(event_type, And() if built else Or())
    if not isinstance(built, Built):
        raise FilterError(f"filter {built!r}: expected comparisons of F.attribute, joined by & | ~")
    return Filter(event_type, built.expression)


def _negated(expression: Expression) -> Expression:
    if not isinstance(expression, And | Or):
        return expression.negated()
    parts: list[Expression] = []
    for part in expression.parts:
        parts.append(_negated(part))  # noqa: PERF401 (saves stack)
    return any_of(parts) if isinstance(expression, And) else all_of(parts)


def is_number(value: object) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


class Free:
    """A free variable, or a sum with free variables: `Free("y") - 2 * Free("z") + 1`. Immutable."""

    __slots__ = ("_sum",)
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operator to this class
    __hash__ = None  # type: ignore[assignment]  # == makes a constraint

    def __init__(self, name: str) -> None:
        self._sum = Sum(((1, name),), Constant(0))

    def argument(self) -> expression.Free:
        """`FilterError` for a sum."""
        if len(self._sum.terms) != 1 or self._sum.terms[0][0] != 1 or self._sum.operand != Constant(0):
            raise FilterError(f"{self!r} as an argument: expected a free variable as it is")
        return expression.Free(self._sum.terms[0][1])

    def _compared(self, operator: Operator, other: object) -> Built:
        side = other._sum if isinstance(other, Free) else operand_of(other, repr(self))
        return Built(constraint_of(self._sum, operator, side))

    def __mul__(self, factor: int | float) -> Free:
        return _free(scaled(self._sum, factor)) if is_number(factor) else NotImplemented

    def __add__(self, other: Free | Var | int | float) -> Free:
        side = _side(other)
        return NotImplemented if side is None else _free(added(self._sum, side))

    def __sub__(self, other: Free | Var | int | float) -> Free:
        side = _side(other)
        return NotImplemented if side is None else _free(added(self._sum, scaled(side, -1)))

    def __rsub__(self, other: Var | int | float) -> Free:
        return -self + other

    def __neg__(self) -> Free:
        return _free(scaled(self._sum, -1))

    __rmul__ = __mul__
    __radd__ = __add__

    def __eq__(self, other: object) -> Built:  # type: ignore[override]
        return self._compared(Operator.EQ, other)

    def __ne__(self, other: object) -> Built:  # type: ignore[override]
        return self._compared(Operator.NE, other)

    def __lt__(self, other: object) -> Built:
        return self._compared(Operator.LT, other)

    def __le__(self, other: object) -> Built:
        return self._compared(Operator.LE, other)

    def __gt__(self, other: object) -> Built:
        return self._compared(Operator.GT, other)

    def __ge__(self, other: object) -> Built:
        return self._compared(Operator.GE, other)

    def __repr__(self) -> str:
        names = [f"{scale!r} * Free({name!r})" for scale, name in self._sum.terms]
        return " + ".join(names).replace("1 * Free", "Free")


def _free(side: Sum) -> Free:
    free = Free("")
    free._sum = side
    return free


def _side(other: object) -> Sum | None:
    if isinstance(other, Free):
        return other._sum
    return Sum((), operand_of(other, "a sum")) if isinstance(other, Var) or is_number(other) else None


def call(operator: str, *arguments: object) -> Built:
    """The call of a named operator with attributes, constants, variables and free variables."""
    if not isinstance(operator, str):
        raise FilterError(f"operator {operator!r}: expected its name")
    return Built(Call(operator, tuple([_argument(operator, argument) for argument in arguments])))


def _argument(operator: str, argument: object) -> Argument:
    if isinstance(argument, Attribute):
        return argument.column()
    return argument.argument() if isinstance(argument, Free) else operand_of(argument, operator)

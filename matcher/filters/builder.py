"""Filters in Python: `(F.firm == "IBM") & (F.price < 1.01 * Var("ref") - 5)`.

`F.price` is an attribute by name, `Var("limit")` a variable; comparisons make a `Built`, which `&`, `|` and
`~` join. No event type is needed until `filter_of(event_type, built)` checks it and returns the same
`Filter` as the text. An attribute whose name is taken by a method or is no Python name is written
`F["name"]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NoReturn

import numpy as np

from covey.matcher.errors import FilterError
from covey.matcher.events.event_type import EventType
from covey.matcher.expressions.expression import (
    And,
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
    """A variable, or `scale * variable + offset`; offsets on timestamps count seconds. Immutable."""

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
    """An expression that belongs to no event type yet."""

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
    """A constant or a `Var` as an operand; `FilterError` for what is neither."""
    if isinstance(operand, Var):
        return operand.operand()
    if isinstance(operand, (bool, int, float, str, datetime, date, np.generic)):
        return Constant(operand)  # type: ignore[arg-type]  # filter_of brings dates and numpy scalars to form
    raise FilterError(f"{where}: operand {operand!r}, expected a constant or a variable")


class Attribute:
    """An attribute by name: compare it to make a predicate."""

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
        """One of these constants or variables; of none, nothing."""
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
    """`F.price` and `F["price"]`."""

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__"):  # a protocol of Python
            raise AttributeError(name)
        return Attribute(name)

    def __getitem__(self, name: str) -> Attribute:
        return Attribute(name)


F: Any = _Attributes()


def filter_of(event_type: EventType, built: Built | bool) -> Filter:
    """The filter over this event type; `True` matches everything. `FilterError` when it does not fit."""
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

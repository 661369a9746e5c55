"""Calls of named operators in Python: `call("pedestrians", F.camera, Free("n")) & (Free("n") > 250)`.

`call` takes attributes, constants, variables and free variables, and makes a `Built` like any comparison.
Comparisons of sums of `Free` with numbers, variables and each other are value constraints.
"""

from __future__ import annotations

from covey.matcher.errors import FilterError
from covey.matcher.expressions import expression
from covey.matcher.expressions.constraints import Sum, added, constraint_of, scaled
from covey.matcher.expressions.expression import Argument, Call, Constant
from covey.matcher.expressions.operators import Operator
from covey.matcher.filters.builder import Attribute, Built, Var, is_number, operand_of


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

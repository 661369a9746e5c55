"""Value constraints: a comparison of two sums becomes a `Constraint` in normal form. (Liu et al., 2.1)

Normal form: free variables on the left, each once, the first with a scale above 0; on the right a constant,
or one variable with scale and offset. `250 < ?n` is `?n > 250`, and `?y > 2 * ?z` is `?y - 2 * ?z > 0`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from covey.matcher.errors import FilterError
from covey.matcher.expressions.expression import Constant, Constraint, Operand, Variable
from covey.matcher.expressions.operators import SPECS, Operator
from covey.matcher.expressions.values import NUMBERS, shortest


@dataclass(frozen=True, slots=True)
class Sum:
    """One side of a constraint: `scale * ?name + ... + operand`, a number or a variable of numbers."""

    terms: tuple[tuple[int | float, str], ...]
    operand: Operand


def added(one: Sum | Operand, other: Sum | Operand) -> Sum:
    """The sum of two sides. `FilterError` for two variables, and for an operand that is no number."""
    first, second = _sum(one), _sum(other)
    return Sum((*first.terms, *second.terms), _difference(first.operand, _negative(second.operand)))


def scaled(side: Sum, factor: int | float) -> Sum:
    terms = tuple([(scale * factor, name) for scale, name in side.terms])
    operand = side.operand
    if isinstance(operand, Variable):
        return Sum(terms, Variable(operand.name, operand.scale * factor, operand.offset * factor))
    return Sum(terms, Constant(_offset(operand) * factor))


def constraint_of(left: Sum | Operand, operator: Operator, right: Sum | Operand) -> Constraint:
    """The constraint `left operator right`, its kinds unchecked. `FilterError` if no free variable is left,
    for two variables, and for a sum compared with anything but numbers."""
    for side, other, direction in ((left, right, _mirrored(operator)), (right, left, operator)):
        if isinstance(side, Constant) and _is_no_number(side) and isinstance(other, Sum):
            if len(other.terms) != 1 or other.terms[0][0] != 1 or other.operand != Constant(0):
                raise FilterError(f"{side.value!r} is compared with a sum: expected a number")
            return Constraint(other.terms, direction, side)
    first, second = _sum(left), _sum(right)
    scales: dict[str, int | float] = {}
    for scale, name in (*first.terms, *[(-scale, name) for scale, name in second.terms]):
        scales[name] = scales.get(name, 0) + scale
    terms = tuple([(shortest(scale), name) for name, scale in scales.items() if scale != 0])
    if not terms:
        raise FilterError("no free variable is left in a constraint: expected at least one")
    return positive(Constraint(terms, operator, _difference(second.operand, first.operand)))


def positive(constraint: Constraint) -> Constraint:
    """The same constraint, the scale of its first term above 0."""
    if constraint.terms[0][0] > 0:
        return constraint
    terms = tuple([(-scale, name) for scale, name in constraint.terms])
    return Constraint(terms, _mirrored(constraint.operator), _negative(constraint.operand))


def _mirrored(operator: Operator) -> Operator:
    mirrored = SPECS[operator].mirrored
    if mirrored is None:
        raise FilterError(f"operator {operator} in a constraint: expected a comparison")
    return mirrored


def _is_no_number(constant: Constant) -> bool:
    return isinstance(constant.value, bool) or not isinstance(constant.value, NUMBERS)


def _sum(side: Sum | Operand) -> Sum:
    return side if isinstance(side, Sum) else Sum((), side)


def _negative(operand: Operand) -> Operand:
    return _difference(Constant(0), operand)


def _difference(one: Operand, other: Operand) -> Operand:
    """`one - other`, of which at most one is a variable."""
    total = _offset(one) - _offset(other)
    if isinstance(one, Variable) and isinstance(other, Variable):
        raise FilterError(f"${one.name} and ${other.name} in a constraint: expected at most one variable")
    if isinstance(one, Variable):
        return Variable(one.name, one.scale, total)
    if isinstance(other, Variable):
        return Variable(other.name, -other.scale, total)
    return Constant(total)


def _offset(operand: Operand) -> int | float:
    if isinstance(operand, Variable):
        return operand.offset
    if _is_no_number(operand):
        raise FilterError(f"{operand.value!r} in a constraint: expected a number")
    value: Any = operand.value
    number: int | float = value.item() if isinstance(value, np.generic) else value
    return number

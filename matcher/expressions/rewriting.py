"""Expressions made from expressions: values in place of variables, variables in place of operands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.expression import (
    And,
    Constant,
    Expression,
    Operand,
    Or,
    Predicate,
    Scalar,
    Variable,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.expressions.values import FAMILY, Family, evaluate

_SHARED = 1 << 12
"""Lifted predicates that are shared: the garbage collector visits each object again and again."""


def attributes_of(expression: Expression) -> set[str]:
    """The attributes that an expression names."""
    attributes: set[str] = set()
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Predicate):
            attributes.add(part.attribute)
        else:
            pending.extend(part.parts)
    return attributes


def families_of(event_type: EventType, expression: Expression) -> dict[str, Family]:
    """The variables of a checked expression, in order of first appearance, and their families."""
    families: dict[str, Family] = {}
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Predicate):
            for operand in part.operands:
                if isinstance(operand, Variable):
                    families.setdefault(operand.name, FAMILY[event_type.attributes[part.attribute]])
        else:
            pending.extend(reversed(part.parts))
    return families


def substituted(
    expression: Expression, values: Mapping[str, Scalar], kinds: Mapping[str, Kind]
) -> Expression:
    """The expression with constants for the variables that have a value."""
    if isinstance(expression, Predicate):
        kind = kinds[expression.attribute]
        operands: list[Operand] = []
        for operand in expression.operands:
            if isinstance(operand, Variable) and operand.name in values:
                operand = Constant(evaluate(operand, values, kind))
            operands.append(operand)
        return Predicate(expression.attribute, expression.operator, tuple(operands))
    parts: list[Expression] = []
    for part in expression.parts:
        parts.append(substituted(part, values, kinds))  # noqa: PERF401 (saves stack)
    return And(tuple(parts)) if isinstance(expression, And) else Or(tuple(parts))


def lifted(
    expression: Expression, kinds: Mapping[str, Kind], operands: list[Operand], their_kinds: list[Kind]
) -> Expression:
    """The expression with the variables "1", "2", ... as operands; its own operands and their kinds are
    appended to the lists.
    """
    if isinstance(expression, Predicate):
        first = len(operands) + 1
        operands += expression.operands
        their_kinds += [kinds[expression.attribute]] * len(expression.operands)
        return _numbered(expression.attribute, expression.operator, first, len(operands))
    parts: list[Expression] = []
    for part in expression.parts:
        parts.append(lifted(part, kinds, operands, their_kinds))  # noqa: PERF401 (saves stack)
    return And(tuple(parts)) if isinstance(expression, And) else Or(tuple(parts))


@lru_cache(_SHARED)
def _numbered(attribute: str, operator: Operator, first: int, last: int) -> Predicate:
    """A predicate of structures: its operands are variables with these numbers."""
    return Predicate(attribute, operator, tuple([Variable(str(i)) for i in range(first, last + 1)]))

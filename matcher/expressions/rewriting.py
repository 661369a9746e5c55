"""Expressions made from expressions: values in place of variables, variables in place of operands, gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.calls import (
    Kinds,
    common_family,
    family_of,
    kinds_of,
    operand_kinds,
    operands_of,
    with_operands,
)
from covey.matcher.expressions.expression import (
    TRUE,
    And,
    Call,
    Constant,
    Constraint,
    Expression,
    Leaf,
    Operand,
    Or,
    Predicate,
    Scalar,
    Variable,
    all_of,
    any_of,
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
        elif isinstance(part, (And, Or)):
            pending.extend(part.parts)
        elif isinstance(part, Call):
            attributes.update(part.attributes)
    return attributes


def contents_of(
    attributes: Mapping[str, Kind], expression: Expression
) -> tuple[dict[str, Family], tuple[Call, ...]]:
    """The variables of a checked expression, in order of first appearance, and their families; and its
    different calls, in order, each as one that is expected to be true.
    """
    families: dict[str, Family] = {}
    others: list[Call | Constraint] | None = None
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Predicate):
            for operand in part.operands:
                if isinstance(operand, Variable):
                    families[operand.name] = FAMILY[attributes[part.attribute]]
        elif isinstance(part, (And, Or)):
            pending.extend(reversed(part.parts))
        else:
            others = [] if others is None else others
            others.append(part)
            for operand in operands_of(part):
                if isinstance(operand, Variable):
                    families.setdefault(operand.name, Family.ANY)
    if others is None:
        return families, ()
    calls = {part if part.expected else part.negated(): None for part in others if isinstance(part, Call)}
    kinds = kinds_of(attributes, calls)
    for part in others:
        for operand, kind in zip(operands_of(part), operand_kinds(part, kinds), strict=True):
            if isinstance(operand, Variable):
                families[operand.name] = (
                    common_family(families[operand.name], family_of(operand, kind)) or families[operand.name]
                )
    return families, tuple(calls)


def substituted(expression: Expression, values: Mapping[str, Scalar], kinds: Kinds) -> Expression:
    """The expression with constants for the variables that have a value."""
    if isinstance(expression, Predicate):
        kind = kinds[expression.attribute]
        operands: list[Operand] = []
        for operand in expression.operands:
            if isinstance(operand, Variable) and operand.name in values:
                operand = Constant(evaluate(operand, values, kind))
            operands.append(operand)
        return Predicate(expression.attribute, expression.operator, tuple(operands))
    if isinstance(expression, (And, Or)):
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(substituted(part, values, kinds))  # noqa: PERF401 (saves stack)
        return And(tuple(parts)) if isinstance(expression, And) else Or(tuple(parts))
    pairs = zip(operands_of(expression), operand_kinds(expression, kinds), strict=True)
    return with_operands(
        expression,
        [
            Constant(evaluate(operand, values, kind))
            if isinstance(operand, Variable) and operand.name in values
            else operand
            for operand, kind in pairs
        ],
    )


def lifted(
    expression: Expression, kinds: Kinds, operands: list[Operand], their_kinds: list[Kind | None]
) -> Expression:
    """The expression with the variables "1", "2", ... as operands; its own operands and their kinds are
    appended to the lists.
    """
    if isinstance(expression, Predicate):
        first = len(operands) + 1
        operands += expression.operands
        their_kinds += [kinds[expression.attribute]] * len(expression.operands)
        return _numbered(expression.attribute, expression.operator, first, len(operands))
    if isinstance(expression, (And, Or)):
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(lifted(part, kinds, operands, their_kinds))  # noqa: PERF401 (saves stack)
        return And(tuple(parts)) if isinstance(expression, And) else Or(tuple(parts))
    first = len(operands) + 1
    operands += operands_of(expression)
    their_kinds += operand_kinds(expression, kinds)
    return with_operands(expression, [Variable(str(i)) for i in range(first, len(operands) + 1)])


@lru_cache(_SHARED)
def _numbered(attribute: str, operator: Operator, first: int, last: int) -> Predicate:
    """A predicate of structures: its operands are variables with these numbers."""
    return Predicate(attribute, operator, tuple([Variable(str(i)) for i in range(first, last + 1)]))


def gate_of(expression: Expression) -> Expression:
    """The expression with every call and constraint replaced by true, simplified: as there is no `not` node,
    it is true wherever the expression is.
    """
    if isinstance(expression, (And, Or)):
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(gate_of(part))  # noqa: PERF401 (saves stack)
        return all_of(parts) if isinstance(expression, And) else any_of(parts)
    return expression if isinstance(expression, Predicate) else TRUE


def stateless_of(expression: Expression, is_stateful: Callable[[str], bool]) -> Expression:
    """The expression with true for every call of an operator with state, and for every constraint on a free
    variable of one, simplified: it is true wherever the expression is.
    """
    stateful = [leaf for leaf in _leaves(expression) if isinstance(leaf, Call) and is_stateful(leaf.operator)]
    unbound = {name for call in stateful for name in call.free}

    def without(part: Expression) -> Expression:
        if isinstance(part, And | Or):
            parts: list[Expression] = []
            for inner in part.parts:
                parts.append(without(inner))  # noqa: PERF401 (saves stack)
            return all_of(parts) if isinstance(part, And) else any_of(parts)
        if isinstance(part, Call) and is_stateful(part.operator):
            return TRUE
        if isinstance(part, Constraint) and any(name in unbound for _, name in part.terms):
            return TRUE
        return part

    return without(expression) if stateful else expression


def _leaves(expression: Expression) -> Iterator[Leaf]:
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, And | Or):
            pending.extend(part.parts)
        else:
            yield part


_TEXTS = (Operator.CONTAINS, Operator.NOT_CONTAINS, Operator.NOT_SUFFIX)


def texts_of(expression: Expression) -> tuple[Predicate, ...]:
    """The predicates whose constants engines have columns for."""
    leaves = _leaves(expression)
    return tuple([leaf for leaf in leaves if isinstance(leaf, Predicate) and leaf.operator in _TEXTS])


def residue_of(expression: Expression) -> Expression:
    """What is left of an expression with calls where its gate is true: all but the parts of its conjunction
    that have no calls.
    """
    if not isinstance(expression, And):
        return expression
    return all_of([part for part in expression.parts if _has_calls(part)])


def _has_calls(expression: Expression) -> bool:
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, (And, Or)):
            pending.extend(part.parts)
        elif not isinstance(part, Predicate):
            return True
    return False

"""Expressions from expressions: values in place of variables, variables in place of operands, gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    leaves,
    mapped,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.expressions.values import FAMILY, Family, evaluate

_SHARED = 1 << 12
"""Lifted predicates that are shared: the garbage collector visits each object again and again."""


def attributes_of(expression: Expression) -> set[str]:
    attributes: set[str] = set()
    for leaf in leaves(expression):
        if isinstance(leaf, Predicate):
            attributes.add(leaf.attribute)
        elif isinstance(leaf, Call):
            attributes.update(leaf.attributes)
    return attributes


def contents_of(
    attributes: Mapping[str, Kind], expression: Expression
) -> tuple[dict[str, Family], tuple[Call, ...]]:
    """The variables of a checked expression with their families, and its distinct calls as expected to be
    true; both in order of first appearance."""
    families: dict[str, Family] = {}
    others: list[Call | Constraint] = []
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Predicate):
            for operand in part.operands:
                if isinstance(operand, Variable):
                    families[operand.name] = FAMILY[attributes[part.attribute]]
        elif isinstance(part, (And, Or)):
            pending += part.parts[::-1]
        else:
            others.append(part)
            for operand in operands_of(part):
                if isinstance(operand, Variable):
                    families.setdefault(operand.name, Family.ANY)
    if not others:
        return families, ()
    calls = {leaf if leaf.expected else leaf.negated(): None for leaf in others if isinstance(leaf, Call)}
    kinds = kinds_of(attributes, calls)
    for leaf in others:
        for operand, kind in zip(operands_of(leaf), operand_kinds(leaf, kinds), strict=True):
            if isinstance(operand, Variable):
                known = families[operand.name]
                families[operand.name] = common_family(known, family_of(operand, kind)) or known
    return families, tuple(calls)


def substituted(expression: Expression, values: Mapping[str, Scalar], kinds: Kinds) -> Expression:
    def change(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Predicate):
            kind = kinds[leaf.attribute]
            operands: list[Operand] = []
            for operand in leaf.operands:
                if isinstance(operand, Variable) and operand.name in values:
                    operand = Constant(evaluate(operand, values, kind))
                operands.append(operand)
            return Predicate(leaf.attribute, leaf.operator, tuple(operands))
        pairs = zip(operands_of(leaf), operand_kinds(leaf, kinds), strict=True)
        return with_operands(
            leaf,
            [
                Constant(evaluate(operand, values, kind))
                if isinstance(operand, Variable) and operand.name in values
                else operand
                for operand, kind in pairs
            ],
        )

    return mapped(expression, change)


def lifted(
    expression: Expression, kinds: Kinds, operands: list[Operand], their_kinds: list[Kind | None]
) -> Expression:
    """The expression with operands "1", "2", ...; its own operands and their kinds are appended to the lists.
    """

    def change(leaf: Leaf) -> Leaf:
        first = len(operands) + 1
        if isinstance(leaf, Predicate):
            operands.extend(leaf.operands)
            their_kinds.extend([kinds[leaf.attribute]] * len(leaf.operands))
            return _numbered(leaf.attribute, leaf.operator, first, len(operands))
        operands.extend(operands_of(leaf))
        their_kinds.extend(operand_kinds(leaf, kinds))
        return with_operands(leaf, [Variable(str(i)) for i in range(first, len(operands) + 1)])

    return mapped(expression, change)


@lru_cache(_SHARED)
def _numbered(attribute: str, operator: Operator, first: int, last: int) -> Predicate:
    return Predicate(attribute, operator, tuple([Variable(str(i)) for i in range(first, last + 1)]))


_NO_BOUNDS: Mapping[Call, Expression] = {}


def gate_of(expression: Expression, bounds: Mapping[Call, Expression] = _NO_BOUNDS) -> Expression:
    """The expression with true for every constraint, and its bounds or true for every call: true wherever the
    expression is, since there is no `not` node."""

    def change(leaf: Leaf) -> Expression:
        if isinstance(leaf, Predicate):
            return leaf
        return bounds.get(leaf, TRUE) if isinstance(leaf, Call) else TRUE

    return mapped(expression, change, True)


def stateless_of(expression: Expression, is_stateful: Callable[[str], bool]) -> Expression:
    """The expression with true for every call of an operator with state, and for every constraint on a free
    variable of such a call, simplified: it is true wherever the expression is."""
    stateful = [leaf for leaf in leaves(expression) if isinstance(leaf, Call) and is_stateful(leaf.operator)]
    unbound = {name for call in stateful for name in call.free}

    def change(leaf: Leaf) -> Expression:
        if isinstance(leaf, Call):
            return TRUE if is_stateful(leaf.operator) else leaf
        is_unbound = isinstance(leaf, Constraint) and any(name in unbound for _, name in leaf.terms)
        return TRUE if is_unbound else leaf

    return mapped(expression, change, True) if stateful else expression


_TEXTS = (Operator.CONTAINS, Operator.NOT_CONTAINS, Operator.NOT_SUFFIX)


def texts_of(expression: Expression) -> tuple[Predicate, ...]:
    return tuple([p for p in leaves(expression) if isinstance(p, Predicate) and p.operator in _TEXTS])


def residue_of(expression: Expression) -> Expression:
    """The rest of an expression where its gate is true: without the parts of a conjunction that have no
    calls."""
    if not isinstance(expression, And):
        return expression
    return all_of(
        [part for part in expression.parts if not all(isinstance(leaf, Predicate) for leaf in leaves(part))]
    )

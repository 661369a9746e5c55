"""The arguments of calls, and the kinds that an operator's parameters give to them.

An operator that is unknown here gives none: its constants and variables' values keep the form in which they
arrive (`Family.ANY`), so that a broker without the operator passes the filter on unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Call, Constant, Constraint, Free, Operand, Variable
from covey.matcher.expressions.values import FAMILY, Family
from covey.matcher.operators.table import find

Kinds = Mapping[str, Kind | None]
"""The kinds of attributes by name and of free variables by `?name`; None for those of unknown operators."""


def argument_kinds(call: Call) -> tuple[Kind | None, ...]:
    """The kind of the constant, variable or free variable at each place of a call."""
    operator = find(call.operator)
    if operator is None:
        return (None,) * len(call.arguments)
    return tuple([operator.parameter(place).kind for place in range(len(call.arguments))])


def kinds_of(attributes: Mapping[str, Kind], calls: Iterable[Call]) -> Kinds:
    kinds: dict[str, Kind | None] = {**attributes}
    for call in calls:
        for argument, kind in zip(call.arguments, argument_kinds(call), strict=True):
            if isinstance(argument, Free) and kinds.get(f"?{argument.name}") is None:
                kinds[f"?{argument.name}"] = kind
    return kinds


def operands_of(leaf: Call | Constraint) -> list[Operand]:
    if isinstance(leaf, Constraint):
        return [leaf.operand]
    return [argument for argument in leaf.arguments if isinstance(argument, Constant | Variable)]


def operand_kinds(leaf: Call | Constraint, kinds: Kinds) -> list[Kind | None]:
    """The kinds of `operands_of`; a constraint's is float64 for numbers, else its free variable's."""
    if isinstance(leaf, Call):
        pairs = zip(leaf.arguments, argument_kinds(leaf), strict=True)
        return [kind for argument, kind in pairs if isinstance(argument, Constant | Variable)]
    scale, name = leaf.terms[0]
    kind = kinds[f"?{name}"]
    return [Kind.FLOAT64 if kind is Kind.INT64 or scale != 1 or len(leaf.terms) > 1 else kind]


def with_operands(leaf: Call | Constraint, operands: Iterable[Operand]) -> Call | Constraint:
    others = iter(operands)
    if isinstance(leaf, Constraint):
        return Constraint(leaf.terms, leaf.operator, next(others))
    arguments = [next(others) if isinstance(each, Constant | Variable) else each for each in leaf.arguments]
    return Call(leaf.operator, tuple(arguments), leaf.expected)


def family_of(variable: Variable, kind: Kind | None) -> Family:
    """The family that a variable must have where a kind is expected."""
    if kind is not None:
        return FAMILY[kind]
    if variable.scale != 1:
        return Family.NUMBER
    return Family.SHIFTABLE if variable.offset else Family.ANY


def common_family(one: Family, other: Family) -> Family | None:
    """The narrower of two families of one variable; None if they exclude each other."""
    for wide, narrow in ((one, other), (other, one)):
        if wide is narrow or wide is Family.ANY or (wide is Family.SHIFTABLE and narrow in _SHIFTABLE):
            return narrow
    return None


_SHIFTABLE = (Family.NUMBER, Family.TIMESTAMP)

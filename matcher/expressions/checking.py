"""The check that a predicate fits its event type: its attribute, operator and operands.

Filters from text and from Python pass it, and so fail with the same messages. Checked predicates are in
normal form: constants as `values.normal` gives them, scales and offsets as `values.shortest` does.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from math import isfinite

from covey.matcher.errors import FilterError
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
    all_of,
    any_of,
)
from covey.matcher.expressions.operators import SPECS, Operator, spellings
from covey.matcher.expressions.values import FAMILY, Family, coerce, normal, shortest

DEPTH_LIMIT = 200
"""How deep parentheses may be nested. As `or` may hold `and` in each, a tree is at most twice as deep."""

_NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_LONGEST_OFFSET_S = 10**9 * 86_400

EXPECTED = {
    Family.NUMBER: "a number or a variable",
    Family.STRING: "a string or a variable",
    Family.BOOL: "true, false or a variable",
    Family.TIMESTAMP: 'a time such as "2026-01-31T12:00:00" or a variable',
}


class Variables:
    """The variables of a filter, in order of first appearance, each with the family its first use gave it."""

    __slots__ = ("_first", "families")

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self._first: dict[str, tuple[str, Kind]] = {}

    def use(self, operand: Operand, attribute: str, kind: Kind) -> None:
        """Record a use; `FilterError` when an earlier use was of another family."""
        if not isinstance(operand, Variable):
            return
        family = self.families.setdefault(operand.name, FAMILY[kind])
        first = self._first.setdefault(operand.name, (attribute, kind))
        if family is not FAMILY[kind]:
            raise FilterError(
                f"variable ${operand.name} is compared with {first[0]} ({first[1]}) "
                f"and with {attribute} ({kind}): expected attributes of one kind"
            )


def unknown_attribute(event_type: EventType, name: str) -> str:
    """The error message for an unknown attribute, with the attributes of the type and the closest of them."""
    names = event_type.names
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    close = get_close_matches(name, names, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"{event_type.name} has no attribute {name!r}; it has {listed}{hint}"


def check_operator(attribute: str, kind: Kind, operator: Operator) -> None:
    """`FilterError` unless attributes of this kind can be tested with this operator."""
    kinds = SPECS[operator].kinds
    if kind in kinds:
        return
    if len(kinds) == 1:
        raise FilterError(f"{attribute} is {kind}: {operator} needs a {min(kinds)} attribute")
    raise FilterError(f"{attribute} is {kind}: expected {' or '.join(spellings(kind))}, not {operator}")


def check_operand(attribute: str, kind: Kind, operand: Operand) -> Operand:
    """The operand in normal form; `FilterError` when it does not fit attributes of this kind."""
    family = FAMILY[kind]
    if isinstance(operand, Constant):
        try:
            return Constant(normal(kind, coerce(family, operand.value)))
        except ValueError as error:
            wrong = f"{attribute} is {kind}: {error}"
            if str(error) == f"expected {family}":
                wrong = f"{attribute} is {kind}: expected {EXPECTED[family]}"
            raise FilterError(f"{wrong}, not {_shown(operand.value)}") from None
    if not isinstance(operand, Variable):
        raise FilterError(f"{attribute}: operand {operand!r}, expected a constant or a variable")
    if not isinstance(operand.name, str) or not _NAME.match(operand.name):
        raise FilterError(f"variable {operand.name!r}: expected a name of letters, digits and _")
    scale, offset = _factor(operand, "scale"), _factor(operand, "offset")
    if scale == 0:
        raise FilterError(f"variable ${operand.name}: scale 0, expected a number other than 0")
    if family is not Family.NUMBER and (scale != 1 or (offset != 0 and family is not Family.TIMESTAMP)):
        plus = ", plus or minus seconds" if family is Family.TIMESTAMP else ""
        raise FilterError(f"{attribute} is {kind}: expected ${operand.name} as it is{plus}")
    if family is Family.TIMESTAMP and abs(offset) > _LONGEST_OFFSET_S:
        raise FilterError(
            f"variable ${operand.name}: offset {offset} s, expected at most {_LONGEST_OFFSET_S} s"
        )
    return Variable(operand.name, scale, offset)


def _factor(operand: Variable, field: str) -> int | float:
    number = getattr(operand, field)
    try:
        checked = coerce(Family.NUMBER, number)
        assert isinstance(checked, (int, float))
        if not isfinite(checked):
            raise ValueError("expected a finite number")
    except ValueError as error:
        raise FilterError(f"variable ${operand.name}: {field} {number!r}, {error}") from None
    return shortest(checked)


def _shown(value: Scalar) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_predicate(event_type: EventType, predicate: Predicate, variables: Variables) -> Predicate:
    """The predicate in normal form, its variables recorded; `FilterError` when it does not fit its type."""
    attribute = predicate.attribute
    kind = event_type.attributes.get(attribute)
    if kind is None:
        raise FilterError(unknown_attribute(event_type, attribute))
    operator = Operator(predicate.operator)
    check_operator(attribute, kind, operator)
    expected = SPECS[operator].operand_count
    if expected is not None and len(predicate.operands) != expected:
        raise FilterError(f"{attribute} {operator}: {len(predicate.operands)} operands, expected {expected}")
    operands = tuple([check_operand(attribute, kind, operand) for operand in predicate.operands])
    for operand in operands:
        variables.use(operand, attribute, kind)
    return Predicate(attribute, operator, operands)


def check_expression(event_type: EventType, expression: Expression, variables: Variables) -> Expression:
    """The expression in normal form; `FilterError` says what does not fit, or that it is too deep."""
    return _checked(event_type, expression, variables, 0)


def _checked(event_type: EventType, expression: Expression, variables: Variables, depth: int) -> Expression:
    if isinstance(expression, Predicate):
        return check_predicate(event_type, expression, variables)
    if not isinstance(expression, (And, Or)):
        raise FilterError(f"expression {expression!r}: expected a Predicate, And or Or")
    if depth > 2 * DEPTH_LIMIT + 1:
        raise FilterError(f"filter is nested more than {DEPTH_LIMIT} deep")
    parts: list[Expression] = []
    for part in expression.parts:
        parts.append(_checked(event_type, part, variables, depth + 1))  # noqa: PERF401 (saves stack)
    return all_of(parts) if isinstance(expression, And) else any_of(parts)

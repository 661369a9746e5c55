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
from covey.matcher.expressions.calls import common_family, family_of
from covey.matcher.expressions.expression import (
    Constant,
    Operand,
    Predicate,
    Scalar,
    Variable,
)
from covey.matcher.expressions.operators import SPECS, Operator, spellings
from covey.matcher.expressions.values import FAMILY, Family, coerce, normal, shortest

DEPTH_LIMIT = 200
"""How deep parentheses may be nested. As `or` may hold `and` in each, a tree is at most twice as deep."""

NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_LONGEST_OFFSET_S = 10**9 * 86_400

EXPECTED = {
    Family.NUMBER: "a number or a variable",
    Family.STRING: "a string or a variable",
    Family.BOOL: "true, false or a variable",
    Family.TIMESTAMP: 'a time such as "2026-01-31T12:00:00" or a variable',
    Family.ANY: "a constant or a variable",
}

_SCALED = (Family.NUMBER, Family.ANY)


class Variables:
    """The variables of a filter, in order of first appearance, each with the family its first use gave it."""

    __slots__ = ("_first", "families")

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self._first: dict[str, tuple[str, Kind | None]] = {}

    def use(self, operand: Operand, attribute: str, kind: Kind | None) -> None:
        """Record a use; `FilterError` when an earlier use was of another family."""
        if not isinstance(operand, Variable):
            return
        new = FAMILY[kind] if kind is not None else family_of(operand, kind)
        family = self.families.setdefault(operand.name, new)
        first = self._first.setdefault(operand.name, (attribute, kind))
        if family is new:
            return
        both = common_family(family, new)
        if both is None:
            raise FilterError(
                f"variable ${operand.name} is compared with {first[0]} ({first[1] or family}) "
                f"and with {attribute} ({kind or new}): expected attributes of one kind"
            )
        self.families[operand.name] = both


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
    if kind is Kind.STRINGS:
        raise FilterError(
            f"{attribute} is {kind}: expected exists({attribute}) or a call such as "
            f'has_any({attribute}, "a"), not {operator}'
        )
    if len(kinds) == 1:
        raise FilterError(f"{attribute} is {kind}: {operator} needs a {min(kinds)} attribute")
    raise FilterError(f"{attribute} is {kind}: expected {' or '.join(spellings(kind))}, not {operator}")


def check_operand(attribute: str, kind: Kind | None, operand: Operand) -> Operand:
    """The operand in normal form; `FilterError` when it does not fit attributes of this kind. None is the
    kind of an argument of an unknown operator.
    """
    family = Family.ANY if kind is None else FAMILY[kind]
    if isinstance(operand, Constant):
        try:
            return Constant(normal(kind, coerce(family, operand.value)))
        except ValueError as error:
            reason = f"expected {EXPECTED[family]}" if str(error) == f"expected {family}" else str(error)
            raise FilterError(f"{_typed(attribute, kind)}: {reason}, not {_shown(operand.value)}") from None
    if not isinstance(operand, Variable):
        raise FilterError(f"{attribute}: operand {operand!r}, expected a constant or a variable")
    if not isinstance(operand.name, str) or not NAME.match(operand.name):
        raise FilterError(f"variable {operand.name!r}: expected a name of letters, digits and _")
    variable = f"variable ${operand.name}"
    scale = check_factor(operand.scale, variable, "scale")
    offset = check_factor(operand.offset, variable, "offset")
    if scale == 0:
        raise FilterError(f"{variable}: scale 0, expected a number other than 0")
    if family not in _SCALED and (scale != 1 or (offset != 0 and family is not Family.TIMESTAMP)):
        plus = ", plus or minus seconds" if family is Family.TIMESTAMP else ""
        raise FilterError(f"{_typed(attribute, kind)}: expected ${operand.name} as it is{plus}")
    if family is Family.TIMESTAMP and abs(offset) > _LONGEST_OFFSET_S:
        raise FilterError(
            f"variable ${operand.name}: offset {offset} s, expected at most {_LONGEST_OFFSET_S} s"
        )
    return Variable(operand.name, scale, offset)


def _typed(attribute: str, kind: Kind | None) -> str:
    return attribute if kind is None else f"{attribute} is {kind}"


def check_factor(number: int | float, of: str, field: str) -> int | float:
    """A scale or offset in normal form; `FilterError` for what is no finite number."""
    try:
        checked = coerce(Family.NUMBER, number)
        assert isinstance(checked, (int, float))
        if not isfinite(checked):
            raise ValueError("expected a finite number")
    except ValueError as error:
        raise FilterError(f"{of}: {field} {number!r}, {error}") from None
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

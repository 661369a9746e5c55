"""The truth of an expression for one event, by the rules in docs/filters.md."""

from __future__ import annotations

from collections.abc import Mapping

from covey.matcher.errors import EventError
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import And, Expression, Or, Predicate, Scalar
from covey.matcher.expressions.operators import PASSES, Operator
from covey.matcher.expressions.values import FAMILY, coerce, evaluate


def passes(operator: Operator, value: Scalar, operands: list[Scalar]) -> bool:
    """Does a present value satisfy the operator? The value may be NaN, an operand is not."""
    return PASSES[operator](value, operands)


def event_value(kind: Kind, attribute: str, value: object) -> Scalar | None:
    """An event's value of an attribute in its inner form, NaN allowed; None when missing.

    `EventError` names the attribute and the value when it is of another kind.
    """
    if value is None:
        return None
    if kind is Kind.FLOAT64 and isinstance(value, float):
        return float(value)
    try:
        coerced = coerce(FAMILY[kind], value)
    except ValueError as error:
        raise EventError(f"attribute {attribute}: value {value!r}, {error}") from None
    if kind is Kind.INT64 and not isinstance(coerced, int):
        raise EventError(f"attribute {attribute}: value {value!r}, expected an integer")
    return coerced


def holds(
    expression: Expression,
    kinds: Mapping[str, Kind],
    event: Mapping[str, object],
    values: Mapping[str, Scalar],
) -> bool:
    """Is a checked expression true for this event? `values` are checked and give every variable."""
    if isinstance(expression, And):
        for part in expression.parts:  # noqa: SIM110 (saves stack)
            if not holds(part, kinds, event, values):
                return False
        return True
    if isinstance(expression, Or):
        for part in expression.parts:  # noqa: SIM110 (saves stack)
            if holds(part, kinds, event, values):
                return True
        return False
    assert isinstance(expression, Predicate), expression
    kind = kinds[expression.attribute]
    value = event_value(kind, expression.attribute, event.get(expression.attribute))
    if value is None:
        return expression.operator is Operator.NOT_EXISTS
    operands = [evaluate(operand, values, kind) for operand in expression.operands]
    return passes(expression.operator, value, operands)

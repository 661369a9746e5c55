"""The canonical text of an expression, without needless parentheses.

Invariant: parsing the text against the same event type gives the same expression."""

from __future__ import annotations

from datetime import datetime

from covey.matcher.expressions.expression import (
    And,
    Argument,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Operand,
    Or,
    Predicate,
    Scalar,
)
from covey.matcher.expressions.operators import SPECS, Syntax

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def write(expression: Expression) -> str:
    """The text of an expression in normal form; "true" and "false" for those without parts."""
    if isinstance(expression, Predicate):
        return write_predicate(expression)
    if isinstance(expression, Call):
        return write_call(expression)
    if isinstance(expression, Constraint):
        return write_constraint(expression)
    if not expression.parts:
        return "true" if isinstance(expression, And) else "false"
    conjunction = isinstance(expression, And)
    parts = []
    for part in expression.parts:
        text = write(part)
        parts.append(f"({text})" if conjunction and isinstance(part, Or) else text)
    return (" and " if conjunction else " or ").join(parts)


def write_predicate(predicate: Predicate) -> str:
    attribute, operator = predicate.attribute, predicate.operator
    syntax = SPECS[operator].syntax
    if syntax is Syntax.PRESENCE:
        return f"{operator}({attribute})"
    operands = [write_operand(operand) for operand in predicate.operands]
    if syntax is Syntax.LIST:
        return f"{attribute} {operator} ({', '.join(operands)})"
    return f"{attribute} {operator} {' and '.join(operands)}"


def write_call(call: Call) -> str:
    text = f"{call.operator}({', '.join([write_argument(argument) for argument in call.arguments])})"
    return text if call.expected else f"not {text}"


def write_argument(argument: Argument) -> str:
    if isinstance(argument, Column):
        return argument.attribute
    return f"?{argument.name}" if isinstance(argument, Free) else write_operand(argument)


def write_constraint(constraint: Constraint) -> str:
    terms = ""
    for scale, name in constraint.terms:
        size = abs(scale) if terms else scale
        if terms:
            terms += " - " if scale < 0 else " + "
        terms += f"?{name}" if size == 1 else f"{size!r} * ?{name}"
    return f"{terms} {constraint.operator} {write_operand(constraint.operand)}"


def write_operand(operand: Operand) -> str:
    """The text of a constant, or of a variable with its scale and offset."""
    if isinstance(operand, Constant):
        return write_value(operand.value)
    text = f"${operand.name}" if operand.scale == 1 else f"{operand.scale!r} * ${operand.name}"
    if operand.offset > 0:
        return f"{text} + {operand.offset!r}"
    return f"{text} - {-operand.offset!r}" if operand.offset < 0 else text


def write_value(value: Scalar) -> str:
    """The literal of a value in its inner form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, str):
        return f'"{"".join([_character(character) for character in value])}"'
    return repr(value)


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"

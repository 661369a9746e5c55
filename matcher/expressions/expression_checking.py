"""The check of a whole expression: its leaves fit its event type, and it is not too deep."""

from __future__ import annotations

from covey.matcher.errors import FilterError
from covey.matcher.events.event_type import EventType
from covey.matcher.expressions.call_checking import check_call
from covey.matcher.expressions.checking import DEPTH_LIMIT, Variables, check_predicate
from covey.matcher.expressions.expression import (
    And,
    Call,
    Constraint,
    Expression,
    Or,
    Predicate,
    all_of,
    any_of,
)
from covey.matcher.expressions.free_variables import check_free_variables, check_terms


def check_expression(
    event_type: EventType, expression: Expression, unknown_operators: bool = False
) -> Expression:
    """The expression in normal form; `FilterError` says what does not fit, or that it is too deep."""
    return _Check(event_type, unknown_operators).whole(expression)


class _Check:
    def __init__(self, event_type: EventType, unknown_operators: bool) -> None:
        self.event_type = event_type
        self.unknown_operators = unknown_operators
        self.variables = Variables()
        self.has_calls = False

    def whole(self, expression: Expression) -> Expression:
        checked = self.checked(expression, 0)
        if self.has_calls:
            return check_free_variables(self.event_type, checked, self.variables)
        return checked

    def checked(self, expression: Expression, depth: int) -> Expression:
        if isinstance(expression, Predicate):
            return check_predicate(self.event_type, expression, self.variables)
        if not isinstance(expression, (And, Or)):
            return self.leaf(expression)
        if depth > 2 * DEPTH_LIMIT + 1:
            raise FilterError(f"filter is nested more than {DEPTH_LIMIT} deep")
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(self.checked(part, depth + 1))  # noqa: PERF401 (saves stack)
        return all_of(parts) if isinstance(expression, And) else any_of(parts)

    def leaf(self, leaf: Call | Constraint) -> Call | Constraint:
        self.has_calls = True
        if isinstance(leaf, Call):
            return check_call(self.event_type, leaf, self.variables, self.unknown_operators)
        if not isinstance(leaf, Constraint):
            raise FilterError(f"expression {leaf!r}: expected a Predicate, Call, Constraint, And or Or")
        return check_terms(leaf)

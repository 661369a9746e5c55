"""The keys that operands give the tests of a plan: low ends and high ends."""

from __future__ import annotations

from covey.matcher.event_type import Kind
from covey.matcher.keys import Keys
from covey.matcher.operands import Values, lower, upper
from covey.matcher.plan import Side, TestPlan

Operands = dict[int, Values]
"""Values of operands by number, the codes of strings by ~number; one for all subscriptions or one for
each.
"""


def low_bounds(test: TestPlan, side: Side, operands: Operands) -> int | Keys:
    return lower(test.kind, operands[_operand(test, side)], side.strict)


def high_bounds(test: TestPlan, side: Side, operands: Operands) -> int | Keys:
    return upper(test.kind, operands[_operand(test, side)], side.strict)


def _operand(test: TestPlan, side: Side) -> int:
    return ~side.operand if test.kind is Kind.STRING else side.operand

"""The keys that operands give the tests of a plan: low ends and high ends."""

from __future__ import annotations

import numpy as np

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


def is_equality(test: TestPlan, operands: Operands) -> bool:
    """Whether both bounds are the same integers, which have the same keys at either end."""
    if test.lower is None or test.lower != test.upper or test.lower.strict:
        return False
    values = operands[_operand(test, test.lower)]
    return isinstance(values, np.ndarray) and values.dtype == np.int64 and test.kind is not Kind.FLOAT64


def _operand(test: TestPlan, side: Side) -> int:
    return ~side.operand if test.kind is Kind.STRING else side.operand

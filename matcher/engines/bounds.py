"""The keys that operands give the tests of a plan: low ends, high ends, and access keys of equalities."""

from __future__ import annotations

import numpy as np

from covey.matcher.event_type import Kind
from covey.matcher.keys import MISSING, Keys
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


def access_keys(test: TestPlan, operands: Operands) -> int | Keys:
    """The key of an equality; MISSING, which no event is looked up by, where no value is equal (an int64
    and 10.5).
    """
    assert test.lower is not None
    low, high = low_bounds(test, test.lower, operands), high_bounds(test, test.lower, operands)
    if isinstance(low, np.ndarray) and isinstance(high, np.ndarray):
        return np.where(low == high, low, MISSING)
    return low if low == high else MISSING

"""The keys that operands give the tests of a plan: low ends and high ends.

Columns of int64, float64 and what is compared as plain integers become bounds in one kernel call per box;
others (Python integers mixed with floats, int64 against a float64 attribute) are converted test by test.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.compile import bound_kernels as k
from covey.matcher.compile.operands import Values, bound_key
from covey.matcher.compile.plan import SKELETONS, BoxPlan, BoxSkeleton, Side, TestPlan
from covey.matcher.encoding.keys import Keys
from covey.matcher.events.event_type import Kind
from covey.matcher.events.times import microseconds

Operands = dict[int, Values]
"""Values of operands by number, the ids of strings by ~number; one for all subscriptions or one for
each.
"""

_INTEGERS = frozenset({np.dtype(np.int64).char, "int", "bool"})
_FAMILIES = {Kind.INT64: k.INTEGER, Kind.FLOAT64: k.FLOAT}


@dataclass(frozen=True, slots=True)
class Sides:
    """The ends of a box's tests and texts as `bound_kernels` takes them; the operands they refer to, and
    which of these are floats.
    """

    operands: tuple[int, ...]
    floats: tuple[bool, ...]
    lines: npt.NDArray[np.int64]


@lru_cache(SKELETONS)
def _sides(box: BoxSkeleton) -> Sides:
    numbers: dict[tuple[int, bool], int] = {}
    lines: list[int] = []
    for test in box.tests:
        lines.append(_FAMILIES.get(test.kind, k.PLAIN))
        for side, constant in ((test.lower, test.low), (test.upper, test.high)):
            if side is None:
                lines += (k.NO_OPERAND, 0, constant)
            else:
                operand = _operand(test, side), test.kind is Kind.FLOAT64
                lines += (numbers.setdefault(operand, len(numbers)), side.strict, 0)
    for text in box.texts:
        lines += (k.PLAIN, k.NO_OPERAND, 0, text.expected, k.NO_OPERAND, 0, text.expected)
    array = np.array(lines, dtype=np.int64).reshape(-1, k.SIDE_FIELDS)
    return Sides(tuple([o for o, _ in numbers]), tuple([is_float for _, is_float in numbers]), array)


def box_bounds(plan: BoxPlan, operands: Operands, count: int) -> tuple[Keys, Keys]:
    """lows[t, i] and highs[t, i] of the tests and texts of a box, for `count` rows."""
    lows = np.empty((plan.size, count), dtype=np.int64)
    highs = np.empty((plan.size, count), dtype=np.int64)
    sides = _sides(plan.skeleton)
    values = _plain_values(sides, operands, count)
    if values is not None:
        k.make_bounds(sides.lines, values, lows, highs)
        return lows, highs
    for t, test in enumerate(plan.tests):
        lows[t] = test.low if test.lower is None else side_keys(test, test.lower, operands, lower=True)
        highs[t] = test.high if test.upper is None else side_keys(test, test.upper, operands, lower=False)
    for t, text in enumerate(plan.texts, start=len(plan.tests)):
        lows[t] = highs[t] = text.expected
    return lows, highs


def _plain_values(sides: Sides, operands: Operands, count: int) -> Keys | None:
    """The operands' values, int64[operand, i], floats by their bits; None where some are of another type."""
    integers = np.empty((len(sides.operands), count), dtype=np.int64)
    floats = integers.view(np.float64)
    for slot, (operand, is_float) in enumerate(zip(sides.operands, sides.floats, strict=True)):
        value: Any = operands[operand]
        kind = value.dtype.char if isinstance(value, np.ndarray) else type(value).__name__
        if is_float and kind in ("d", "float"):
            floats[slot] = value
        elif not is_float and kind in _INTEGERS:
            integers[slot] = value
        elif isinstance(value, datetime):
            integers[slot] = microseconds(value)
        else:
            return None
    return integers


def side_keys(test: TestPlan, side: Side, operands: Operands, *, lower: bool) -> int | Keys:
    """The keys of one end of a test."""
    return bound_key(test.kind, operands[_operand(test, side)], side.strict, lower=lower)


def _operand(test: TestPlan, side: Side) -> int:
    return ~side.operand if test.kind is Kind.STRING else side.operand

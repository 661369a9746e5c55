"""The keys that operands give the tests of a plan: low ends and high ends.

Columns of int64, float64 and what is compared as plain integers become bounds in one kernel call per box;
others (Python integers mixed with floats, int64 against a float64 attribute) are converted test by test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.compile import bound_kernels as k
from covey.matcher.compile.operands import Values, bound_key
from covey.matcher.compile.plan import SKELETONS, BoxPlan, BoxSkeleton
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.events.event_type import Kind
from covey.matcher.events.times import microseconds

Operands = dict[int, Values]
"""Values of operands by number; one for all subscriptions or one for each."""

Source = tuple[int, Kind, int, bool]
"""An operand, the kind of the test it bounds; and for strings that test, and whether `Side.past`."""

_INTEGERS = frozenset({np.dtype(np.int64).char, "int", "bool"})
_FAMILIES = {Kind.INT64: k.INTEGER, Kind.FLOAT64: k.FLOAT}


@dataclass(frozen=True, slots=True)
class Sides:
    """The ends of a box's tests and texts as `bound_kernels` takes them, and where they come from."""

    sources: tuple[Source, ...]
    lines: npt.NDArray[np.int64]


@lru_cache(SKELETONS)
def _sides(box: BoxSkeleton) -> Sides:
    numbers: dict[Source, int] = {}
    lines: list[int] = []
    for t, test in enumerate(box.tests):
        lines.append(_FAMILIES.get(test.kind, k.PLAIN))
        for side, constant in ((test.lower, test.low), (test.upper, test.high)):
            if side is None:
                lines += (k.NO_OPERAND, 0, constant)
            else:
                of = t if test.kind is Kind.STRING else 0
                source = side.operand, test.kind, of, side.past
                lines += (numbers.setdefault(source, len(numbers)), side.strict, 0)
    for text in box.texts:
        lines += (k.PLAIN, k.NO_OPERAND, 0, text.expected, k.NO_OPERAND, 0, text.expected)
    array = np.array(lines, dtype=np.int64).reshape(-1, k.SIDE_FIELDS)
    return Sides(tuple(numbers), array)


def ranked_operands(plan: BoxPlan) -> Iterator[tuple[int, int, bool]]:
    """(operand, column, `Side.past`) of the strings that bound ranges of a box."""
    for operand, kind, test, past in _sides(plan.skeleton).sources:
        if kind is Kind.STRING and plan.tests[test].is_ranked:
            yield operand, plan.columns[test], past


def box_bounds(plan: BoxPlan, operands: Operands, count: int, columns: Columns) -> tuple[Keys, Keys]:
    """lows[t, i] and highs[t, i] of the tests and texts of a box, for `count` rows."""
    lows = np.empty((plan.size, count), dtype=np.int64)
    highs = np.empty((plan.size, count), dtype=np.int64)
    sides = _sides(plan.skeleton)
    values = _plain_values(plan, sides, operands, count, columns)
    if values is not None:
        k.make_bounds(sides.lines, values, lows, highs)
        return lows, highs
    for t in range(len(plan.tests)):
        lows[t] = end_keys(plan, t, operands, columns, lower=True)
        highs[t] = end_keys(plan, t, operands, columns, lower=False)
    for t, text in enumerate(plan.texts, start=len(plan.tests)):
        lows[t] = highs[t] = text.expected
    return lows, highs


def _plain_values(
    plan: BoxPlan, sides: Sides, operands: Operands, count: int, columns: Columns
) -> Keys | None:
    """The operands' values, int64[source, i], floats by their bits; None where some are of another type."""
    integers = np.empty((len(sides.sources), count), dtype=np.int64)
    floats = integers.view(np.float64)
    for slot, (operand, kind, test, past) in enumerate(sides.sources):
        value: Any = operands[operand]
        if kind is Kind.STRING:
            integers[slot] = columns.text_keys(plan.columns[test], past, value)
            continue
        type_name = value.dtype.char if isinstance(value, np.ndarray) else type(value).__name__
        if kind is Kind.FLOAT64 and type_name in ("d", "float"):
            floats[slot] = value
        elif kind is not Kind.FLOAT64 and type_name in _INTEGERS:
            integers[slot] = value
        elif isinstance(value, datetime):
            integers[slot] = microseconds(value)
        else:
            return None
    return integers


def end_keys(plan: BoxPlan, t: int, operands: Operands, columns: Columns, *, lower: bool) -> int | Keys:
    """The keys of one end of a test."""
    test = plan.tests[t]
    side = test.lower if lower else test.upper
    if side is None:
        return test.low if lower else test.high
    value = operands[side.operand]
    if test.kind is Kind.STRING:
        value = columns.text_keys(plan.columns[t], side.past, value)
    return bound_key(test.kind, value, side.strict, lower=lower)

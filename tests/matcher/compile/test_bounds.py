"""Bounds of boxes: the kernel's equal single ones."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_filters import FLOATS, INTEGERS

from covey.matcher import EventType, Kind, parse
from covey.matcher.compile.bounds import Operands, box_bounds
from covey.matcher.compile.plan import Plan, make_plan, plan_key
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import lower_key, upper_key
from covey.matcher.encoding.schema_columns import SchemaColumns

T = EventType("T", {"i": "int64", "f": "float64", "b": "bool", "t": "timestamp", "s": "string"})
TEXTS = (
    "i < $x", "i <= $x and i > $y", "i == $x", "f >= $x and f < $y", "f == $x", "i > $x and f <= $y",
    "i between $x and $y and exists(f)", "not exists(i) and f > $x", "i > $x and i < $y and i <= $z",
)  # fmt: skip
integers = st.one_of(st.sampled_from(INTEGERS), st.integers(-(2**63), 2**63 - 1))
floats = st.one_of(st.sampled_from(FLOATS), st.floats(allow_nan=False))


def plan_of(text: str) -> Plan:
    filter = parse(text, T)
    made = make_plan(filter, plan_key(filter)[0], SchemaColumns(filter.event_type))
    return made[0]


@given(st.sampled_from(TEXTS), st.integers(1, 5), st.booleans(), st.data())
def test_columns_and_single_values_give_the_bounds_of_each(
    text: str, count: int, alone: bool, data: st.DataObject
) -> None:
    plan = plan_of(text)
    (box,) = plan.boxes
    operands: Operands = {}
    each: dict[int, list[Any]] = {}
    for number, kind in enumerate(plan.kinds):
        drawn = integers if kind is Kind.INT64 else floats
        values = data.draw(st.lists(drawn, min_size=count, max_size=count))
        each[number] = values[:1] * count if alone else values
        column = np.array(values, dtype=np.int64 if kind is Kind.INT64 else np.float64)
        operands[number] = values[0] if alone else column
    lows, highs = box_bounds(box, operands, count, Columns(T))
    for t, test in enumerate(box.tests):
        for i in range(count):
            for side, one, bounds in ((test.lower, lower_key, lows), (test.upper, upper_key, highs)):
                if side is None:
                    assert bounds[t, i] == (test.low if bounds is lows else test.high)
                    continue
                value = each[side.operand][i]
                assert bounds[t, i] == one(test.kind, value, side.strict)


def test_types_without_a_kernel_give_the_same_bounds() -> None:
    (box,) = plan_of("i <= $x and f > $y").boxes
    of_test = {test.kind: t for t, test in enumerate(box.tests)}
    operands: Operands = {1: np.array([1, 2**53 + 1], dtype=np.int64), 0: np.array([0.5, 7.0])}
    lows, highs = box_bounds(box, operands, 2, Columns(T))
    assert lows[of_test[Kind.FLOAT64]].tolist() == [lower_key(Kind.FLOAT64, v, True) for v in (1, 2**53 + 1)]
    assert highs[of_test[Kind.INT64]].tolist() == [0, 7]

"""One walk finds all texts that a string contains or ends with, while texts come and go."""

import numpy as np
import pyarrow as pa
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher.encoding.texts import Texts
from covey.matcher.events.int64 import MISSING
from covey.matcher.expressions.operators import PASSES, Operator

texts = st.text(alphabet="ab\0é\u20ac\U0010ffff", max_size=5)
tests = st.tuples(st.sampled_from([Operator.CONTAINS, Operator.SUFFIX]), texts)


def columns_of(entered: Texts, strings: list[str | None], width: int) -> list[list[int]]:
    keys = np.zeros((len(strings), width), dtype=np.int64)
    entered.encode(pa.array(["", *strings], pa.string()).slice(1), keys)
    rows: list[list[int]] = keys.tolist()
    return rows


@examples(300)
@given(st.lists(tests, max_size=30), st.lists(texts, min_size=1, max_size=8), st.data())
def test_texts_are_found_as_each_operator_says(
    wanted: list[tuple[Operator, str]], strings: list[str], data: st.DataObject
) -> None:
    entered = Texts()
    columns: dict[tuple[Operator, str], int] = {}
    for column, test in enumerate(wanted):
        if test in columns:
            entered.remove(*test)
            del columns[test]
        if data.draw(st.booleans(), label="enter"):
            entered.enter(*test, column)
            columns[test] = column
    assert len(entered) == len(columns)
    for string, keys in zip(strings, columns_of(entered, list(strings), len(wanted)), strict=True):
        expected = {column for (op, text), column in columns.items() if PASSES[op](string, [text])}
        assert {column for column, key in enumerate(keys) if key} == expected


def test_columns_of_a_missing_string_are_missing() -> None:
    entered = Texts()
    entered.enter(Operator.CONTAINS, "", 1)
    assert columns_of(entered, [None, ""], 3) == [[0, MISSING, 0], [0, 1, 0]]


def test_the_memory_of_texts_is_freed() -> None:
    entered = Texts()
    before = entered.memory_bytes()
    for i in range(5000):
        entered.enter(Operator.CONTAINS, f"text number {i}", i)
    assert entered.memory_bytes() < 16_000_000
    for i in range(5000):
        entered.remove(Operator.CONTAINS, f"text number {i}")
    assert (len(entered), entered.memory_bytes()) == (0, before)
    for i in range(20_000):  # one after the other
        entered.enter(Operator.SUFFIX, f"text number {i}", 0)
        entered.remove(Operator.SUFFIX, f"text number {i}")
    assert entered.memory_bytes() < before + 100_000

"""`has_any`, `has_all` and `has_only` against Python's sets."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_calls import answers, covers, operator

RELATIONS: dict[str, Any] = {
    "has_any": lambda have, values: bool(have & values),
    "has_all": lambda have, values: have >= values,
    "has_only": lambda have, values: have <= values,
}
strings = st.sampled_from(["a", "b", "c", "ä", ""])
lists = st.lists(st.lists(strings, max_size=6), min_size=1, max_size=12)
values = st.lists(strings, min_size=1, max_size=4)


@pytest.mark.parametrize("name", RELATIONS)
@given(lists, values)
def test_relations_are_those_of_sets(name: str, rows: list[list[str]], given: list[str]) -> None:
    expected = [RELATIONS[name](set(row), set(given)) for row in rows]
    column = pa.array(rows, pa.list_(pa.string()))
    assert list(operator(name).evaluate(column, *given)) == expected
    assert list(operator(name).evaluate(column.slice(1), *given)) == expected[1:]


@pytest.mark.parametrize("name", RELATIONS)
@given(values, values)
def test_a_relation_covers_those_that_imply_it(name: str, wider: list[str], narrower: list[str]) -> None:
    universe = ["a", "b", "c", "ä", "", "other"]
    subsets = [{u for i, u in enumerate(universe) if bits >> i & 1} for bits in range(1 << len(universe))]
    holds = RELATIONS[name]
    implied = all(holds(s, set(wider)) for s in subsets if holds(s, set(narrower)))
    assert covers(name, (None, *wider), (None, *narrower)) == implied


def test_a_list_of_a_filter() -> None:
    assert answers("has_any", [["sea", "sun"], ["sun"], []], "sea", "sand") == [True, False, False]
    assert answers("has_all", [["sea", "sun"], ["sun", "sun"], ["x"]], "sun", "sea") == [True, False, False]
    assert answers("has_only", [["sea", "sun"], ["sun"], ["x"]], "sun") == [False, True, False]

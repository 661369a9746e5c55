"""Columns of values are checked like single values."""

from math import copysign, nan
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventType, VariableError, parse
from covey.matcher.compile.bounds import check_columns

T = EventType("T", {"i": "int64", "f": "float64"})
FILTER = parse("i > $a and f < $b and i <= $c and f between $d and $e", T)
FLOATS = [0.0, -0.0, 1.5, -2.0, 1e300, float("inf")]
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FORMS = ("float64", "float64", "float32", "int64", "uint8", "list", "strided", "one")


@st.composite
def columns(draw: st.DrawFn, count: int, floats: st.SearchStrategy[float]) -> Any:
    form = draw(st.sampled_from(FORMS))
    if form == "one":
        return draw(st.one_of(floats, INTEGERS))
    elements: dict[str, st.SearchStrategy[Any]] = {
        "list": st.one_of(floats, INTEGERS), "int64": INTEGERS, "uint8": st.integers(0, 255),
    }  # fmt: skip
    values = draw(st.lists(elements.get(form, floats), min_size=count, max_size=count))
    if form == "list":
        return values
    if form == "strided":
        return np.repeat(np.array(values), 2)[::2]
    with np.errstate(over="ignore"):
        return np.array(values).astype(form)


@examples(300)
@given(st.data(), st.integers(1, 4))
def test_columns_are_checked_as_their_elements(data: st.DataObject, count: int) -> None:
    floats = st.sampled_from(data.draw(st.sampled_from([FLOATS, [*FLOATS, nan]])))
    values = {name: data.draw(columns(count, floats)) for name in "abcde"}
    each = [
        {name: value[i] if isinstance(value, np.ndarray | list) else value for name, value in values.items()}
        for i in range(count)
    ]
    try:
        expected = [FILTER.check_values(one) for one in each]
    except VariableError:
        with pytest.raises(VariableError):
            check_columns(FILTER, values, count)
        return
    checked = check_columns(FILTER, values, count)
    assert checked.keys() == values.keys()
    for name, found in checked.items():
        for i in range(count):
            value: Any = found[i] if isinstance(found, np.ndarray) else found
            assert value == expected[i][name]
            assert copysign(1, value) == copysign(1, expected[i][name])

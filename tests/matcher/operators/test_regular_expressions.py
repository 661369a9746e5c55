"""`matches` against Python's `re` on common patterns; refused patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_calls import answers, operator

pytest.importorskip("re2")

pieces = st.recursive(
    st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", "^", "$", "\\.", "ab", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("({})".format),
        st.tuples(inner.map("(?:{})".format), st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map("".join),
    ),
    max_leaves=6,
)
texts = st.lists(st.text("abé.", max_size=6), min_size=1, max_size=5)


@given(pieces, texts, st.sampled_from([1, 50]))
def test_a_pattern_is_found_where_re_finds_it(pattern: str, values: list[str], times: int) -> None:
    expected = [re.search(pattern, value) is not None for value in values]
    assert answers("matches", values * times, pattern) == expected * times


@pytest.mark.parametrize("count", [1, 100])
def test_patterns_are_searched_unless_anchored(count: int) -> None:
    values = ["error 17", "no error", "Error", "ERROR\n42"] * count
    assert answers("matches", values, "error") == [True, True, False, False] * count
    assert answers("matches", values, "^error") == [True, False, False, False] * count
    assert answers("matches", values, r"(?i)^error\s\d+$") == [True, False, False, True] * count
    assert answers("matches", values, "") == [True] * 4 * count
    assert answers("matches", values, r"\pL+ \d") == [True, False, False, False] * count


@pytest.mark.parametrize("count", [1, 100])
def test_text_that_defeats_backtracking_takes_linear_time(count: int) -> None:
    values = ["a" * 5_000 + "!"] * count
    assert answers("matches", values, "^(a+)+$") == [False] * count
    assert answers("matches", values, "(a|aa|a?)*b") == [False] * count


def test_empty_batches() -> None:
    import pyarrow as pa

    assert list(operator("matches").evaluate(pa.array([], pa.string()), "a")) == []


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("[", r"pattern '\[': missing \]"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("a{1001}", "invalid repetition size"),
        (r"\pL{50}", "instructions, expected at most 10000"),
        (r"(\pL{100}){9}", "too large"),
    ],
)
def test_a_pattern_that_is_none_is_refused_by_name(pattern: str, error: str) -> None:
    check = operator("matches").check
    assert check is not None
    with pytest.raises(ValueError, match=error):
        check((None, pattern))
    check((None, None))

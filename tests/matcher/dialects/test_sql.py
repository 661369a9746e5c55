"""Translated selectors match as SQL's three-valued logic does."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventType, FilterSyntaxError, parse
from covey.matcher.dialects import translate

TRADE = EventType("Trade", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool"})
TEXTS = ["", "I", "IBM", "B", "a%b", "a_b", "it's", 'say "x"', "é\n", "a.b"]
COMPARE = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

Event = Mapping[str, Any]
Truth = bool | None
Selector = tuple[str, Callable[[Event], Truth]]


def known(name: str, test: Callable[[Any], bool]) -> Callable[[Event], Truth]:
    return lambda event: None if event.get(name) is None else test(event[name])


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def like(pattern: str, text: str) -> bool:
    parts = {"%": ".*", "_": "."}
    whole = "".join(parts.get(character) or re.escape(character) for character in pattern)
    return re.fullmatch(whole, text, re.DOTALL) is not None


@st.composite
def predicates(draw: st.DrawFn) -> Selector:
    name, values = draw(st.sampled_from([("firm", TEXTS), ("price", [0, 1, 2.5, -3]), ("volume", [0, 1, 7])]))
    literal: Callable[[Any], str] = quoted if name == "firm" else str
    one, two = draw(st.sampled_from(values)), draw(st.sampled_from(values))
    no = draw(st.booleans())
    before = "NOT " if no else ""
    kind = draw(st.sampled_from(["compare", "mirror", "between", "in", "like", "null", "bool"]))
    if kind == "bool":
        return "open", known("open", bool)
    if kind == "null":
        return f"{name} IS {before}NULL", lambda event: (event.get(name) is None) != no
    if kind == "like":
        pattern = draw(st.text(st.sampled_from("%_IBMa.'é\n"), max_size=5))
        return f"firm {before}LIKE {quoted(pattern)}", known("firm", lambda text: like(pattern, text) != no)
    if kind == "between":
        text = f"{name} {before}BETWEEN {literal(one)} AND {literal(two)}"
        return text, known(name, lambda value: (one <= value <= two) != no)
    if kind == "in":
        text = f"{name} {before}IN ({literal(one)}, {literal(two)})"
        return text, known(name, lambda value: (value in (one, two)) != no)
    sign = draw(st.sampled_from(sorted(COMPARE)))
    if kind == "mirror":
        return f"{literal(one)} {sign} {name}", known(name, lambda value: COMPARE[sign](one, value))
    return f"{name} {sign} {literal(one)}", known(name, lambda value: COMPARE[sign](value, one))


def joints(inner: st.SearchStrategy[Selector]) -> st.SearchStrategy[Selector]:
    def both(parts: tuple[Selector, Selector]) -> Selector:
        (one, left), (two, right) = parts

        def truth(event: Event) -> Truth:
            values = (left(event), right(event))
            return False if False in values else None if None in values else True

        return f"({one}) AND ({two})", truth

    def either(parts: tuple[Selector, Selector]) -> Selector:
        (one, left), (two, right) = parts

        def truth(event: Event) -> Truth:
            values = (left(event), right(event))
            return True if True in values else None if None in values else False

        return f"{one} or ({two})", truth

    pairs = st.tuples(inner, inner)
    not_ = inner.map(lambda part: (f"not ({part[0]})", lambda event: negated(part[1](event))))
    return st.one_of(pairs.map(both), pairs.map(either), not_)


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "firm": st.sampled_from(TEXTS),
        "price": st.sampled_from([0.0, 1.0, 2.5, -3.0, 4.0]),
        "volume": st.sampled_from([0, 1, 2, 7]),
        "open": st.booleans(),
    },
)


@given(st.recursive(predicates(), joints, max_leaves=6), st.lists(EVENTS, min_size=1, max_size=5))
def test_a_filter_matches_where_the_selector_is_true(selector: Selector, events: list[Event]) -> None:
    text, truth = selector
    filter = parse(translate(text, "sql"), TRADE)
    assert [filter.matches(event) for event in events] == [truth(event) is True for event in events]


@pytest.mark.parametrize(
    ("selector", "filter"),
    [
        ("", ""),
        ("true", "true"),
        ("1 + 1 = 3 OR open", "false or open == true"),
        ("price > -(2 + 3) * 4 / 3.0", "price > -6.666666666666667"),
        ("volume > 7 / 2 * -1", "volume > -3"),
        ("price < 1.01 * :limit - 0.5", "price < 1.01 * $limit - 0.5"),
        ("price < (2 - :limit) / 4", "price < -0.25 * $limit + 0.5"),
        ("price between :low and :low + 1", "price between $low and $low + 1"),
        ('"in" = 1', "in == 1"),
        (r"firm LIKE '50\%' ESCAPE '\'", 'firm == "50%"'),
        ("firm LIKE '%%'", "exists(firm)"),
        ("NOT NOT open", "not not open == true"),
    ],
)
def test_translations(selector: str, filter: str) -> None:
    assert translate(selector, "sql") == filter


@pytest.mark.parametrize(
    ("selector", "message", "column"),
    [
        ("price <", "expected an attribute, a constant, a variable or a condition in parentheses", 7),
        ("price = NULL", "NULL equals nothing: expected IS NULL or IS NOT NULL", 8),
        ("price = volume", "=: expected a constant or a variable, no second attribute", 8),
        ("price + 1 > 3", "+: expected no attribute in sums and products", 0),
        ("price < 'a", "expected a word, a number, a text in '…' or an operator", 8),
        ("(price < 3", "expected )", 10),
        ("price < 3 )", "expected AND, OR or the end of the selector", 10),
        ("price LIKE 3", "LIKE: expected a text in '…'", 11),
        ("firm LIKE 'a' ESCAPE 'xy'", "ESCAPE: expected a text of one character in '…'", 21),
        ("firm LIKE 'axb' ESCAPE 'x'", "LIKE: expected %, _ or x behind x", 10),
        ("price BETWEEN 1 3", "expected AND", 16),
        ("price NOT 3", "expected BETWEEN, IN or LIKE", 10),
        ("price > :a + :b", "+: expected at most one variable", 11),
        ("price > 1 / 0", "/: expected a number other than 0 on its right", 10),
        ("'a' < 3", "expected an attribute on one side", 4),
        ("(price > 1) = 3", "=: expected an attribute on its left", 12),
        ("price > (open and open)", ">: expected a constant or a variable, no condition", 6),
        ("3", "expected a condition", 0),
        ("volume = 9223372036854775808", "expected an integer of 64 bits", 9),
        ("NOT " * 201 + "open", "expected at most 200 parentheses and NOT inside each other", 804),
    ],
)
def test_what_is_wrong_is_said_with_its_place(selector: str, message: str, column: int) -> None:
    with pytest.raises(FilterSyntaxError) as raised:
        translate(selector, "sql")
    assert (raised.value.message, raised.value.column) == (f"SQL selector: {message}", column)

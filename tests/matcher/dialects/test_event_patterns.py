"""Translated event patterns match as an evaluation of the JSON does."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventType, FilterError, FilterSyntaxError, parse
from covey.matcher.dialects import translate

TRADE = EventType("Trade", {"firm": "string", "detail_state": "string", "price": "float64"})
TEXTS = ["", "on", "ON", "off", "a*b", "a\\b", "axb", "x.y"]
ATTRIBUTES = {"firm": "firm", "detail-state": "detail_state", "price": "price"}

texts = st.sampled_from(TEXTS)
numbers = st.sampled_from([0, 1, 2.5])


def affix(word: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(texts, texts.map(lambda text: {"equals-ignore-case": text})).map(
        lambda each: {word: each}
    )


def matchers() -> st.SearchStrategy[Any]:
    wildcard = st.text(st.sampled_from("*on."), min_size=1, max_size=4).map(lambda text: {"wildcard": text})
    plain = st.one_of(
        affix("prefix"), affix("suffix"), texts.map(lambda text: {"equals-ignore-case": text}), wildcard
    )
    values = st.one_of(texts, st.lists(texts, min_size=1, max_size=2))
    but = st.one_of(values, plain.filter(lambda each: isinstance(next(iter(each.values())), str)))
    exists = st.booleans().map(lambda there: {"exists": there})
    return st.one_of(texts, st.none(), plain, but.map(lambda each: {"anything-but": each}), exists)


def numeric() -> st.SearchStrategy[Any]:
    return st.one_of(
        numbers,
        st.tuples(st.sampled_from([">", ">=", "="]), numbers).map(lambda each: {"numeric": [*each]}),
        st.tuples(numbers, numbers).map(lambda each: {"numeric": [">", each[0], "<=", each[1]]}),
        st.lists(numbers, min_size=1, max_size=2).map(lambda each: {"anything-but": each}),
        st.none(),
    )


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "firm": st.lists(matchers(), min_size=1, max_size=3),
        "detail": st.fixed_dictionaries({"state": st.lists(matchers(), min_size=1, max_size=2)}),
        "price": st.lists(numeric(), min_size=1, max_size=2),
    },
).filter(bool)
PATTERNS = st.one_of(
    FIELDS, st.lists(FIELDS, min_size=1, max_size=3).map(lambda each: {"$or": each}),
    st.tuples(FIELDS, FIELDS).map(lambda pair: pair[0] | {"$or": [pair[1]]}),
)  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {}, optional={"firm": texts, "detail_state": texts, "price": numbers.map(float)}
)


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any], path: str = "") -> bool:
    return all(
        any(matches(each, event, path) for each in wanted)
        if name == "$or"
        else matches(wanted, event, f"{path}{name}_")
        if isinstance(wanted, dict)
        else any(one(each, event.get(f"{path}{name}")) for each in wanted)
        for name, wanted in pattern.items()
    )


def one(wanted: Any, value: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    ((kind, argument),) = wanted.items()
    if kind == "exists":
        return bool((value is not None) == argument)
    if value is None:
        return False
    if kind == "anything-but":
        return not any(one(each, value) for each in (argument if isinstance(argument, list) else [argument]))
    if kind == "numeric":
        signs = {">": value.__gt__, ">=": value.__ge__, "=": value.__eq__, "<=": value.__le__}
        return all(signs[sign](number) for sign, number in zip(argument[::2], argument[1::2], strict=True))
    if isinstance(argument, dict):
        value, argument = value.lower(), argument["equals-ignore-case"].lower()
    if kind in ("prefix", "suffix"):
        return bool(value.startswith(argument) if kind == "prefix" else value.endswith(argument))
    if kind == "equals-ignore-case":
        return bool(value.lower() == argument.lower())
    whole = ".*".join(re.escape(piece) for piece in argument.split("*"))
    return re.fullmatch(whole, value, re.DOTALL) is not None


@given(PATTERNS, st.lists(EVENTS, min_size=1, max_size=5))
def test_a_filter_matches_what_the_pattern_matches(
    pattern: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    filter = parse(translate(json.dumps(pattern), "eventbridge"), TRADE)
    assert [filter.matches(event) for event in events] == [matches(pattern, event) for event in events]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{", "no JSON, Expecting property name enclosed in double quotes"),
        ("[1]", "the pattern: expected an object with at least one field"),
        ("{}", "the pattern: expected an object with at least one field"),
        ('{"a": {}}', "a: expected an object with at least one field"),
        ('{"a": 1}', "a: expected a list of what matches, or an object"),
        ('{"a": []}', "a: expected a list of what matches, or an object"),
        ('{"a": [[1]]}', "a: a list in the list, expected values and matchers"),
        ('{"a b": [1]}', "field 'a b': expected letters, digits, _, - and ."),
        ('{"$or": {}}', "$or: expected a list of patterns"),
        ('{"a": [{"prefix": 1}]}', "a: prefix 1, expected a text"),
        ('{"a": [{"exists": 1}]}', "a: exists 1, expected true or false"),
        ('{"a": [{"prefix": "x", "suffix": "y"}]}', "a: expected one matcher in an object, not 2"),
        ('{"a": [{"numeric": [">"]}]}', "a: numeric, expected one or two comparisons with their numbers"),
        ('{"a": [{"numeric": ["!", 1]}]}', "a: numeric '!', expected = < <= > or >="),
        ('{"a": [{"numeric": [">", true]}]}', "a: numeric true, expected a number"),
        ('{"a": [{"wildcard": "\\\\x"}]}', "a: wildcard, expected * or \\ behind \\"),
    ],
)
def test_what_is_wrong_is_said(pattern: str, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as raised:
        translate(pattern, "eventbridge")
    assert raised.value.message == f"event pattern: {message}"


def test_deep_json_is_refused() -> None:
    for text in ('{"a":' * 202 + "1" + "}" * 202, '{"a":' * 100_000 + "1" + "}" * 100_000):
        with pytest.raises(FilterSyntaxError, match=r"expected (at most 200 objects|less deep JSON)"):
            translate(text, "eventbridge")


def test_another_language_is_refused() -> None:
    with pytest.raises(FilterError, match="language 'xpath': expected covey, sql, eventbridge"):
        translate("", "xpath")

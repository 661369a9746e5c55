"""The table of operators: valid registrations, and unusable entry points."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from operator_calls import operator

from covey.matcher import EventType, parse
from covey.matcher.errors import CoveyError, FilterError
from covey.matcher.operators import table
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes

NUMBER = Parameter("value", NUMBERS, Takes.ATTRIBUTE)
FREE = Parameter("n", NUMBERS, Takes.FREE)
EVEN = NamedOperator("is_even", (NUMBER,), lambda value: value.to_numpy() % 2 == 0)
T = EventType("T", {"x": "int64"})


@pytest.fixture(autouse=True)
def _a_table_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_registered", {})
    monkeypatch.setattr(table, "_failed", {})
    monkeypatch.setattr(table, "_found", None)


def entry(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setattr(table, "_found", {name: EntryPoint(name, value, table.GROUP)})


def test_a_registered_operator_may_be_called_until_it_is_removed() -> None:
    assert table.register(EVEN) is table.register(EVEN) is table.find("is_even")
    assert "is_even" in table.names()
    assert parse("is_even(x)", T).matches({"x": 4}, {})
    table.unregister("is_even")
    with pytest.raises(FilterError, match="unknown operator 'is_even'"):
        parse("is_even(x) and x > 1", T)


def test_changes_are_counted() -> None:
    before = table.changes
    table.register(EVEN)
    table.unregister("is_even")
    assert table.changes > before + 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("is_even", "operator 'is_even': expected a NamedOperator"),
        (replace(EVEN, name="in"), "operator name 'in': expected letters"),
        (replace(EVEN, name="is even"), "operator name 'is even': expected letters"),
        (replace(EVEN, parameters=()), "no parameters, expected at least one"),
        (replace(EVEN, parameters=NUMBER), "parameters Parameter.*, expected a tuple of Parameter"),
        (replace(EVEN, parameters=("value",)), "expected a tuple of Parameter"),
        (replace(EVEN, parameters=(replace(NUMBER, kinds="float64"),)), "kinds of value are 'float64'"),
        (replace(EVEN, parameters=(replace(NUMBER, kinds={"float"}),)), "expected a set of one or more"),
        (replace(EVEN, parameters=(replace(NUMBER, kinds=frozenset()),)), "kinds of value are fro"),
        (replace(EVEN, parameters=(replace(NUMBER, takes="free"),)), "takes of value is 'free'"),
        (replace(EVEN, parameters=(NUMBER, *2 * [FREE])), "parameters n, n, expected different names"),
        (replace(EVEN, evaluate=None), "evaluate is None, expected a function"),
        (replace(EVEN, state={}), "state is {}, expected a function or None"),
        (replace(EVEN, cost_us="1"), "cost_us is '1', expected microseconds or None"),
        (replace(EVEN, cost_us=-1), "cost_us is -1, expected microseconds or None"),
        (replace(EVEN, name="within"), "the name is that of an operator of Covey"),
        (replace(EVEN, optional=1), "1 optional parameters, expected fewer than all"),
        (
            replace(EVEN, parameters=(NUMBER, replace(NUMBER, takes=Takes.FREE)), variadic=True),
            "a free variable as the variadic parameter, expected another",
        ),
    ],
)
def test_what_is_no_operator_is_refused(wrong: Any, error: str) -> None:
    with pytest.raises(CoveyError, match=error):
        table.register(wrong)


def test_a_name_is_given_once() -> None:
    table.register(EVEN)
    with pytest.raises(CoveyError, match="operator is_even: the name is taken, expected another"):
        table.register(replace(EVEN, version=2))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_package.operators:X", "needs the module no_such_package, which is not installed"),
        ("covey.no_such_module:X", r"which is not installed; `pip install 'covey\[operators\]'`"),
        ("covey.matcher.operators.within:NOTHING", "not usable: module .* has no attribute 'NOTHING'"),
        ("covey.matcher.operators.within:EARTH_M", "not usable: operator .*: expected a NamedOperator"),
        ("covey.matcher.operators.within:WITHIN", "another name, odd, than the operator, within"),
    ],
)
def test_an_entry_point_that_cannot_be_used_says_why(
    monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    entry(monkeypatch, "odd", value)
    assert table.find("odd") is None
    assert "odd" in table.names()
    with pytest.raises(FilterError, match=f"operator odd: .*{reason}"):
        parse("odd(x)", T)


def test_entry_points_are_loaded_by_name() -> None:
    assert operator("within").name == "within"
    assert set(table.names()) >= {"within", "inside", "matches", "rate_of_change"}
    assert table.find("no_such_operator") is None
    assert table.why_missing("no_such_operator") == "unknown"


def test_signatures() -> None:
    three = (NUMBER, replace(NUMBER, name="a"), replace(NUMBER, name="b", takes=Takes.FREE))
    assert replace(EVEN, parameters=three).signature == "is_even(value, a, ?b)"
    assert replace(EVEN, parameters=three, optional=2).signature == "is_even(value[, a[, ?b]])"
    assert replace(EVEN, parameters=three[:2], variadic=True).signature == "is_even(value, a, ...)"
    assert replace(EVEN, parameters=three[:2], variadic=True).argument_counts == (2, None)
    assert replace(EVEN, parameters=three, optional=1).argument_counts == (2, 3)
    assert EVEN.parameter(5).kind == "float64"

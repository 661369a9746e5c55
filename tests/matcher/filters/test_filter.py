"""Filters: the rules of truth, variables, substitution, lifting, identity."""

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventError, EventType, Filter, FilterError, VariableError, parse
from covey.matcher.expressions.expression import And, Constant, Or, Predicate, Variable
from covey.matcher.expressions.operators import Operator

T = EventType("T", {"i": "int64", "f": "float64", "s": "string", "b": "bool", "t": "timestamp"})


def true_of(text: str, **event: Any) -> bool:
    return parse(text, T).matches(event)


# --- truth --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attribute", ["i", "f", "s", "b", "t"])
def test_only_exists_and_not_exists_see_absence(attribute: str) -> None:
    constant = {"i": "1", "f": "1", "s": '"a"', "b": "true", "t": '"2026-01-01"'}[attribute]
    tests = ["== {}", "!= {}"]
    if attribute != "b":
        tests += ["< {}", "<= {}", "> {}", ">= {}", "in ({})", "not in ({})", "in ()", "not in ()"]
        tests += ["between {} and {}", "not between {} and {}"]
    if attribute == "s":
        tests += [
            "prefix {}",
            "not prefix {}",
            "suffix {}",
            "not suffix {}",
            "contains {}",
            "not contains {}",
        ]
    for test in tests:
        text = f"{attribute} {test.replace('{}', constant)}"
        assert not true_of(text), text
        assert not true_of(f"not ({text})"), text
        assert not parse(text, T).matches({attribute: None}), text
    assert not true_of(f"exists({attribute})")
    assert true_of(f"not exists({attribute})")
    assert true_of(f"not exists({attribute})", **{attribute: None})


def test_nan_satisfies_only_unequal_not_in_and_exists() -> None:
    for text in ("f == 1", "f < 1", "f <= inf", "f > 1", "f >= -inf", "f in (1)", "f between -inf and inf"):
        assert not true_of(text, f=nan), text
    for text in ("f >= 1", "f not between 1 and 2", "not f < 1"):
        assert not true_of(text, f=nan), text
    for text in ("f != 1", "f not in (1, 2)", "f not in ()", "exists(f)", "not f == 1"):
        assert true_of(text, f=nan), text


def test_numbers_compare_exactly() -> None:
    assert true_of("i < 10.5", i=10)
    assert not true_of("i < 10.5", i=11)
    assert not true_of("i == 10.5", i=10)
    assert true_of("i != 10.5", i=10)
    assert true_of("i == 10.0", i=10)
    assert true_of("f < 9007199254740993", f=9007199254740992.0)
    assert not true_of("f == 9007199254740993", f=9007199254740992.0)
    assert not true_of("i == 9007199254740993", i=9007199254740992)
    assert true_of("i == 9223372036854775807", i=2**63 - 1)
    assert not true_of("i >= 9223372036854775808.0", i=2**63 - 1)
    assert true_of("i < inf and i > -inf", i=-(2**63))
    assert true_of("f == 0", f=-0.0)
    assert true_of("f == -0.0", f=0.0)
    assert true_of("f <= inf and f >= inf", f=inf)
    assert not true_of("f < inf", f=inf)


def test_strings_compare_by_code_point() -> None:
    assert true_of('s > "Z"', s="a")
    assert true_of('s > "a"', s="a\0")
    assert true_of('s > "\uffff"', s="\U0001d11e")  # utf-16 would have it the other way round
    assert true_of('s between "a" and "b"', s="azzz")
    assert not true_of('s between "a" and "b"', s="ba")
    assert true_of('s prefix "" and s suffix "" and s contains ""', s="")
    assert not true_of('s == "a"', s="A")


def test_between_includes_both_ends_and_is_empty_when_they_are_swapped() -> None:
    assert [x for x in range(6) if true_of("i between 2 and 4", i=x)] == [2, 3, 4]
    assert [x for x in range(6) if true_of("i not between 2 and 4", i=x)] == [0, 1, 5]
    assert [x for x in range(6) if true_of("i between 4 and 2", i=x)] == []
    assert [x for x in range(6) if true_of("i not between 4 and 2", i=x)] == [0, 1, 2, 3, 4, 5]


def test_times_compare_as_instants() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert true_of('t == "2026-01-31T12:00:00"', t=noon)
    assert true_of('t == "2026-01-31T12:00:00"', t=datetime(2026, 1, 31, 12))
    assert true_of('t == "2026-01-31T14:00:00+02:00"', t=noon.astimezone(timezone(timedelta(hours=-5))))
    assert true_of('t == "2026-01-31T12:00:00"', t="2026-01-31T12:00:00Z")
    assert true_of('t > "2026-01-31"', t=noon)
    assert true_of('t < "2026-01-31T12:00:00.000001"', t=noon)


def test_bool_attributes_take_equality_only() -> None:
    assert true_of("b == true", b=True)
    assert not true_of("b == true", b=False)
    assert true_of("b != true", b=False)


def test_and_or_not() -> None:
    assert true_of("")
    assert not true_of("false")
    assert not true_of("not (i < 3 or i > 5)", i=6)
    assert true_of("not (i < 3 or i > 5)", i=4)
    # as in SQL, absence makes neither a predicate nor its negation true
    assert not true_of("i < 3 or not i < 3")
    assert true_of("i < 3 or s == 'a'", s="a")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"i": "1"}, "attribute i: value '1', expected a number"),
        ({"i": 1.5}, "attribute i: value 1.5, expected an integer"),
        ({"i": True}, "attribute i: value True, expected a number"),
        ({"i": 2**63}, "attribute i: value 9223372036854775808, expected an integer of 64 bits, or a float"),
        ({"i": 1, "f": "x"}, "attribute f: value 'x', expected a number"),
    ],
)
def test_an_event_with_a_value_of_the_wrong_kind_is_refused(event: dict[str, Any], message: str) -> None:
    with pytest.raises(EventError) as caught:
        parse("i >= 0 and f >= 0", T).matches(event)
    assert str(caught.value) == message


def test_affine_operands() -> None:
    f = parse("f < 1.01 * $x - 5", T)
    assert f.matches({"f": 5.0}, {"x": 10.0})
    assert not f.matches({"f": 5.2}, {"x": 10})
    exact = parse("i == $x + 1", T)
    assert exact.matches({"i": 2**53 + 1}, {"x": 2**53})
    assert not exact.matches({"i": 2**53 + 1}, {"x": 2.0**53})  # a float takes part: float64
    assert parse("i < $x + 1", T).matches({"i": 2**63 - 1}, {"x": 2**63 - 1})  # beyond 64 bits, not wrapped
    assert parse("i < -1 * $x", T).matches({"i": -(2**63)}, {"x": 2**63 - 1})
    assert parse("i > -2 * $x", T).matches({"i": -(2**63)}, {"x": 2**63 - 1})
    late = parse("t < $x + 0.5", T)
    assert late.matches({"t": "2026-01-01T00:00:00.4"}, {"x": "2026-01-01"})
    assert not late.matches({"t": "2026-01-01T00:00:00.5"}, {"x": "2026-01-01"})
    assert parse("t <= $x + 9", T).matches({"t": datetime.max}, {"x": datetime.max})


# --- variables ----------------------------------------------------------------------------------------------


def test_checked_values_have_one_form() -> None:
    f = parse("i < $i and f < $f and s == $s and b == $b and t < $t", T)
    assert f.variables == ("i", "f", "s", "b", "t")
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    given = [(np.int32(3), 3), (np.float32(0.5), 0.5), (-0.0, 0.0), (inf, inf), (10**3, 1000)]
    for value, expected in given:
        found = f.check_values({"i": value}, partial=True)["i"]
        assert found == expected
        assert type(found) is type(expected)
        assert str(found) == str(expected)
    for value in (
        noon,
        "2026-01-31T12:00:00",
        np.datetime64("2026-01-31T12:00:00"),
        noon.replace(tzinfo=None),
    ):
        found = f.check_values({"t": value}, partial=True)["t"]
        assert found == noon
        assert type(found) is datetime
        assert found.tzinfo is UTC
    assert f.check_values({"t": date(2026, 1, 31)}, partial=True) == {"t": datetime(2026, 1, 31, tzinfo=UTC)}
    assert f.check_values({"b": np.bool_(True)}, partial=True)["b"] is True
    assert type(f.check_values({"s": np.str_("x")}, partial=True)["s"]) is str
    values = {"i": 1.5, "f": 1, "s": "", "b": False, "t": noon}
    assert f.check_values(values) == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "variable $x has no value: expected a number"),
        ({"x": 1, "y": 2}, "variable $y is unknown: i < $x and s == $s has $x, $s"),
        ({"x": None}, "variable $x: value None, expected a number"),
        ({"x": nan}, "variable $x: value nan, expected a number that is not NaN"),
        ({"x": np.float64("nan")}, "variable $x: value nan, expected a number that is not NaN"),
        ({"x": "1"}, "variable $x: value '1', expected a number"),
        ({"x": True}, "variable $x: value True, expected a number"),
        ({"x": 2**63}, "variable $x: value 9223372036854775808, expected an integer of 64 bits, or a float"),
        ({"x": 1j}, "variable $x: value 1j, expected a number"),
        ({"x": 1, "s": 3}, "variable $s: value 3, expected a string"),
        ({"x": 1, "s": "\ud800"}, r"variable $s: value '\ud800', expected a string without lone surrogates"),
        ({"s": "a"}, "variable $x has no value: expected a number"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(VariableError) as caught:
        parse("i < $x and s == $s", T).check_values(values)
    assert str(caught.value) == message.replace("nan,", f"{values.get('x')!r},")


@pytest.mark.parametrize(
    "value", ["soon", 5, None, np.datetime64("NaT"), np.datetime64("2026-01-01T00:00:00.000000001"), True]
)
def test_invalid_times_are_refused(value: object) -> None:
    with pytest.raises(VariableError, match="expected a time"):
        parse("t < $x", T).check_values({"x": value})


def test_invalid_times_of_pandas_are_refused() -> None:
    moment = pytest.importorskip("pandas").Timestamp("2026-01-01T00:00:00.000000001")
    with pytest.raises(VariableError, match="expected a time"):
        parse("t < $x", T).check_values({"x": moment})


def test_partial_values() -> None:
    f = parse("i < $x and i > $y", T)
    assert f.check_values({"y": 1}, partial=True) == {"y": 1}
    with pytest.raises(VariableError, match="unknown"):
        f.check_values({"z": 1}, partial=True)
    half = f.substitute({"y": 1})
    assert str(half) == "i < $x and i > 1"
    assert half.variables == ("x",)
    assert half.substitute({"x": 3}) == parse("i < 3 and i > 1", T)
    assert f.substitute({}) is f


def test_one_variable_is_compared_with_int64_and_float64() -> None:
    f = parse("i < $x and f > $x - 1", T)
    assert str(f.substitute({"x": 10.5})) == "i < 10.5 and f > 9.5"
    assert str(f.substitute({"x": 10})) == "i < 10 and f > 9.0"


# --- making -------------------------------------------------------------------------------------------------


def test_expressions_are_brought_to_normal_form() -> None:
    p, q = (Predicate("i", Operator.LT, (Constant(3),)), Predicate("f", Operator.GE, (Variable("x", 2.0),)))
    assert Filter(T, And((p,))) == Filter(T, Or((p,))) == Filter(T, p)
    assert Filter(T, And((p, And((q, p))))).expression == And((p, q, p))
    assert Filter(T, And((p, Or(())))) == parse("false", T)
    assert Filter(T, Or((q, And(())))).variables == ()
    assert str(Filter(T, q)) == "f >= 2 * $x"
    assert Filter(T, Predicate("i", Operator.EQ, (Constant(np.int64(4)),))) == parse("i == 4", T)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (Predicate("x", Operator.EQ, (Constant(1),)), "T has no attribute 'x'; it has i, f, s, b, t"),
        (Predicate("i", Operator.EQ, ()), "i ==: 0 operands, expected 1"),
        (Predicate("i", Operator.BETWEEN, (Constant(1),)), "i between: 1 operands, expected 2"),
        (Predicate("i", Operator.EXISTS, (Constant(1),)), "i exists: 1 operands, expected 0"),
        (
            Predicate("f", Operator.EQ, (Constant(nan),)),
            "f is float64: expected a number that is not NaN, not nan",
        ),
        (Predicate("f", Operator.EQ, (3,)), "f: operand 3, expected a constant or a variable"),
        (
            Predicate("f", Operator.EQ, (Variable("a b"),)),
            "variable 'a b': expected a name of letters, digits and _",
        ),
        (
            Predicate("f", Operator.EQ, (Variable("a", nan),)),
            "variable $a: scale nan, expected a number that is not NaN",
        ),
        ("i < 3", "expression 'i < 3': expected a Predicate, Call, Constraint, And or Or"),
    ],
)  # fmt: skip
def test_predicates_that_do_not_fit_the_type_are_refused(expression: Any, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(T, expression)
    assert str(caught.value) == message


def test_nesting_over_the_limit_is_refused() -> None:
    expression: Any = Predicate("i", Operator.LT, (Constant(3),))
    for _ in range(900):
        expression = And((Or((expression, expression)), expression))
    with pytest.raises(FilterError, match="nested more than 200 deep"):
        Filter(T, expression)


# --- substitution and lifting -------------------------------------------------------------------------------


def test_the_structure_of_a_filter() -> None:
    f = parse("s == 'IBM' and f < 1.5 * $x and i in (1, $x)", T)
    structure, operands = f.lift()
    assert str(structure) == "s == $1 and f < $2 and i in ($3, $4)"
    assert operands == (Constant("IBM"), Variable("x", 1.5), Constant(1), Variable("x"))
    assert f.lift_values({"x": 4}) == {"1": "IBM", "2": 6.0, "3": 1, "4": 4}
    assert structure.lift() == (structure, tuple(Variable(n) for n in "1234"))
    assert f.lift()[0] is structure
    with pytest.raises(VariableError, match=r"variable \$x has no value"):
        f.lift_values({})
    assert parse("s == 'IBM' and f < 3", T).lift()[0] == parse("s == $z and f < $y - 1", T).lift()[0]
    assert parse("f < 3", T).lift()[0] != parse("f <= 3", T).lift()[0]


@examples(300)
@given(st.data())
def test_substituting_is_evaluating_with_values(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    f = data.draw(filters(event_type))
    values = data.draw(values_of(f.variables))
    event = data.draw(events(event_type))
    constant = f.substitute(values)
    structure, operands = f.lift()
    lifted = f.lift_values(f.check_values(values))
    assert constant.variables == ()
    assert structure.substitute(lifted) == constant
    assert structure.check_values(lifted) == lifted
    assert set(lifted) == set(structure.variables)
    assert len(operands) == len(lifted)
    matches = f.matches(event, values)
    assert constant.matches(event) is matches
    assert structure.matches(event, lifted) is matches


# --- identity -----------------------------------------------------------------------------------------------


def test_identity() -> None:
    a, b = parse("i < 3 and f > 2", T), parse("(3 > i) && f > 2.0", T)
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b}) == 1
    assert a != parse("f > 2 and i < 3", T)
    assert a != parse("i < 3 and f > 2", EventType("U", dict(T.attributes)))
    assert a != "i < 3 and f > 2.0"
    assert repr(a) == "parse('i < 3 and f > 2.0', T)"
    assert pickle.loads(pickle.dumps(a)) == a


@examples(100)
@given(st.data())
def test_filters_are_equal_exactly_when_their_expressions_are(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    a, b = data.draw(filters(event_type)), data.draw(filters(event_type))
    assert (a == b) is (a.expression == b.expression)
    assert Filter(event_type, a.expression) == a
    assert hash(Filter(event_type, a.expression)) == hash(a)

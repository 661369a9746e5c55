"""Calls of named operators, free variables and constraints in the filter language."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from named_operators import NEAR, registered

from covey.matcher import EventType, Filter, FilterError, FilterSyntaxError, Kind, VariableError, parse
from covey.matcher.expressions.expression import (
    And,
    Call,
    Column,
    Constant,
    Constraint,
    Free,
    Or,
    Predicate,
    Variable,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.expressions.values import Family
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes

T = EventType(
    "T", {"i": "int64", "f": "float64", "s": "string", "t": "timestamp", "b": "bool", "near": "float64"}
)
TALLY = Call("tally", (Column("s"), Free("n")))


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield


def call(name: str, *arguments: Any, expected: bool = True) -> Call:
    column, *others = arguments
    given = [each if isinstance(each, Variable | Constant) else Free(each) for each in others]
    return Call(name, (Column(column), *given), expected)


def limit(operator: str, operand: Any, **terms: float) -> Constraint:
    right = operand if isinstance(operand, Variable) else Constant(operand)
    return Constraint(tuple((scale, name) for name, scale in terms.items()), Operator(operator), right)


ONE, TWO, SPAN = Constant(1.0), Constant(2.0), call("span", "i", "y", "z", Constant(0.0))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("near(f, 1, $radius)", call("near", "f", ONE, Variable("radius"))),
        (
            "not near (f, -$x + 2, 2 * $x)",
            call("near", "f", Variable("x", -1, 2), Variable("x", 2), expected=False),
        ),
        ("near < 3", Predicate("near", Operator.LT, (Constant(3.0),))),
        ("near(near, inf, 1)", call("near", "near", Constant(float("inf")), ONE)),
        (
            "resembles(s, 'a', $b, \"c\")",
            call("resembles", "s", Constant("a"), Variable("b"), Constant("c")),
        ),
        ("250 < ?n and tally(s, ?n)", And((limit(">", 250.0, n=1), TALLY))),
        ("tally(s, ?n) and not ?n > $m + 1", And((TALLY, limit("<=", Variable("m", 1, 1), n=1)))),
        ("tally(s, ?n) and 5 - ?n > 2 * $m", And((TALLY, limit("<", Variable("m", -2, 5), n=1)))),
        ("span(i, ?y, ?z, 0) and ?y > 2 * ?z", And((SPAN, limit(">", 0.0, y=1, z=-2)))),
        ("span(i, ?y, ?z, 0) and 3 * ?z + 1 <= ?y - 1.5 - ?z", And((SPAN, limit("<=", -2.5, z=4, y=-1)))),
        (
            'letter(s, ?c) and ("x" == ?c or ?c != $c)',
            And((call("letter", "s", "c"), Or((limit("==", "x", c=1), limit("!=", Variable("c"), c=1))))),
        ),
        (
            "not (near(f, 1, 2) and b == true)",
            Or(
                (
                    call("near", "f", ONE, TWO, expected=False),
                    Predicate("b", Operator.NE, (Constant(True),)),
                )
            ),
        ),
    ],
)
def test_calls_and_constraints_are_read_and_written(text: str, expression: object) -> None:
    filter = parse(text, T)
    assert filter.expression == expression
    assert parse(str(filter), T).expression == expression
    assert Filter(T, filter.expression) == filter
    assert pickle.loads(pickle.dumps(filter)) == filter
    structure, operands = filter.lift()
    assert structure.variables == tuple(str(i) for i in range(1, len(operands) + 1))


CALLED = "expected a call by itself, as in resembles(text, sample, ...)"
ALONE = f"resembles is an operator and no attribute: {CALLED}"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("b == true and neer(f, 1, 2)", 14, "unknown operator 'neer': did you mean near?"),
        ("near(f, 1)", 0, "near has 2 arguments: expected 3, as in near(value, center, radius)"),
        ("resembles", 0, ALONE),
        ("5 < resembles(s, 'a')", 4, ALONE),
        ("near(f, 1, 2, 3)", 14, "expected ) after 3 arguments, as in near(value, center, radius)"),
        (
            "resembles(s)",
            0,
            "resembles has 1 argument: expected 2 or more, as in resembles(text, sample, ...)",
        ),
        (
            "near(s, 1, 2)",
            5,
            "value of near(value, center, radius): expected float64 or int64, not s, which is string",
        ),
        (
            "near(1, 1, 2)",
            5,
            "value of near(value, center, radius): expected an attribute, not a constant or a variable",
        ),
        (
            "near(f, i, 2)",
            8,
            "center of near(value, center, radius): expected a constant or a variable, not an attribute",
        ),
        (
            "near(f, ?n, 2)",
            8,
            "center of near(value, center, radius): expected a constant or a variable, not a free variable",
        ),
        (
            "near(f, 'x', 2)",
            8,
            "center of near(value, center, radius) is float64: expected a number or a variable, not 'x'",
        ),
        ("near(f, 1, and)", 11, "expected an attribute, a constant or a variable after ,"),
        ("near(f, 1, 2", 12, "expected ) or ,"),
        ("tally(s, 2 * ?n)", 9, "expected ?n as it is, as an argument of tally"),
        ("tally(s, ? n)", 10, "expected the name of a free variable after ?"),
        (
            "b == true or not tally(s, ?n)",
            17,
            "not before tally, which binds ?n: expected a negated constraint instead",
        ),
        (
            "not (tally(s, ?n) and ?n > 2)",
            5,
            "not before tally, which binds ?n: expected a negated constraint instead",
        ),
        ("?n > 2", 0, "no call binds ?n: expected one, joined by and"),
        (
            "f > 1 and (tally(s, ?n) or f < 1) and ?n > 2",
            38,
            "no call binds ?n in every alternative: expected one, joined by and",
        ),
        (
            "tally(s, ?n) and letter(s, ?n)",
            17,
            "?n is a number in an earlier call and a string in letter: expected one family",
        ),
        ("tally(s, ?n) and ?n > 'x'", 17, "?n is float64: expected a number or a variable, not 'x'"),
        ("letter(s, ?c) and 2 * ?c > 5", 18, "?c is string: expected ?c as it is, without a sum or a scale"),
        (
            "tally(s, ?n) and ?n - ?n > 5",
            17,
            "no free variable is left in a constraint: expected at least one",
        ),
        ("tally(s, ?n) and ?n > $x - $y", 27, "expected at most one variable in an operand"),
        ("tally(s, ?n) and ?n + $x > $y", 17, "$y and $x in a constraint: expected at most one variable"),
        ("tally(s, ?n) and ?n + 1 > 'x'", 17, "'x' is compared with a sum: expected a number"),
        ("tally(s, ?n) and ?n > f", 22, "expected a constant or a variable after >"),
        ("tally(s, ?n) and f > ?n", 21, "free variables are not compared with attributes"),
        ("tally(s, ?n) and ?n in (1, 2)", 20, "expected a comparison: == != < <= > >="),
        (
            "s == 'a' and resembles(s, $x) and f < $x",
            38,
            "variable $x is compared with sample of resembles(text, sample, ...) (string) and with f "
            "(float64): expected attributes of one kind",
        ),
    ],
)
def test_errors_point_at_the_column(text: str, column: int, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text, T)
    assert caught.value.message.split(" (attributes")[0] == message
    assert caught.value.column == column


def test_a_filter_has_so_many_free_variables() -> None:
    def text(count: int) -> str:
        return " and ".join([f"tally(s, ?n{i})" for i in range(count)])

    assert len(parse(text(64), T).calls) == 64
    with pytest.raises(FilterSyntaxError, match="filter has more than 64 free variables"):
        parse(text(65), T)


def test_constraints_under_and_see_what_an_or_binds_in_all_its_alternatives() -> None:
    parse("(tally(s, ?n) or span(i, ?n, ?m, 0)) and (?n > 2 or b == true)", T)
    parse("b == true or tally(s, ?n) and (f > 2 or ?n < 1 and f < 5)", T)


def test_an_unknown_operator_is_accepted_where_it_may_be() -> None:
    text = (
        "looks_like(s, 'a', 10, 2.5, $x, 2 * $y, $z + 1, ?n) and ?n > $least and ?n - ?m > 0 and tally(s, ?m)"
    )
    with pytest.raises(FilterSyntaxError, match="unknown operator 'looks_like'"):
        parse(text, T)
    filter = parse(text, T, unknown_operators=True)
    with pytest.raises(FilterSyntaxError, match="unknown operator 'looks_like'"):
        parse(text, T)
    assert Filter(T, filter.expression, unknown_operators=True) == filter
    assert pickle.loads(pickle.dumps(filter)) == filter
    families = [filter.family(name) for name in filter.variables]
    assert families == [Family.ANY, Family.NUMBER, Family.SHIFTABLE, Family.ANY]
    values = {"x": "text", "y": 2, "z": datetime(2026, 1, 1, tzinfo=UTC), "least": 5}
    checked = filter.check_values(values)
    assert checked == values
    structure, _ = filter.lift()
    lifted = filter.lift_values(checked)
    assert structure.substitute(lifted) == filter.substitute(values)
    assert structure.check_values(lifted) == lifted
    for name, value, expected in [
        ("x", None, "a value"),
        ("y", "text", "a number"),
        ("z", "text", "a number or a time"),
        ("z", True, "a number or a time"),
    ]:
        with pytest.raises(VariableError, match=f"variable \\${name}: value {value!r}, expected {expected}$"):
            filter.check_values({name: value}, partial=True)


def test_a_variable_of_an_unknown_operator_takes_the_family_of_its_other_uses() -> None:
    filter = parse("looks_like(s, $x) and f < $x", T, unknown_operators=True)
    assert filter.family("x") is Family.NUMBER


def test_what_an_operator_refuses_is_refused_with_the_filter_and_with_values() -> None:
    def check(arguments: object) -> None:
        if arguments == [None, "("]:
            raise ValueError('pattern "(": missing )')

    text, pattern = (Parameter(name, frozenset({Kind.STRING})) for name in ("text", "pattern"))
    with registered(NamedOperator("fits", (text, pattern), lambda texts, pattern: None, check=check)):
        with pytest.raises(FilterSyntaxError, match=r'fits: pattern "\(": missing \)'):
            parse("fits(s, '(')", T)
        filter = parse("fits(s, $p)", T)
        assert filter.check_values({"p": "a"}) == {"p": "a"}
        with pytest.raises(VariableError, match=r'fits: pattern "\(": missing \)'):
            filter.check_values({"p": "("})


def test_a_parameter_of_integers_takes_no_other_values_of_variables() -> None:
    number = Parameter("number", frozenset({Kind.INT64}), Takes.CONSTANT)
    text = Parameter("text", frozenset({Kind.STRING}))
    with registered(NamedOperator("nth", (number, text), lambda number, text: None)):
        filter = parse("nth(0.5 * $n, s)", T)
        assert filter.check_values({"n": 4.0}) == {"n": 4.0}
        for value in (3, 2.5, 1e300):
            with pytest.raises(VariableError, match=r"number of nth\(number, text\): expected an integer"):
                filter.check_values({"n": value})


def test_the_filter_of_a_text_follows_the_table_of_operators() -> None:
    whole = Parameter("size", frozenset({Kind.INT64}), Takes.CONSTANT)
    text = Parameter("text", frozenset({Kind.STRING}))
    sized = NamedOperator("sized", (text, whole), lambda texts, size: None)
    unknown = parse("sized(s, 2.0)", T, unknown_operators=True)
    with registered(sized):
        assert str(parse("sized(s, 2.0)", T, unknown_operators=True)) == "sized(s, 2)"
        with pytest.raises(FilterSyntaxError, match=r"expected an integer of 64 bits, not 2\.5"):
            parse("sized(s, 2.5)", T)
    assert str(unknown) == "sized(s, 2.0)"
    with pytest.raises(FilterSyntaxError, match="unknown operator 'sized'"):
        parse("sized(s, 2.0)", T)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (Call("near", (Column("f"), 1, ONE)), "argument 1: expected a Column, Constant, Variable or Free"),
        (TALLY.negated(), "not before tally"),
        (And((TALLY, limit("<", 1))), r"constraint of \[\]: expected free variables, each once"),
        (And((TALLY, Constraint(((1, "n"), (2, "n")), Operator.LT, ONE))), "each once"),
        (And((TALLY, limit("<", 1, n=0))), "scale 0, expected a number other than 0"),
        (And((TALLY, limit("in", 1, n=1))), "operator in in a constraint: expected a comparison"),
        (And((TALLY, limit("<", "x", n=1))), r"\?n is float64: expected a number or a variable, not 'x'"),
        (limit("<", 1, n=1), r"no call binds \?n: expected one, joined by and"),
        (call("tally", "s", "a b"), "free variable 'a b': expected a name of letters, digits and _"),
    ],
)
def test_expressions_that_do_not_fit_are_refused(expression: object, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        Filter(T, expression)


def test_a_negative_first_scale_is_turned() -> None:
    constraint = limit("<", Variable("x", 2, 1), n=-1)
    assert str(Filter(T, And((TALLY, constraint)))) == "tally(s, ?n) and ?n > -2 * $x - 1"


def test_over_another_schema_the_attributes_of_calls_count() -> None:
    filter = parse("near(f, 1, 2)", T)
    wider = EventType("T", {"s": "string", "f": "float64"})
    assert filter.over(wider) == filter
    with pytest.raises(FilterError, match="unknown attribute 'f'"):
        filter.over(EventType("T", {"s": "string"}))
    assert NEAR.signature == "near(value, center, radius)"


def test_deep_and_long_filters_with_calls_need_no_recursion_and_no_more_than_linear_time() -> None:
    parts = [f"(f > {i} and tally(s, ?n{i % 7}) and (?n{i % 7} > {i + 9} or " for i in range(100)]
    text = "".join(parts) + "b == true" + "))" * 100
    filter = parse(text, T)
    assert parse(str(filter), T) == filter
    assert filter.gate.calls == ()
    assert not filter.matches({"s": "abcd", "f": 98.5, "b": True})
    assert filter.matches({"s": "abcd", "f": 99.5, "b": True})
    structure, operands = filter.lift()
    assert structure.substitute(filter.lift_values({})) == filter
    assert len(operands) == 201
    wide = parse(" or ".join([f"near(f, {i}, 1) and near(i, {i}, 2)" for i in range(2_000)]), T)
    assert len(wide.calls) == 4_000
    assert wide.matches({"f": 1500.5, "i": 1502})
    assert not wide.matches({"f": 1500.5, "i": 1505})

"""The disjunctive normal form: its boxes are equivalent to the filter, and few."""

from collections.abc import Mapping
from math import nan
from typing import Any

import pytest
from draws import examples
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventType, parse
from covey.matcher.covering.boxes import CONJUNCTION_CAP, Absent, Bound, Box, Test, Text
from covey.matcher.expressions.expression import Constant, Operand, Scalar, Variable
from covey.matcher.expressions.operators import Operator

T = EventType("T", {"i": "int64", "f": "float64", "s": "string", "b": "bool", "t": "timestamp"})


def boxes(text: str) -> tuple[Box, ...]:
    found = parse(text, T).boxes()
    assert found is not None
    return found


def bound(value: Any, strict: bool = False) -> tuple[Bound]:
    return (Bound(value if isinstance(value, Variable) else Constant(value), strict),)


X, Y = Variable("x"), Variable("y")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ((),)),
        ("false", ()),
        ("i == 3", ((Test("i", bound(3), bound(3)),),)),
        ("i < $x", ((Test("i", (), bound(X, True)),),)),
        ("i >= 3 and i < $x", ((Test("i", bound(3), bound(X, True)),),)),
        ("i > 3 and i > 5 and i >= 5", ((Test("i", bound(5, True), ()),),)),
        ("i > 3 and i > $x", ((Test("i", bound(3, True) + bound(X, True), ()),),)),
        ("i between 3 and $x", ((Test("i", bound(3), bound(X)),),)),
        ("exists(i)", ((Test("i"),),)),
        ("exists(i) and i < 3", ((Test("i", (), bound(3, True)),),)),
        ("not exists(i)", ((Absent("i"),),)),
        ("i != 3", ((Test("i", (), bound(3, True)),), (Test("i", bound(3, True), ()),))),
        (
            "f != $x",
            (
                (Test("f", (), bound(X, True)),),
                (Test("f", bound(X, True), ()),),
                (Test("f", nan=True),),
            ),
        ),
        ("f != $x and f == $y", (
            (Test("f", bound(Y), bound(Y) + bound(X, True)),),
            (Test("f", bound(Y) + bound(X, True), bound(Y)),),
        )),
        ("i in (1, $x, 1)", ((Test("i", bound(1), bound(1)),), (Test("i", bound(X), bound(X)),))),
        ("i not in (5, 1)", (
            (Test("i", (), bound(1, True)),),
            (Test("i", bound(1, True), bound(5, True)),),
            (Test("i", bound(5, True), ()),),
        )),
        ("i not in (1, 2)", ((Test("i", (), bound(1, True)),), (Test("i", bound(2, True), ()),))),
        ("i not in ()", ((Test("i"),),)),
        ("b != true", ((Test("b", (), bound(True, True)),),)),
        ("s == 'a'", ((Test("s", bound("a"), bound("a")),),)),
        ("s != 'a'", ((Test("s", (), bound("a", True)),), (Test("s", bound("a", True), ()),))),
        ("s < 'a'", ((Test("s", (), bound("a", True)),),)),
        ("s prefix $x", ((Test("s", bound(X), (Bound(X, True, past=True),)),),)),
        ("s not prefix $x", (
            (Test("s", (), bound(X, True)),), (Test("s", (Bound(X, False, past=True),), ()),),
        )),
        ("s between 'a' and $x", ((Test("s", bound("a"), bound(X)),),)),
        ("s prefix $x and s >= $x", ((Test("s", bound(X), (Bound(X, True, past=True),)),),)),
        ("exists(s) and s contains 'a'", ((Text("s", Operator.CONTAINS, Constant("a"), True),),)),
        ("s == 'abc' and s contains 'b' and s < 'b'", ((Test("s", bound("abc"), bound("abc")),),)),
        ("s contains 'b' and s == 'abc'", ((Test("s", bound("abc"), bound("abc")),),)),
        # in the event type's order, not the text's
        ("s == 'a' and i == 1", ((Test("i", bound(1), bound(1)), Test("s", bound("a"), bound("a"))),)),
        ("i == 1 or i == 1", ((Test("i", bound(1), bound(1)),),)),
        # contradictions
        ("i < 3 and i > 5", ()),
        ("i > 5 and i < 6", ()),
        ("i == 10.5", ()),
        ("f < -inf", ()),
        ("i > 9223372036854775807", ()),
        ("b != true and b == true", ()),
        ("i between 5 and 3", ()),
        ("i in ()", ()),
        ("i == 1 and not exists(i)", ()),
        ("not exists(s) and s suffix 'x'", ()),
        ("s == 'a' and s == 'b'", ()),
        ("s == 'a' and s suffix 'b'", ()),
        ("s suffix $x and s not suffix $x", ()),
        ("s prefix 'a' and s not prefix 'a'", ()),
        ("s prefix 'b' and s < 'b'", ()),
        ("f != 1 and f == 1", ()),
        ("i < 3 and i > 5 or b == true", ((Test("b", bound(True), bound(True)),),)),
    ],
)  # fmt: skip
def test_boxes(text: str, expected: tuple[Box, ...]) -> None:
    assert boxes(text) == expected


def test_an_open_interval_may_be_empty_over_integers_only() -> None:
    assert len(boxes("f > 5 and f < 6")) == 1


def test_over_the_cap_there_are_no_boxes() -> None:
    def conjunction_of_pairs(n: int) -> str:
        return " and ".join(f"(i == {k} or f == {k})" for k in range(n))

    assert parse(" or ".join(f"i == {k}" for k in range(CONJUNCTION_CAP)), T).boxes() is not None
    assert parse(" or ".join(f"i == {k}" for k in range(CONJUNCTION_CAP + 1)), T).boxes() is None
    assert parse(f"i in ({', '.join(f'$x{k}' for k in range(CONJUNCTION_CAP + 1))})", T).boxes() is None
    assert parse(conjunction_of_pairs(6), T).boxes() is not None
    assert parse(conjunction_of_pairs(7), T).boxes() is None
    assert parse("i not in ($a, $b, $c, $d, $e, $f)", T).boxes() is not None
    assert parse("i not in ($a, $b, $c, $d, $e, $f, $g)", T).boxes() is None
    assert parse("f not in ($a, $b, $c, $d, $e, $f)", T).boxes() is None  # 64, and NaN
    assert len(boxes(f"i not in ({', '.join(str(2 * k) for k in range(63))})")) == 64


def test_contradictions_do_not_count_towards_the_cap() -> None:
    text = "i == 1 and " + " and ".join(f"i != {k}" for k in range(2, 100))
    assert boxes(text) == ((Test("i", bound(1), bound(1)),),)


def holds(box: Box, event: Mapping[str, Any], values: Mapping[str, Scalar]) -> bool:
    """Whether all parts of a box hold for an event; written from the docstrings of `boxes.py` alone."""

    def number(operand: Operand) -> Any:
        if isinstance(operand, Constant):
            return operand.value
        x: Any = values[operand.name]
        if operand.scale == 1 and operand.offset == 0:
            return x
        return operand.scale * x + operand.offset

    for part in box:
        value: Any = event.get(part.attribute)
        if isinstance(part, Absent):
            if value is not None:
                return False
        elif value is None:
            return False
        elif isinstance(part, Text):
            operand = number(part.operand)
            outcome = {
                Operator.SUFFIX: lambda v, o: v[len(v) - len(o) :] == o if len(o) <= len(v) else False,
                Operator.CONTAINS: lambda v, o: v.find(o) >= 0,
            }[part.operator](value, operand)
            if outcome is not part.expected:
                return False
        elif part.nan:
            if value == value:
                return False
        elif part.lower or part.upper:
            for end in part.lower:
                if end.past:
                    if value < number(end.operand) or value.startswith(number(end.operand)):
                        return False
                elif not (value > number(end.operand) or (not end.strict and value == number(end.operand))):
                    return False
            for end in part.upper:
                if end.past:
                    if value > number(end.operand) and not value.startswith(number(end.operand)):
                        return False
                elif not (value < number(end.operand) or (not end.strict and value == number(end.operand))):
                    return False
    return True


@examples(400)
@given(st.data())
def test_boxes_are_equivalent_to_the_filter(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    # The holds() above cannot add seconds to times.
    f = data.draw(
        filters(event_type).filter(lambda f: "timestamp" not in event_type.kinds or not f.variables)
    )
    found = f.boxes()
    note("over the cap" if found is None else f"{min(len(found), 4)} boxes")
    values = data.draw(values_of(f.variables))
    for drawn in data.draw(st.lists(events(event_type), min_size=1, max_size=5)):
        if found is not None:
            assert any(holds(box, drawn, values) for box in found) is f.matches(drawn, values)


@examples(300)
@given(st.data())
def test_a_box_has_one_test_per_attribute_and_no_contradiction_between_constants(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    f = data.draw(filters(event_type))
    for box in f.boxes() or ():
        tested = [part.attribute for part in box if not isinstance(part, Text)]
        assert len(tested) == len(set(tested))
        assert [event_type.index(part.attribute) for part in box] == sorted(
            event_type.index(part.attribute) for part in box
        )
        assert len(set(box)) == len(box)
        for part in box:
            if isinstance(part, Test):
                assert part.nan is False or not (part.lower or part.upper)
                for side in (part.lower, part.upper):
                    assert sum(isinstance(end.operand, Constant) for end in side) <= 1


def test_exactly_nan() -> None:
    f = parse("f != 1 and not f < 2 and not f >= 2", T)
    assert f.boxes() == ()
    assert not f.matches({"f": nan})
    only = parse("f not in (1) and f != $x", T)
    assert (Test("f", nan=True),) in (only.boxes() or ())

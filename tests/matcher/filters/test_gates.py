"""The gate of a filter with calls, and the residue."""

from covey.matcher import EventType, Filter, parse
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
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.matcher.operators.table import register, unregister

CAMERA = EventType("Camera", {"camera": "string", "price": "float64"})
CHEAP = Predicate("price", Operator.LT, (Variable("limit"),))
DEAR = Predicate("price", Operator.GT, (Constant(5.0),))
COUNT = Call("count_of_this_test", (Column("camera"), Free("n")))
FEW = Constraint(((1, "n"),), Operator.LT, Variable("most"))


def test_a_filter_without_calls_is_its_own_gate() -> None:
    filter = parse("price < 5 or price > $limit", CAMERA)
    assert filter.gate is filter
    assert filter.calls == ()
    assert filter.residue is None


def test_the_gate_is_what_is_left_without_calls_and_constraints() -> None:
    filter = Filter.of_checked(CAMERA, And((CHEAP, COUNT, FEW, Or((DEAR, And((CHEAP, COUNT, FEW)))))))
    assert filter.gate == Filter(CAMERA, And((CHEAP, Or((DEAR, CHEAP)))))
    assert filter.gate is filter.gate
    assert filter.gate.variables == ("limit",)
    assert filter.calls == (COUNT,)
    assert filter.variables == ("limit", "most")


def test_a_call_alone_has_a_gate_that_is_always_open() -> None:
    assert str(Filter.of_checked(CAMERA, Or((DEAR, COUNT))).gate) == "true"


def test_calls_differ_in_arguments_and_not_in_what_is_expected() -> None:
    call = Call("looks_of_this_test", (Column("camera"), Constant("a")))
    other = Call("looks_of_this_test", (Column("camera"), Constant("b")))
    filter = Filter.of_checked(CAMERA, Or((call.negated(), And((call, other)))))
    assert filter.calls == (call, other)


def test_the_residue_leaves_out_what_the_gate_has_decided() -> None:
    within_or = Or((DEAR, And((CHEAP, COUNT, FEW))))
    assert Filter.of_checked(CAMERA, And((CHEAP, COUNT, FEW))).residue == And((COUNT, FEW))
    assert Filter.of_checked(CAMERA, And((CHEAP, COUNT))).residue == COUNT
    assert Filter.of_checked(CAMERA, And((DEAR, within_or))).residue == within_or
    assert Filter.of_checked(CAMERA, within_or).residue == within_or


def test_a_filter_without_the_calls_of_operators_with_state() -> None:
    """Constraints on their bindings go too; other calls' bindings stay."""
    register(NamedOperator("rate_of_this_test", (Parameter("price", NUMBERS),), print, state=dict))
    try:
        rate = Call("rate_of_this_test", (Column("price"),))
        free = Call("rate_of_this_test", (Column("price"), Free("m")))
        both = Constraint(((1, "n"), (1, "m")), Operator.LT, Variable("most"))
        filter = Filter.of_checked(CAMERA, And((CHEAP, COUNT, FEW, Or((rate, DEAR)), free, both)))
        assert filter.stateless == Filter.of_checked(CAMERA, And((CHEAP, COUNT, FEW)))
        assert filter.stateless is filter.stateless
        without = Filter.of_checked(CAMERA, And((CHEAP, COUNT)))
        assert without.stateless is without
        assert filter.gate.stateless is filter.gate
    finally:
        unregister("rate_of_this_test")

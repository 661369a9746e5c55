"""Laws of random filters with calls: text, structures, values, gates, and matching by enumeration."""

import operator
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from named_operators import letters, registered, spans, tallies
from random_filters import event_types, events, filters_with_calls, values_of

from covey.matcher import EventType, Filter, parse
from covey.matcher.expressions.expression import (
    And,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Operand,
    Or,
    Predicate,
)
from covey.matcher.expressions.rewriting import residue_of

_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

EVENTS = EventType("T", {"s": "string", "r": "string", "i": "int64", "f": "float64"})
_WORDS = ["abcd", "ab", "cba", "b", ""]


@pytest.fixture(autouse=True, scope="module")
def operators() -> Iterator[None]:
    with registered():
        yield


@examples(300)
@given(st.data())
def test_the_text_of_a_filter_is_that_filter(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    filter = data.draw(filters_with_calls(event_type))
    again = parse(str(filter), event_type)
    assert again == filter
    assert again.expression == filter.expression
    assert parse(str(filter), event_type, unknown_operators=True).expression == filter.expression
    assert Filter(event_type, filter.expression).expression == filter.expression
    assert again.variables == filter.variables
    assert again.calls == filter.calls


@examples(700)
@given(st.data())
def test_matching_agrees_with_enumeration_with_substitution_and_with_structures(data: st.DataObject) -> None:
    usual = data.draw(st.sampled_from([True, True, True, False]))
    event_type = EVENTS if usual else data.draw(event_types())
    filter = data.draw(filters_with_calls(event_type))
    values = data.draw(values_of(filter.variables))
    event = data.draw(events(event_type))
    if usual:  # so that most calls have solutions
        event |= {name: data.draw(st.sampled_from(_WORDS)) for name in ("s", "r")}
        event |= {"i": data.draw(st.sampled_from([0, 1, 2, 3])), "f": data.draw(st.sampled_from([1.5, 2.0]))}
    checked = filter.check_values(values)
    bound = filter.substitute(values)
    structure, operands = filter.lift()
    lifted = filter.lift_values(checked)
    assert structure.substitute(lifted).expression == bound.expression
    assert structure.lift()[0] is structure
    assert len(operands) == len(structure.variables)
    half = {name: values[name] for name in filter.variables[::2]}
    rest = {name: values[name] for name in filter.variables[1::2]}
    assert filter.substitute(half).substitute(rest).expression == bound.expression

    matches = filter.matches(event, values)
    assert bound.matches(event) is matches
    assert structure.matches(event, lifted) is matches
    assert any(_holds(leaves, event, bound) for leaves in _alternatives(bound.expression)) is matches

    gate = bound.gate
    assert not gate.calls
    assert set(gate.variables) <= set(bound.variables)
    assert gate.matches(event) or not matches
    if gate.matches(event) and bound.residue is not None:
        residue = Filter(event_type, bound.residue)
        assert residue.matches(event) is matches
        assert residue_of(residue.expression) == residue.expression


def _alternatives(expression: Expression) -> list[list[Any]]:
    if isinstance(expression, Or):
        return [leaves for part in expression.parts for leaves in _alternatives(part)]
    if isinstance(expression, And):
        choices = product(*[_alternatives(part) for part in expression.parts])
        return [[leaf for leaves in choice for leaf in leaves] for choice in choices]
    return [[expression]]


def _holds(leaves: list[Any], event: Mapping[str, Any], filter: Filter) -> bool:
    """Whether one solution per call, in some combination, satisfies all leaves."""
    for leaf in leaves:
        if isinstance(leaf, Predicate) and not Filter(filter.event_type, leaf).matches(event):
            return False
    choices = [_solutions(leaf, event) for leaf in leaves if isinstance(leaf, Call)]
    constraints = [leaf for leaf in leaves if isinstance(leaf, Constraint)]
    return any(_fits(choice, constraints) for choice in product(*choices))


def _solutions(call: Call, event: Mapping[str, Any]) -> list[list[tuple[str, Any]]]:
    """Each solution as pairs of a free variable and its value; one without pairs for true."""
    first, *others = call.arguments
    assert isinstance(first, Column)
    value = event.get(first.attribute)
    if value is None:
        return []
    names = [argument.name for argument in others if isinstance(argument, Free)]
    constants: list[Any] = [argument.value for argument in others if isinstance(argument, Constant)]
    if call.operator == "tally":
        return [[(names[0], solution)] for solution in tallies(value)]
    if call.operator == "letter":
        return [[(names[0], solution)] for solution in letters(value)]
    if call.operator == "span":
        pairs = [pair for pair in spans(float(value)) if pair[0] >= constants[0]]
        return [[(names[0], low), (names[1], high)] for low, high in pairs]
    if call.operator == "near":
        true = abs(value - constants[0]) <= constants[1]
    else:
        true = value[:1] in [text[:1] for text in constants]
    return [[]] if true is call.expected else []


def _fits(choice: tuple[list[tuple[str, Any]], ...], constraints: list[Constraint]) -> bool:
    bound: dict[str, Any] = {}
    for name, value in [pair for solution in choice for pair in solution]:
        if bound.setdefault(name, value) != value:
            return False
    for constraint in constraints:
        total = [scale * bound[name] for scale, name in constraint.terms]
        left = total[0] if len(total) == 1 else sum(total)
        if not _COMPARISONS[constraint.operator](left, _value(constraint.operand)):
            return False
    return True


def _value(operand: Operand) -> Any:
    assert isinstance(operand, Constant)
    return operand.value

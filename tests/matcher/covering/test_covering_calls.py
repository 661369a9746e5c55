"""Covering of filters with calls, against the truth for every event of a small domain."""

from collections.abc import Iterator
from typing import Any

import pytest
import random_calls
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_calls import EVENTS, TYPE, conjunctions, filters, is_true, narrowed, values

from covey.matcher import EventType, Filter, parse
from covey.matcher.covering.covering import covers_region, holds_region, intersects_region
from covey.matcher.covering.region_index import RegionIndex
from covey.matcher.expressions.expression import (
    And,
    Argument,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Or,
    Predicate,
    Variable,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.operators import table
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.matcher.operators.table import register, unregister


@pytest.fixture(autouse=True, scope="module")
def _operators() -> Iterator[None]:
    with random_calls.registered():
        yield


# --- any filters --------------------------------------------------------------------------------------------


@examples(600)
@given(filters(), values, filters(), values)
def test_what_is_covered_matches_no_event_more(
    wider: Filter, its_values: dict[str, Any], narrower: Filter, other_values: dict[str, Any]
) -> None:
    a, b = wider.region(its_values), narrower.region(other_values)
    outer = [is_true(wider, its_values, event) for event in EVENTS]
    inner = [is_true(narrower, other_values, event) for event in EVENTS]
    for wide, narrow, covers in ((outer, inner, covers_region(a, b)), (inner, outer, covers_region(b, a))):
        if covers:
            assert all(one for one, other in zip(wide, narrow, strict=True) if other)
    if any(one and other for one, other in zip(outer, inner, strict=True)):
        assert intersects_region(a, b)
    assert intersects_region(a, b) is intersects_region(b, a)
    if any(outer):
        assert not a.is_empty


@examples(400)
@given(st.data(), values)
def test_narrower_conjunctions_are_covered(data: st.DataObject, its_values: dict[str, Any]) -> None:
    """More parts, tighter constants and other names of free variables."""
    one = data.draw(conjunctions())
    other = data.draw(narrowed(one))
    wider, narrower = Filter.of_checked(TYPE, one), Filter.of_checked(TYPE, other)
    assert covers_region(wider.region(its_values), narrower.region(its_values))
    index = RegionIndex(compiled=False)
    index.put(1, wider.region(its_values))
    index.put(2, narrower.region(its_values))
    assert 1 in set(index.may_cover(narrower.region(its_values)))
    assert 2 in set(index.may_be_covered(wider.region(its_values)))
    for event in EVENTS:
        assert is_true(wider, its_values, event) or not is_true(narrower, its_values, event)


@given(filters(), st.lists(filters(), max_size=6), values)
def test_the_index_misses_no_covering(one: Filter, others: list[Filter], its_values: dict[str, Any]) -> None:
    index = RegionIndex()
    regions = [filter.region(its_values) for filter in (one, *others)]
    for identity, region in enumerate(regions):
        index.put(identity, region)
    for region in regions:
        above, below = map(set, index.around(region))
        assert above >= {i for i, other in enumerate(regions) if covers_region(other, region)}
        assert below >= {i for i, other in enumerate(regions) if covers_region(region, other)}


@given(filters(), values)
def test_a_region_covers_itself_and_its_gate_covers_it(filter: Filter, its_values: dict[str, Any]) -> None:
    region = filter.region(its_values)
    assert covers_region(region, region)
    gate = filter.gate.region(its_values)
    if region.conjunctions is not None:
        assert covers_region(gate, region)


@given(filters(), st.lists(values, min_size=1, max_size=3))
def test_the_bounded_gate_is_true_wherever_the_filter_is(filter: Filter, each: list[dict[str, Any]]) -> None:
    """The first values decide how many intervals there are."""
    gates = set()
    for its_values in each:
        gate, bounds = filter.gate_at({name: its_values[name] for name in filter.variables})
        gates.add(gate)
        for event in EVENTS:
            assert gate.matches(event, bounds) or not is_true(filter, its_values, event)
    assert len(gates) == 1
    assert not gate.calls


@given(filters(), values)
def test_a_structure_has_the_region_of_its_filter(filter: Filter, its_values: dict[str, Any]) -> None:
    its_values = {name: its_values[name] for name in filter.variables}
    structure, _ = filter.lift()
    region, lifted = filter.region(its_values), structure.region(filter.lift_values(its_values))
    assert covers_region(region, lifted)
    assert covers_region(lifted, region)


@given(filters(), values)
def test_variables_without_values_stay_in_the_atoms(filter: Filter, its_values: dict[str, Any]) -> None:
    """A filter that covers under any values covers under each."""
    assert filter.covers(filter)
    other = Filter.of_checked(TYPE, And((filter.expression, Predicate("x", Operator.LT, (Variable("v"),)))))
    if filter.covers(other):
        assert covers_region(filter.region(its_values), other.region(its_values)) or all(
            is_true(filter, its_values, event) for event in EVENTS if is_true(other, its_values, event)
        )


# --- by example ---------------------------------------------------------------------------------------------

CAMERA = EventType("Camera", {"camera": "string", "lat": "float64", "lon": "float64", "price": "int64"})
CHEAP = Predicate("price", Operator.LT, (Constant(5),))


def circle(lat: Any, lon: Any, metres: Any, *, expected: bool = True) -> Call:
    given = [each if isinstance(each, Variable) else Constant(float(each)) for each in (lat, lon, metres)]
    return Call("within", (Column("lat"), Column("lon"), *given), expected)


def count(name: str = "n", *more: Argument) -> Call:
    return Call("c_count", (Column("camera"), *more, Free(name)))


def limit(operator: Operator, value: float, *terms: tuple[float, str]) -> Constraint:
    return Constraint(terms or ((1, "n"),), operator, Constant(value))


def filter_of(*parts: Expression) -> Filter:
    return Filter.of_checked(CAMERA, And(parts))


def covers(wider: Filter | Expression, narrower: Filter | Expression) -> bool:
    one, other = [f if isinstance(f, Filter) else filter_of(f) for f in (wider, narrower)]
    return one.covers(other)


GT, GE, LT, LE, EQ, NE = Operator.GT, Operator.GE, Operator.LT, Operator.LE, Operator.EQ, Operator.NE


def test_a_circle_covers_smaller_ones_and_their_absence_the_other_way() -> None:
    assert covers(circle(52, 13, 800), circle(52, 13, 500))
    assert not covers(circle(52, 13, 500), circle(52, 13, 800))
    assert covers(circle(52, 13, 500, expected=False), circle(52, 13, 800, expected=False))
    assert not covers(circle(52, 13, 800, expected=False), circle(52, 13, 500, expected=False))
    assert not covers(circle(52, 13, 800), circle(52, 13, 500, expected=False))
    assert covers(circle(52, 13, 800), filter_of(circle(52, 13, 500), CHEAP))


def test_a_circle_that_moves_stays_covered_by_one_that_moves_with_it() -> None:
    here = Variable("lat"), Variable("lon")
    wider, narrower = filter_of(circle(*here, 800)), filter_of(circle(*here, 500))
    assert wider.covers(narrower)
    for lat in (52.0, 53.0):
        values = {"lat": lat, "lon": 13.0}
        assert covers_region(wider.region(values), narrower.region(values))
    moved = wider.region({"lat": 53.0, "lon": 13.0})
    assert not covers_region(moved, narrower.region({"lat": 52.0, "lon": 13.0}))
    radius = filter_of(circle(*here, Variable("r")))
    assert not radius.covers(narrower)
    assert covers_region(radius.region(values | {"r": 500.0}), narrower.region(values))


def test_circles_that_are_far_from_each_other_or_within_are_disjoint_from_what_excludes_them() -> None:
    assert not filter_of(circle(52, 13, 500)).intersects(filter_of(circle(10, 13, 500)))
    assert not filter_of(circle(52, 13, 500)).intersects(filter_of(circle(52, 13, 500, expected=False)))
    assert not filter_of(circle(52, 13, 500)).intersects(filter_of(circle(52, 13, 800, expected=False)))
    assert filter_of(circle(52, 13, 800)).intersects(filter_of(circle(52, 13, 500, expected=False)))
    assert not filter_of(circle(52, 13, 500)).intersects(
        filter_of(Predicate("lat", Operator.NOT_EXISTS), CHEAP)
    )
    assert filter_of(circle(52, 13, 5), circle(52, 13, 9, expected=False)).region().is_empty


def test_the_bounded_gate_of_a_circle_is_its_box() -> None:
    """At longitudes that are equal modulo 360°; near a pole a circle has all longitudes."""
    filter = filter_of(CHEAP, circle(Variable("lat"), 13, 500), circle(10, 10, 5, expected=False))
    gate, bounds = filter.gate_at({"lat": 52.0})
    event = {"lat": 52.001, "lon": 13.001, "price": 1}
    assert gate.matches(event, bounds)
    assert gate.matches(event | {"lon": 373.001}, bounds)
    assert not gate.matches(event | {"lon": 13.1}, bounds)
    assert not gate.matches(event | {"lat": 52.1}, bounds)
    assert not gate.matches(event | {"price": 7}, bounds)
    polar, bounds = filter.gate_at({"lat": 90.0})
    assert polar is gate
    assert gate.matches(event | {"lat": 89.999, "lon": -170.0}, bounds)
    assert filter_of(CHEAP).gate_at({}) == (filter_of(CHEAP), {})


def test_calls_require_their_attributes() -> None:
    present = Predicate("lat", Operator.EXISTS)
    assert covers(present, circle(52, 13, 5))
    assert covers(present, circle(52, 13, 5, expected=False))
    assert not covers(circle(52, 13, 5), present)
    assert covers(Predicate("lat", GT, (Constant(51.0),)), circle(52, 13, 500))
    assert not covers(Predicate("lat", GT, (Constant(51.0),)), circle(52, 13, 500, expected=False))


def test_constraints_are_compared_with_the_calls_that_bind_them() -> None:
    many, more = filter_of(count(), limit(GT, 100)), filter_of(count(), limit(GT, 250))
    assert covers(many, more)
    assert not covers(more, many)
    assert covers(count(), many)
    assert not covers(many, count())
    assert covers(many, filter_of(count("m"), limit(GT, 100, (1, "m")), CHEAP))
    assert covers(many, filter_of(count(), limit(EQ, 101)))
    assert not covers(many, filter_of(count(), limit(GE, 100)))
    assert covers(filter_of(count(), limit(NE, 5)), more)


def test_constraints_of_several_calls() -> None:
    both = filter_of(count("a"), count("b", Constant(1.0)), limit(GT, 0, (1, "a"), (-2, "b")))
    same = filter_of(count("b", Constant(1.0)), count("a"), limit(LT, -1, (2, "b"), (-1, "a")))
    assert covers(both, same)
    assert not covers(same, both)
    assert covers(filter_of(count("a"), count("b", Constant(1.0))), both)
    assert not covers(both, filter_of(count("a"), count("b"), limit(GT, 0, (1, "a"), (-2, "b"))))


def test_one_binding_has_to_satisfy_all() -> None:
    """Two solutions, one per constraint, are no solution for both."""
    one = filter_of(count(), limit(GT, 100), limit(LT, 200))
    two = filter_of(count(), limit(GT, 100), count("m"), limit(LT, 200, (1, "m")))
    assert covers(two, one)
    assert not covers(one, two)
    assert two.intersects(one)


def test_free_variables_join_the_parts_of_a_filter_over_the_cap() -> None:
    pairs = [Or((Predicate("price", EQ, (Constant(i),)), circle(i, 1, 5))) for i in range(8)]
    one = filter_of(count(), limit(GT, 100), limit(LT, 200), *pairs)
    two = filter_of(count(), limit(GT, 100), count("m"), limit(LT, 200, (1, "m")), *pairs)
    assert one.region().conjunctions is None
    assert not covers(one, two)
    assert covers_region(one.region(), filter_of(*one.expression.parts).region())
    assert covers(one.gate, one)
    assert not covers(one, one.gate)


def test_calls_stay_with_their_conjunction_over_the_cap() -> None:
    pairs = [Or((Predicate("price", EQ, (Constant(i),)), circle(i, 1, 5))) for i in range(8)]
    wide = filter_of(circle(9, 9, 800), *pairs)
    assert wide.region().conjunctions is None
    assert covers(circle(9, 9, 800), wide)
    assert covers(circle(9, 9, 900), wide)
    assert not covers(circle(9, 9, 700), wide)
    assert covers(pairs[3], wide)


def test_unknown_operators_are_compared_for_equality() -> None:
    one = Call("c_unheard_of", (Column("lat"), Constant(500.0)))
    other = Call("c_unheard_of", (Column("lat"), Constant(800.0)))
    assert covers(one, filter_of(one, CHEAP))
    assert not covers(one, other)
    assert not covers(other, one)
    assert not filter_of(one).intersects(filter_of(one.negated()))
    assert filter_of(one).intersects(filter_of(other.negated()))


def test_calls_with_state_are_implied_by_nothing() -> None:
    """State belongs to a filter: equal calls of other filters answer differently."""
    register(NamedOperator("c_rate", (Parameter("price", NUMBERS),), print, state=dict))
    try:
        call = Call("c_rate", (Column("price"),))
        assert not covers(call, filter_of(call, CHEAP))
        assert not covers_region(filter_of(call).region(), filter_of(call, CHEAP).region())
        assert covers(CHEAP, filter_of(call, CHEAP))
        assert filter_of(call).intersects(filter_of(call.negated()))
        joined = filter_of(call, count(), CHEAP)
        assert covers(count(), joined)
    finally:
        unregister("c_rate")


def _raises(*_: object) -> bool:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("covering", "bounds"),
    [(_raises, _raises), (_raises, lambda given: [None]), (None, lambda given: [[("a", "b")], None])],
)
def test_a_rule_that_fails_says_nothing_and_is_noted_once(covering: Any, bounds: Any) -> None:
    number = Parameter("number", frozenset({CAMERA.attributes["lat"]}))
    name = f"c_faulty_{id(covering)}_{id(bounds)}"
    register(NamedOperator(name, (number, number), print, covers=covering, bounds=bounds))
    try:
        one, other = [Call(name, (Column("lat"), Constant(value))) for value in (1.0, 2.0)]
        for _ in range(3):
            assert not covers(one, other)
            assert covers(one, filter_of(one, CHEAP))
            assert filter_of(one).intersects(filter_of(other))
    finally:
        unregister(name)
    noted = [fault for fault in table.faults() if fault[0] == name]
    assert [rule for _, rule, _ in noted] == (["bounds", "covers"] if covering else ["bounds"])


def test_a_search_for_a_homomorphism_ends() -> None:
    chain = [Call("c_edge", (Column("camera"), Free(f"a{i}"), Free(f"a{i + 1}"))) for i in range(40)]
    ring = [Call("c_edge", (Column("camera"), Free(f"b{i}"), Free(f"b{(i + 1) % 41}"))) for i in range(41)]
    assert covers(filter_of(*chain), filter_of(*chain))
    assert not covers(filter_of(*ring), filter_of(*chain))
    knot = Call("c_edge", (Column("camera"), Free("x"), Free("x")))
    assert covers(filter_of(*ring), knot)
    assert not covers(knot, filter_of(*ring))


def test_many_roots_with_the_same_cuts_and_other_calls_are_told_apart() -> None:
    index = RegionIndex()
    calls = [Call("c_like", (Column("camera"), Constant(f"pattern {i}"))) for i in range(2_000)]
    regions = [filter_of(CHEAP, call).region() for call in calls]
    for identity, region in enumerate(regions):
        index.put(identity, region)
    assert list(index.may_cover(filter_of(CHEAP, calls[7], calls[9], count()).region()))
    assert {7, 9} <= set(index.may_cover(filter_of(CHEAP, calls[7], calls[9], count()).region()))
    assert len(list(index.may_cover(regions[7]))) < 4
    assert len(list(index.may_be_covered(regions[7]))) < 4
    assert len(list(index.may_be_covered(filter_of(CHEAP).region()))) == 2_000


def test_true_and_1_are_different_values_of_an_unknown_operator() -> None:
    one, true = (
        parse(f"mystery(i, {value})", EventType("T", {"i": "int64"}), unknown_operators=True)
        for value in ("1", "true")
    )
    assert not one.covers(true)
    assert not true.covers(one)
    assert one.region() != true.region()


def test_an_index_takes_equal_values_of_an_unknown_operator_for_equal() -> None:
    """1 and 1.0 had different keys, so calls with one were not found for the other."""
    integer, real = (
        parse(f"mystery(i, {value})", EventType("T", {"i": "int64"}), unknown_operators=True).region()
        for value in ("1", "1.0")
    )
    index = RegionIndex(compiled=False)
    index.put(0, real)
    assert holds_region(real, integer)
    assert [*index.may_cover(integer)] == [*index.may_be_covered(integer)] == [0]


def test_rules_of_times_say_nothing_of_variables_without_values() -> None:
    time = EventType("T", {"t": "timestamp"})
    for wider, narrower in (
        ("time_of_day(t, $s, '10:00')", "time_of_day(t, $s, '11:00')"),
        ("weekday(t, 'Mon', $zone)", "weekday(t, 'Tue', $zone)"),
        ("weekday(t, $days, 'UTC')", "weekday(t, $days)"),
    ):
        assert not parse(wider, time).covers(parse(narrower, time))
    assert not [name for name, *_ in table.faults() if name in ("time_of_day", "weekday")]

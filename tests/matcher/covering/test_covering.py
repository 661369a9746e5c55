"""covers and intersects, against brute force over domains that have a value in every gap."""

import itertools
from collections.abc import Iterable
from datetime import timedelta
from math import ceil, floor, inf, isfinite, nan, nextafter
from typing import Any

import pytest
from draws import examples
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st
from random_filters import POOLS, TIMES, event_types, events, expressions, filters, predicates, values_of

from covey.matcher import EventType, Filter, parse
from covey.matcher.covering.covering import covers_region, holds_region, intersects_region
from covey.matcher.covering.cuts import (
    LINES,
    common,
    difference,
    intersection,
    overlap,
    point_of,
    union,
    within,
)
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import And, Constant, Expression, Or, Predicate, Variable
from covey.matcher.expressions.operators import Operator, prefix_span
from covey.matcher.expressions.values import FAMILY

T = EventType("T", {"i": "int64", "f": "float64", "s": "string", "b": "bool", "t": "timestamp"})

INTERVALS = [op for op in Operator if not op.endswith(("suffix", "contains"))]


def covers(wider: str, narrower: str) -> bool:
    return parse(wider, T).covers(parse(narrower, T))


def intersects(a: str, b: str) -> bool:
    there = parse(a, T).intersects(parse(b, T))
    assert parse(b, T).intersects(parse(a, T)) is there
    return there


# --- by example ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [
        ("s suffix 'b'", "s suffix 'ab'"),
        ("s contains 'b'", "s suffix 'abc'"),
        ("s contains 'b'", "s contains 'abc' and i < 3"),
        ("s not contains 'abc'", "s not contains 'b'"),
        ("s not suffix 'ab'", "s not contains 'b'"),
        ("s contains 'b'", "s in ('abc', 'b')"),
        ("s suffix ''", "exists(s)"),
        ("exists(s)", "s contains 'b'"),
        # empty filters are covered by every one
        ("false", "s == 'a' and s contains 'b'"),
        ("false", "s contains 'ab' and s not contains 'b'"),
        ("false", "s not contains ''"),
        # variables: one name is one value
        ("i < $x", "i < $x"),
        ("i <= $x", "i < $x and f > 2"),
        ("i >= $x", "i == $x"),
        ("exists(i)", "i < $x"),
        ("i < 5", "i < $x and i < 4"),
        ("i < $x or f > 3", "f > 4"),
        ("s suffix $x", "s suffix $x and s prefix 'b'"),
        ("false", "i < $x and i >= $x"),
        ("i in (1, $x)", "i in (1, $x)"),
    ],
)
def test_covers(wider: str, narrower: str) -> None:
    assert covers(wider, narrower)


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [
        ("s suffix 'ab'", "s suffix 'b'"),
        ("s suffix 'b'", "s contains 'b'"),
        ("s contains 'b'", "s in ('abc', 'x')"),
        ("i < $x", "i < $y"),
        ("i < $x", "i < 3"),
        ("i < 3", "i < $x"),
        ("i < $x", "i < $x - 1"),  # only what is plain to see
        ("i < 3", "i < 3 or exists(f)"),
    ],
)
def test_covers_not(wider: str, narrower: str) -> None:
    assert not covers(wider, narrower)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("s == 'abc'", "s suffix 'b'", False),
        ("s in ('abc', 'b')", "s suffix 'b'", True),
        ("s prefix 'a'", "s suffix 'b'", True),
        ("s contains 'a'", "s not contains 'a'", False),
        ("s contains 'ab'", "s not contains 'a'", False),
        ("s contains 'a'", "s not contains 'ab'", True),
        ("i < $x", "i >= $x", False),
        ("i < $x", "i >= $y", True),
    ],
)
def test_intersects(a: str, b: str, expected: bool) -> None:
    assert intersects(a, b) is expected


def test_filters_of_two_event_types_never_cover_or_intersect() -> None:
    other = EventType("U", dict(T.attributes))
    assert not parse("", T).covers(parse("false", other))
    assert not parse("", T).intersects(parse("", other))


def test_over_the_cap_covering_is_sound_and_finds_simple_cases() -> None:
    pairs = " and ".join(f"(i == {k} or f == {k})" for k in range(9))
    tree = parse(pairs, T)
    assert tree.boxes() is None
    assert tree.covers(tree)
    assert tree.covers(parse(pairs + " and b == true", T))
    assert parse("i == 3 or f == 3", T).covers(tree)
    assert parse("i between 2 and 4 or f == 3", T).covers(tree)
    assert not parse("i == 3", T).covers(tree)
    assert parse("i < 3 and f < 2", T).covers(parse(pairs + " and i < 2 and (f < 1 or f < 0)", T))
    assert not tree.covers(parse("i == 3", T))
    assert tree.intersects(parse("i == 3", T))
    assert not tree.intersects(parse("not exists(i) and not exists(f)", T))
    assert not parse("s == 'a' and s == 'b'", T).intersects(tree)
    many = parse(" or ".join(f"i == {k}" for k in range(100)), T)
    assert many.boxes() is None
    assert many.covers(parse("i between 0 and 99", T))
    assert not many.covers(parse("i between 0 and 100", T))
    assert parse("i between 0 and 99", T).covers(many)
    assert not many.intersects(parse("i >= 100", T))


def test_the_order_of_posets_wants_each_conjunction_in_one() -> None:
    wide = parse("i < 5 and f > 1 or i >= 5 and f > 1", T).region()
    apart, across = (parse(f"{test} and f > 2", T).region() for test in ("i in (1, 9)", "i between 1 and 9"))
    assert (covers_region(wide, across), holds_region(wide, across)) == (True, False)
    assert (covers_region(wide, apart), holds_region(wide, apart)) == (True, False)
    assert holds_region(wide, parse("i == 1 and f > 2 or i == 9 and f > 2", T).region())


def test_the_hull_of_a_region() -> None:
    region = parse("i between 2 and 4 and f < 3 or i == 9", T).region()
    assert region.box_of("i") == (2, 10)
    assert region.box_of("f") is None
    assert region.box_of("s") is None
    assert parse("false", T).region().box_of("i") is None
    assert parse("false", T).region().is_empty
    assert parse("s prefix 'ab'", T).region().box_of("s") == ("\1ab", "\1ac")


def test_a_region_is_computed_from_values_without_a_filter() -> None:
    f = parse("s == $s and f < 1.5 * $x and i in ($i, 7) or s suffix $s", T)
    values = f.check_values({"s": "ab", "x": 2, "i": 3})
    assert f.region(values) == f.substitute(values).region()
    assert hash(f.region(values)) == hash(f.substitute(values).region())
    half = f.check_values({"s": "ab", "i": 3}, partial=True)
    assert f.region(half) == f.substitute(half).region()
    assert f.region() is f.region({})
    assert f.region() != f.region(values)


# --- against brute force ------------------------------------------------------------------------------------


def neighbours(kind: Kind, constant: Any) -> Iterable[Any]:
    """The constant and values just beside it, so that every gap between cuts has a value."""
    if kind is Kind.BOOL:
        return [False, True]
    if kind is Kind.STRING:
        after = prefix_span(constant)[1]
        return [constant, constant + "\0", *([after] if after else [])]
    if kind is Kind.TIMESTAMP:
        tick = timedelta(microseconds=1)
        found = [constant]
        if constant > TIMES[0]:
            found.append(constant - tick)
        if constant < TIMES[-1]:
            found.append(constant + tick)
        return found
    if kind is Kind.INT64:
        if not isfinite(constant):
            return []
        near = {floor(constant) + d for d in (-1, 0, 1)} | {ceil(constant) + d for d in (-1, 0, 1)}
        return [x for x in near if -(2**63) <= x < 2**63]
    near_float = float(constant)
    return [near_float, nextafter(near_float, inf), nextafter(near_float, -inf)]


def constants(expression: Expression, attribute: str) -> set[Any]:
    if isinstance(expression, Predicate):
        if expression.attribute != attribute:
            return set()
        return {operand.value for operand in expression.operands if isinstance(operand, Constant)}
    return set().union(*(constants(part, attribute) for part in expression.parts))


def domain(event_type: EventType, filters: list[Filter]) -> list[dict[str, Any]]:
    """Events for every cell that the filters' constants make."""
    columns: list[list[Any]] = []
    for attribute, kind in event_type.attributes.items():
        found: dict[Any, None] = {None: None}
        if kind is Kind.FLOAT64:
            found.update(dict.fromkeys([nan, -inf, inf, 0.25]))
        elif kind is Kind.INT64:
            found.update(dict.fromkeys([-(2**63), 2**63 - 1, 1000]))
        elif kind is Kind.STRING:
            found.update(dict.fromkeys(["", "zz"]))
        elif kind is Kind.TIMESTAMP:
            found.update(dict.fromkeys(TIMES))
        else:
            found.update(dict.fromkeys([False, True]))
        for f in filters:
            for constant in constants(f.expression, attribute):
                found.update(dict.fromkeys(neighbours(kind, constant)))
        columns.append(list(found))
    return [dict(zip(event_type.names, row, strict=True)) for row in itertools.product(*columns)]


PAIRS = [
    EventType("A", {"x": "int64", "y": "float64"}),
    EventType("B", {"x": "string", "y": "int64"}),
    EventType("C", {"x": "timestamp", "y": "bool"}),
    EventType("D", {"x": "float64", "y": "string"}),
]


@st.composite
def interval_predicates(draw: st.DrawFn, event_type: EventType) -> Predicate:
    made = draw(predicates(event_type).filter(lambda p: p.operator in INTERVALS))
    kind = event_type.attributes[made.attribute]
    # An Arrow timestamp may be outside the years of datetimes: cuts support that, these events do not.
    pool = TIMES[1:-1] if kind is Kind.TIMESTAMP else POOLS[FAMILY[kind]]
    operands = [Constant(draw(st.sampled_from(pool))) for _ in made.operands]
    return Predicate(made.attribute, made.operator, tuple(operands))


def interval_filters(event_type: EventType, disjuncts: int) -> st.SearchStrategy[Filter]:
    leaf = interval_predicates(event_type)
    conjunction = st.lists(leaf, min_size=1, max_size=3).map(lambda parts: And(tuple(parts)))
    return st.lists(conjunction, min_size=1, max_size=disjuncts).map(
        lambda parts: Filter(event_type, Or(tuple(parts)))
    )


@examples(700)
@given(st.data())
def test_covers_and_intersects_are_exact_for_conjunctions_of_intervals(data: st.DataObject) -> None:
    event_type = data.draw(st.sampled_from(PAIRS))
    wider = data.draw(interval_filters(event_type, 1))
    narrower = data.draw(interval_filters(event_type, 1))
    check_exact(event_type, wider, narrower)


@examples(400)
@given(st.data())
def test_covers_and_intersects_are_exact_for_disjunctions_of_them(data: st.DataObject) -> None:
    event_type = data.draw(st.sampled_from(PAIRS))
    wider = data.draw(interval_filters(event_type, 4))
    narrower = data.draw(interval_filters(event_type, 2))
    check_exact(event_type, wider, narrower)


def check_exact(event_type: EventType, wider: Filter, narrower: Filter) -> None:
    rows = domain(event_type, [wider, narrower])
    in_wider = [wider.matches(row) for row in rows]
    in_narrower = [narrower.matches(row) for row in rows]
    expected = all(w for w, n in zip(in_wider, in_narrower, strict=True) if n)
    assert wider.covers(narrower) is expected
    assert wider.intersects(narrower) is any(w and n for w, n in zip(in_wider, in_narrower, strict=True))
    assert narrower.region().is_empty is not any(in_narrower)


@examples(400)
@given(st.data())
def test_covers_and_intersects_are_sound_for_all_filters(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    a, b = data.draw(filters(event_type)), data.draw(filters(event_type))
    if data.draw(st.booleans()):
        b = Filter(event_type, And((a.expression, b.expression)))  # else covering is too rare to be tried
    values = data.draw(values_of(tuple(dict.fromkeys((*a.variables, *b.variables)))))
    of_a = {name: values[name] for name in a.variables}
    of_b = {name: values[name] for name in b.variables}
    region_a, region_b = a.region(a.check_values(of_a)), b.region(b.check_values(of_b))
    assert region_a == a.substitute(of_a).region()
    covered, meet = covers_region(region_a, region_b), intersects_region(region_a, region_b)
    symbolic_covered, symbolic_meet = a.covers(b), a.intersects(b)
    note(f"covers: {covered}, meet: {meet}")
    if symbolic_covered:
        note("covers whatever the values")
    for drawn in data.draw(st.lists(events(event_type), min_size=1, max_size=6)):
        in_a, in_b = a.matches(drawn, of_a), b.matches(drawn, of_b)
        assert in_a or not in_b or not (covered or symbolic_covered)
        assert not (in_a and in_b) or (meet and symbolic_meet)
    assert a.covers(a)
    assert holds_region(region_a, region_a)
    assert covered or not holds_region(region_a, region_b)


@examples(150)
@given(st.data())
def test_implication_is_covering(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    a = data.draw(expressions(event_type))
    b = data.draw(expressions(event_type))
    whole, both = Filter(event_type, a), Filter(event_type, And((a, b)))
    if whole.boxes() is not None and both.boxes() is not None:
        assert whole.covers(both)
        assert Filter(event_type, Or((a, b))).covers(whole)


EVERY_PAIR = {
    "int64": [
        "", "x < 3", "x <= 2", "x < 2.5", "x > 1 and x < 9", "x in (2, 5, 8)", "x != 3", "x in (2, 4)",
        "x not in (3, 4)", "x > 4 and x < 8", "x < 3 or x > 3", "x < 3 or x >= 3", "exists(x)",
        "x < 3 or x >= 3 or not exists(x)", "false", "x > 5 and x < 6", "x < 3 and x > 3", "x == 10.5",
        "x <= 3", "x between 1 and 5", "x >= 3", "x > 5", "x < 6", "not exists(x)", "x < 3 or x > 7",
        "x between 3 and 7",
    ],
    "float64": [
        "x <= 3", "x < 3", "x < 10.5", "x <= 10.0", "exists(x)", "x != 3", "x >= -inf",
        "x between 1 and 2", "x < 3 or x >= 3", "x between -5 and 5", "x < 3 and not exists(x)",
        "x > 5 and x < 6", "x > 5", "x < 6", "x != 1", "x not in (2)",
        "x < 9223372036854775807", "x <= 9223372036854775807", "x < 9223372036854775808.0",
    ],
    "bool": [
        "x == true or x == false", "exists(x)", "x != true", "x == false",
    ],
    "string": [
        "x prefix 'ab'", "x prefix 'abc'", "x == 'abc'", "x > 'a'", "x between 'ab' and 'b'",
        "x not prefix 'b'", "x >= ''", "exists(x)", "x prefix '\ud7ff'", "x prefix '\ud7ffx'",
        "x prefix '\U0010ffff'", "x > '\U0010ffff'", "x >= 'ab'", "x prefix 'a'", "x prefix 'b'",
    ],
    "timestamp": [
        "x > '2026-01-01'", "x > '2026-01-02' and x < '2026-02-01'",
    ],
}  # fmt: skip
"""Filters on attribute x of a kind: intervals, whose covering is exact."""


@pytest.mark.parametrize("kind", EVERY_PAIR)
def test_every_pair_of_filters_on_one_attribute(kind: str) -> None:
    event_type = EventType("T", {"x": kind})
    for wider, narrower in itertools.product(
        [parse(text, event_type) for text in EVERY_PAIR[kind]], repeat=2
    ):
        check_exact(event_type, wider, narrower)


# --- sets of intervals --------------------------------------------------------------------------------------

CUTS = st.lists(st.integers(-1, 9), max_size=8, unique=True).map(
    lambda found: tuple(sorted(found[: len(found) // 2 * 2]))
)


@examples(300)
@given(CUTS, CUTS, CUTS)
def test_sets_of_intervals_are_sets(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> None:
    line = LINES[Kind.BOOL]
    line = type(line)(line.before, line.after, -1, 0, 9, 9)

    def members(cuts: tuple[int, ...]) -> set[int]:
        assert list(cuts) == sorted(cuts)
        return {x for i in range(0, len(cuts), 2) for x in range(cuts[i], cuts[i + 1])}

    assert members(intersection(a, b)) == members(a) & members(b)
    assert members(common([a, b, c])) == members(a) & members(b) & members(c)
    assert common([a]) == a
    assert members(difference(a, b, line)) == members(a) - members(b)
    assert members(union([a, b, c])) == members(a) | members(b) | members(c)
    joined = union([a, b, c])
    assert len(set(joined)) == len(joined)  # what touches is one interval
    assert within(a, b) is (members(a) <= members(b))
    assert overlap(a, b) is bool(members(a) & members(b))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.STRINGS])
def test_cut_points_keep_the_order_of_values(kind: Kind) -> None:
    line = LINES[kind]
    values = sorted({x for constant in POOLS[FAMILY[kind]] for x in neighbours(kind, constant)})
    assert line.missing < line.low == line.before(values[0]) or kind is Kind.TIMESTAMP or kind is Kind.STRING
    for low, high in itertools.pairwise(values):
        assert line.low <= line.before(low) < line.after(low) <= line.before(high)
        assert line.after(high) <= line.top <= line.end
    assert point_of(line, None) == line.missing
    if kind is Kind.FLOAT64:
        assert line.after(inf) == line.top == point_of(line, nan)
        assert line.before(-0.0) == line.before(0.0)
        assert line.before(2**53 + 1) == line.after(2**53 + 1) == line.after(2.0**53)


def test_every_list_has_one_cut_point() -> None:
    line = LINES[Kind.STRINGS]
    assert point_of(line, None) == line.missing < line.low == point_of(line, []) == point_of(line, ["a"])
    assert line.after(["a"]) == line.top == line.end


def test_a_predicate_with_an_unset_variable_is_an_atom() -> None:
    region = parse("i < $x", T).region()
    assert region.conjunctions[0].atoms == {Predicate("i", Operator.LT, (Variable("x"),))}

"""Random event types, filters, values and events over small pools, so that bounds and values meet often."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, nan
from typing import Any

from hypothesis import strategies as st

from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.expression import And, Constant, Expression, Or, Predicate, Scalar, Variable
from covey.matcher.expressions.operators import SPECS, Operator
from covey.matcher.expressions.values import FAMILY, Family
from covey.matcher.filters.filter import Filter

INTEGERS = [-(2**63), -(2**63) + 1, -2, -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
FLOATS = [-inf, -(2.0**63), -1.5, -0.0, 0.0, 5e-324, 1.0, 1.5, 2.0, 2.0**53, 2.0**63, inf]
STRINGS = ["", "a", "ab", "abc", "b", "ba", "é", "\uffff", "\U0001d11e"]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
POOLS: dict[Family, list[Any]] = {
    Family.NUMBER: INTEGERS + FLOATS,
    Family.STRING: STRINGS,
    Family.BOOL: [False, True],
    Family.TIMESTAMP: TIMES,
}
EVENT_POOLS: dict[Kind, list[Any]] = {
    Kind.INT64: [None, *INTEGERS[1:-1]],
    Kind.FLOAT64: [None, nan, *FLOATS],
    Kind.STRING: [None, *STRINGS],
    Kind.BOOL: [None, False, True],
    Kind.TIMESTAMP: [None, *TIMES],
    Kind.STRINGS: [None, [], ["a"], ["é", "", "a"]],
}
PREFIXES = {Family.NUMBER: "n", Family.STRING: "s", Family.BOOL: "b", Family.TIMESTAMP: "t"}
_ORDER = [Operator.LT, Operator.LE, Operator.GT, Operator.GE]
_EQUAL = [Operator.EQ, Operator.NE]


def operators(kind: Kind) -> list[Operator]:
    """The operators of a kind, the comparisons twice."""
    return [op for op in [*Operator, *_EQUAL, *_ORDER] if kind in SPECS[op].kinds]


def event_types(*, lists: bool = True) -> st.SearchStrategy[EventType]:
    some = [kind for kind in Kind if lists or kind is not Kind.STRINGS]
    kinds = st.lists(st.sampled_from(some), min_size=1, max_size=5)
    return kinds.map(lambda found: EventType("T", {f"a{i}": kind for i, kind in enumerate(found)}))


@st.composite
def operands(draw: st.DrawFn, kind: Kind) -> Constant | Variable:
    family = FAMILY[kind]
    if draw(st.booleans()):
        return Constant(draw(st.sampled_from(POOLS[family])))
    name = PREFIXES[family] + draw(st.sampled_from("12"))
    scale: int | float = 1
    offset: int | float = 0
    if family is Family.NUMBER:
        scale, offset = draw(
            st.sampled_from([(1, 0)] * 4 + [(1, 1), (-1, 0), (2, -1), (1.5, 0), (0.5, 1.25)])
        )
    if family is Family.TIMESTAMP:
        offset = draw(st.sampled_from([0, 0, 0, 1, -0.000001]))
    return Variable(name, scale, offset)


@st.composite
def moving(draw: st.DrawFn, event_type: EventType) -> And:
    """A conjunction as subscribers write it: equalities, ranges and texts, all of them on variables."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        attribute = draw(st.sampled_from(event_type.names))
        kind = event_type.attributes[attribute]
        if kind is Kind.STRINGS:
            parts.append(Predicate(attribute, draw(st.sampled_from(operators(kind)))))
            continue
        usual = [Operator.EQ, Operator.EQ, *_ORDER, *([Operator.PREFIX] if kind is Kind.STRING else [])]
        operator = draw(st.sampled_from(_EQUAL if kind is Kind.BOOL else usual))
        name = PREFIXES[FAMILY[kind]] + draw(st.sampled_from("12"))
        parts.append(Predicate(attribute, operator, (Variable(name),)))
    return And(tuple(parts))


@st.composite
def predicates(draw: st.DrawFn, event_type: EventType) -> Predicate:
    attribute = draw(st.sampled_from(event_type.names))
    kind = event_type.attributes[attribute]
    operator = draw(st.sampled_from(operators(kind)))
    count = SPECS[operator].operand_count
    if count is None:
        count = draw(st.integers(0, 3))
    return Predicate(attribute, operator, tuple(draw(operands(kind)) for _ in range(count)))


def expressions(event_type: EventType) -> st.SearchStrategy[Expression]:
    leaf = predicates(event_type)
    flat = st.lists(leaf, min_size=0, max_size=4).map(lambda parts: And(tuple(parts)))
    nested = st.recursive(
        leaf,
        lambda inner: st.builds(
            lambda kind, parts: kind(tuple(parts)),
            st.sampled_from([And, Or]),
            st.lists(inner, min_size=0, max_size=3),
        ),
        max_leaves=6,
    )
    # seven disjunctions of two are 128 conjunctions: over the cap
    wide = st.lists(leaf, min_size=14, max_size=16).map(
        lambda parts: And(tuple(Or(tuple(parts[i : i + 2])) for i in range(0, len(parts), 2)))
    )
    return st.one_of(moving(event_type), moving(event_type), flat, flat, nested, nested, wide)


def filters(event_type: EventType) -> st.SearchStrategy[Filter]:
    return expressions(event_type).map(lambda expression: Filter(event_type, expression))


def family_of(name: str) -> Family:
    """The family of a variable, named by the first letter of its name."""
    return next(family for family, prefix in PREFIXES.items() if name.startswith(prefix))


def values_of(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Scalar]]:
    return st.fixed_dictionaries({name: st.sampled_from(POOLS[family_of(name)]) for name in names})


def events(event_type: EventType) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: st.sampled_from(EVENT_POOLS[kind]) for name, kind in event_type.attributes.items()}
    )

"""Random event types, filters, values and events over small pools, so that bounds and values meet often."""

from datetime import UTC, datetime
from math import inf, nan
from typing import Any

from hypothesis import strategies as st

from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.expression import (
    And,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Or,
    Predicate,
    Scalar,
    Variable,
)
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
    """A conjunction as subscribers write it: equalities, ranges and texts, all with variables."""
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


_NUMBERS = (Kind.INT64, Kind.FLOAT64)


@st.composite
def calls(draw: st.DrawFn, event_type: EventType) -> Call | Predicate:
    """A call of an operator of `named_operators.py`, or a predicate where no attribute fits one."""
    attribute = draw(st.sampled_from(event_type.names))
    kind = event_type.attributes[attribute]
    column = Column(attribute)

    def free(prefix: str) -> Free:
        return Free(prefix + draw(st.sampled_from("112")))

    if kind in _NUMBERS and draw(st.integers(0, 2)) == 0:
        number = Kind.FLOAT64
        near = st.one_of(st.sampled_from([0, 1, 2]).map(Constant), operands(number))
        return Call("near", (column, draw(near), draw(near)), draw(st.booleans()))
    if kind in _NUMBERS:
        floor = st.one_of(st.sampled_from([-2, 0, 1]).map(Constant), operands(Kind.FLOAT64))
        return Call("span", (column, free("n"), free("n"), draw(floor)))
    if kind is Kind.STRING:
        samples = [draw(operands(kind)) for _ in range(draw(st.integers(1, 2)))]
        return draw(
            st.sampled_from(
                [
                    Call("resembles", (column, *samples), draw(st.booleans())),
                    Call("tally", (column, free("n"))),
                    Call("tally", (column, free("n"))),
                    Call("letter", (column, free("c"))),
                ]
            )
        )
    return draw(predicates(event_type))


@st.composite
def constraints(draw: st.DrawFn, names: list[str]) -> Constraint:
    """A constraint of one of these free variables, or of several numbers."""
    name = draw(st.sampled_from(names))
    operator = draw(st.sampled_from([*_ORDER, *_EQUAL]))
    usual = st.sampled_from(["a", "b", "c"] if name.startswith("c") else [0, 1, 2, 3]).map(Constant)
    if name.startswith("c"):
        return Constraint(((1, name),), operator, draw(st.one_of(usual, usual, operands(Kind.STRING))))
    others = [other for other in names if other.startswith("n") and other != name]
    terms: list[tuple[int | float, str]] = [(draw(st.sampled_from([1, 1, 1, 2, 0.5])), name)]
    if others and draw(st.booleans()):
        terms.append((draw(st.sampled_from([-1, -2, 1.5])), draw(st.sampled_from(others))))
    return Constraint(tuple(terms), operator, draw(st.one_of(usual, usual, operands(Kind.FLOAT64))))


@st.composite
def joined_calls(draw: st.DrawFn, event_type: EventType, names: tuple[str, ...], depth: int) -> Expression:
    """Calls and constraints of the free variables that these and the surrounding ones bind."""
    leaves: list[Expression] = draw(st.lists(calls(event_type), min_size=1, max_size=3))
    bound = sorted({*names, *[name for leaf in leaves if isinstance(leaf, Call) for name in leaf.free]})
    parts = list(leaves)
    if draw(st.integers(0, 3)) == 0:
        parts += draw(st.lists(predicates(event_type), max_size=2))
    if bound:
        parts += draw(st.lists(constraints(bound), max_size=2))
    for _ in range(draw(st.integers(0, 2)) if depth else 0):
        choices: list[st.SearchStrategy[Any]] = [predicates(event_type)]
        choices += [constraints(bound)] if bound else []
        choices.append(joined_calls(event_type, tuple(bound), depth - 1))
        parts.append(Or(tuple(draw(st.lists(st.one_of(choices), min_size=1, max_size=3)))))
    return And(tuple(draw(st.permutations(parts))))


def expressions_with_calls(event_type: EventType) -> st.SearchStrategy[Expression]:
    """Expressions that call the operators of `named_operators.py`, in every place where calls may stand."""
    group = joined_calls(event_type, (), 2)
    either = st.lists(st.one_of(group, predicates(event_type)), min_size=2, max_size=3)
    return st.one_of(group, calls(event_type), either.map(lambda parts: Or(tuple(parts))))


def filters_with_calls(event_type: EventType) -> st.SearchStrategy[Filter]:
    return expressions_with_calls(event_type).map(lambda expression: Filter(event_type, expression))


def filters(event_type: EventType) -> st.SearchStrategy[Filter]:
    return expressions(event_type).map(lambda expression: Filter(event_type, expression))


def family_of(name: str) -> Family:
    """The family of a variable, by the first letter of its name."""
    return next(family for family, prefix in PREFIXES.items() if name.startswith(prefix))


def values_of(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Scalar]]:
    return st.fixed_dictionaries({name: st.sampled_from(POOLS[family_of(name)]) for name in names})


def events(event_type: EventType) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: st.sampled_from(EVENT_POOLS[kind]) for name, kind in event_type.attributes.items()}
    )

"""Operators over small domains, random filters that call them, and their truth by trying every binding."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import (
    And,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Leaf,
    Operand,
    Or,
    Predicate,
    Variable,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.filters.filter import Filter
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister

TYPE = EventType("T", {"x": "float64", "y": "float64", "s": "string"})
NUMBERS_OF_EVENTS = [None, 0.0, 1.0, 2.0, 3.0]
EVENTS = [
    {"x": x, "y": y, "s": s} for x, y, s in product(NUMBERS_OF_EVENTS, NUMBERS_OF_EVENTS, [None, "a", "b"])
]
BINDINGS = [0.0, 1.0, 2.0, 3.0, 4.0]
CONSTANTS = [0.0, 1.0, 2.0, 3.0]

_ATTRIBUTE = Parameter("value", NUMBERS, Takes.ATTRIBUTE)
_NUMBER = Parameter("number", NUMBERS)
_FREE = Parameter("n", NUMBERS, Takes.FREE)


def _unused(*_: Any) -> Any:
    raise AssertionError("covering asks no operator")


OPERATORS = {
    operator.name: operator
    for operator in (
        NamedOperator(
            "t_near",
            (_ATTRIBUTE, _NUMBER, _NUMBER),
            _unused,
            covers=lambda wide, narrow: wide[1] == narrow[1] and wide[2] >= narrow[2],
            bounds=lambda given: [[(given[1] - given[2], given[1] + given[2])], None, None],
        ),
        NamedOperator("t_same", (_ATTRIBUTE, _ATTRIBUTE), _unused),
        NamedOperator("t_like", (Parameter("text", frozenset({Kind.STRING})), _NUMBER), _unused),
        NamedOperator("t_sees", (_ATTRIBUTE, _NUMBER, _FREE), _unused),
        NamedOperator(
            "t_upto",
            (_ATTRIBUTE, _NUMBER, _FREE),
            _unused,
            covers=lambda wide, narrow: wide[1] >= narrow[1],
            bounds=lambda given: [[(0.0, 2.0)], None, None],
        ),
        NamedOperator("t_pair", (_ATTRIBUTE, _FREE, replace(_FREE, name="m")), _unused),
    )
}


def solutions(name: str, given: Sequence[Any]) -> Iterable[tuple[float, ...]]:
    """The solutions for an event: one of no values where an operator without free variables is true."""
    x = given[0]
    match name:
        case "t_near":
            return [()] if abs(x - given[1]) <= given[2] else []
        case "t_same":
            return [()] if x == given[1] else []
        case "t_like":
            return [()] if (x == "a") == (given[1] < 2) else []
        case "t_sees":
            return [(n,) for n in BINDINGS if (n + given[1] + x) % 3 == 1]
        case "t_upto":
            return [(n,) for n in BINDINGS if n <= given[1] and x <= 2]
        case _:
            return [(n, m) for n, m in product(BINDINGS, BINDINGS) if (n - m + x) % 4 == 1]


@contextmanager
def registered() -> Iterator[None]:
    """Register the operators."""
    for operator in OPERATORS.values():
        register(operator)
    try:
        yield
    finally:
        for name in OPERATORS:
            unregister(name)


# --- truth --------------------------------------------------------------------------------------------------


def leaves_of(expression: Expression) -> list[Leaf]:
    if isinstance(expression, And | Or):
        return [leaf for part in expression.parts for leaf in leaves_of(part)]
    return [expression]


def is_true(filter: Filter, values: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether any binding of the free variables makes the filter true."""
    calls = [leaf for leaf in leaves_of(filter.expression) if isinstance(leaf, Call)]
    names = sorted({name for call in calls for name in call.free})
    return any(
        _holds(filter.expression, values, event, dict(zip(names, binding, strict=True)))
        for binding in product(BINDINGS, repeat=len(names))
    )


def _holds(
    expression: Expression, values: Mapping[str, Any], event: Mapping[str, Any], binding: dict[str, float]
) -> bool:
    if isinstance(expression, And):
        return all(_holds(part, values, event, binding) for part in expression.parts)
    if isinstance(expression, Or):
        return any(_holds(part, values, event, binding) for part in expression.parts)
    if isinstance(expression, Predicate):
        value = event[expression.attribute]
        operands = [_value(operand, values) for operand in expression.operands]
        return value is not None and passes(expression.operator, value, operands)
    if isinstance(expression, Constraint):
        total = sum(scale * binding[name] for scale, name in expression.terms)
        return passes(expression.operator, total, [_value(expression.operand, values)])
    given = [
        event[argument.attribute] if isinstance(argument, Column) else _value(argument, values)
        for argument in expression.arguments
        if not isinstance(argument, Free)
    ]
    if any(value is None for value in given):
        return False
    bound = tuple([binding[argument.name] for argument in expression.arguments if isinstance(argument, Free)])
    return (bound in solutions(expression.operator, given)) is expression.expected


def _value(operand: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(operand, Constant):
        return operand.value
    return operand.scale * values[operand.name] + operand.offset


# --- random filters -----------------------------------------------------------------------------------------

_COMPARISONS = [Operator.LT, Operator.LE, Operator.GT, Operator.GE, Operator.EQ, Operator.NE]
_numbers: st.SearchStrategy[Operand] = st.one_of(
    st.sampled_from([Constant(value) for value in CONSTANTS]),
    st.sampled_from([Variable("v"), Variable("w"), Variable("v", 2, 1)]),
)
_columns = st.sampled_from([Column("x"), Column("y")])
_free = st.sampled_from([Free("n"), Free("m")])
_comparisons = st.builds(
    lambda attribute, operator, operand: Predicate(attribute, operator, (operand,)),
    st.sampled_from(["x", "y"]),
    st.sampled_from(_COMPARISONS),
    _numbers,
)
_plain_calls = st.one_of(
    st.builds(lambda *all: Call("t_near", all[:3], all[3]), _columns, _numbers, _numbers, st.booleans()),
    st.builds(lambda *given: Call("t_same", given[:2], given[2]), _columns, _columns, st.booleans()),
    st.builds(lambda *given: Call("t_like", (Column("s"), given[0]), given[1]), _numbers, st.booleans()),
)
_free_calls = st.one_of(
    st.builds(
        lambda *all: Call(all[0], all[1:]), st.sampled_from(["t_sees", "t_upto"]), _columns, _numbers, _free
    ),
    st.builds(lambda *given: Call("t_pair", given), _columns, _free, _free),
)


@st.composite
def conjunctions(draw: st.DrawFn, free: bool = True) -> And:
    """Predicates, calls, and constraints on what the calls bind."""
    parts: list[Expression] = draw(st.lists(st.one_of(_comparisons, _plain_calls), max_size=3))
    if free:
        calls = draw(st.lists(_free_calls, max_size=3))
        parts += calls
        names = sorted({name for call in calls for name in call.free})
        parts += draw(st.lists(constraints(names), max_size=3)) if names else []
    return And(tuple(parts))


@st.composite
def constraints(draw: st.DrawFn, names: list[str]) -> Constraint:
    terms = tuple([(draw(st.sampled_from([1, 1, -1, 2])), name) for name in draw(st.permutations(names))])
    count = draw(st.integers(1, len(terms)))
    return Constraint(terms[:count], draw(st.sampled_from(_COMPARISONS)), draw(_numbers))


def filters() -> st.SearchStrategy[Filter]:
    """Conjunctions, disjunctions, and filters over the cap of the normal form."""
    some = st.lists(conjunctions(), min_size=1, max_size=3).map(lambda parts: Or(tuple(parts)))
    pairs = st.lists(st.one_of(_comparisons, _plain_calls), min_size=14, max_size=14)
    wide = st.tuples(pairs, conjunctions()).map(
        lambda drawn: And(
            (*drawn[1].parts, *[Or(tuple(drawn[0][i : i + 2])) for i in range(0, len(drawn[0]), 2)])
        )
    )
    either = st.one_of(conjunctions(), conjunctions(), some, wide)
    return either.map(lambda expression: Filter.of_checked(TYPE, expression))


values = st.fixed_dictionaries({name: st.sampled_from(CONSTANTS) for name in ("v", "w")})


@st.composite
def narrowed(draw: st.DrawFn, conjunction: And) -> And:
    """A conjunction that this one covers by the rules: more parts, tighter constants, other names."""
    names = draw(st.sampled_from([{}, {"n": "m", "m": "n"}, {"n": "k"}]))
    parts = [_renamed(_tighter(draw, part), names) for part in conjunction.parts]
    parts += draw(conjunctions(free=False)).parts
    return And(tuple(draw(st.permutations(parts))))


def _tighter(draw: st.DrawFn, leaf: Expression) -> Expression:
    if isinstance(leaf, Constraint) and isinstance(leaf.operand, Constant):
        assert isinstance(leaf.operand.value, float)
        step = draw(st.sampled_from([0.0, 1.0]))
        if leaf.operator in (Operator.GT, Operator.GE):
            return replace(leaf, operand=Constant(leaf.operand.value + step))
        if leaf.operator in (Operator.LT, Operator.LE):
            return replace(leaf, operand=Constant(leaf.operand.value - step))
    if isinstance(leaf, Call) and leaf.operator in ("t_near", "t_upto"):
        place = {"t_near": 2, "t_upto": 1}[leaf.operator]
        last = leaf.arguments[place]
        if isinstance(last, Constant):
            assert isinstance(last.value, float)
            step = draw(st.sampled_from([0.0, 1.0])) * (-1 if leaf.expected else 1)
            arguments = list(leaf.arguments)
            arguments[place] = Constant(last.value + step)
            return replace(leaf, arguments=tuple(arguments))
    return leaf


def _renamed(leaf: Expression, names: Mapping[str, str]) -> Expression:
    if isinstance(leaf, Constraint):
        return replace(leaf, terms=tuple([(scale, names.get(name, name)) for scale, name in leaf.terms]))
    if isinstance(leaf, Call):
        arguments = [Free(names.get(a.name, a.name)) if isinstance(a, Free) else a for a in leaf.arguments]
        return replace(leaf, arguments=tuple(arguments))
    return leaf

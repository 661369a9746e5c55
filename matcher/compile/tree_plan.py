"""Plans of whole filters: a tree with interval tests as leaves, not the normal form (Bittner and Hinze 2005).

Invariant: leaves are not negated (`x != 5` is `x < 5 or x > 5`), so another leaf that holds never makes a
tree false. A leaf is its number; an inner node one negative word of its operator and the words of its
children:
    a == 1 and (b < 2 or c > 3)      shape [ AND 6 | leaf 0 | OR 2 | leaf 1 | leaf 2 ]

*Access rows* are conjunctions of leaves. Invariant: the tree implies one of its rows, so an engine indexes
rows and evaluates the tree where one holds: `(a == 1 or b == 2) and c < 3` has the rows `a == 1 and c < 3`
and `b == 2 and c < 3`. This extends Fabret's access predicates (2001, 2.2) to trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import BoxPlan, BoxSkeleton, Plan, TestPlan, TextPlan, in_order, part_plans
from covey.matcher.covering.boxes import Part, PartOperand, requirements
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.expression import And, Expression, Or, Predicate, Variable
from covey.matcher.expressions.rewriting import lifted
from covey.matcher.filters.filter import Filter

AND, OR = 0, 1

Shape = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Leaf:
    column: int
    plan: TestPlan | TextPlan


@dataclass(frozen=True, slots=True)
class _Inner:
    operator: int
    children: tuple[_Node, ...]


_Node = _Leaf | _Inner
_NEVER = _Inner(OR, ())


def inner_word(operator: int, words: int) -> int:
    return -1 - (2 * words + operator)


@dataclass(slots=True)
class TreeShape:
    """The shape of a plan's trees. At least `least` leaves must hold (the *minimum predicate count*); if
    `all_of_them`, that is enough."""

    words: Shape
    least: int
    all_of_them: bool
    depth: int


def make_tree(
    filter: Filter, variables: tuple[Variable | None, ...], schema: SchemaColumns
) -> tuple[Plan, TreeShape]:
    maker = _Maker(filter.event_type, [None] * len(variables))
    expression = in_order(filter.expression, filter.event_type)
    root = maker.node(lifted(expression, filter.event_type.attributes, [], []))
    leaves: list[_Leaf] = []
    words: list[int] = []
    depth = _write(root, leaves, words, 0)
    # rows have texts after tests: renumber the leaves in the words, which are in the order of the tree
    order = sorted(range(len(leaves)), key=lambda leaf: isinstance(leaves[leaf].plan, TextPlan))
    plans = [leaves[leaf].plan for leaf in order]
    tests = tuple([plan for plan in plans if isinstance(plan, TestPlan)])
    texts = tuple([plan for plan in plans if isinstance(plan, TextPlan)])
    columns = tuple([leaves[leaf].column for leaf in order])
    attributes = range(len(filter.event_type.names))
    number = {leaf: position for position, leaf in enumerate(order)}
    shape = np.array([number.get(word, word) for word in words], dtype=np.int32)
    plan = Plan(
        filter=filter,
        boxes=() if root == _NEVER else (BoxPlan.of(BoxSkeleton(tests, texts, columns), attributes, schema),),
        kinds=tuple(maker.kinds),
        variables=variables,
        overlaps=False,
    )
    least = _least(root)
    return plan, TreeShape(shape, least, least == len(leaves), depth)


def _write(node: _Node, leaves: list[_Leaf], words: list[int], depth: int) -> int:
    """Append a node's leaves and words; returns the depth of its deepest inner node."""
    if isinstance(node, _Leaf):
        words.append(len(leaves))
        leaves.append(node)
        return depth
    at = len(words)
    words.append(0)
    deepest = depth + 1
    for child in node.children:
        deepest = max(deepest, _write(child, leaves, words, depth + 1))
    words[at] = inner_word(node.operator, len(words) - at - 1)
    return deepest


def _least(node: _Node) -> int:
    if isinstance(node, _Leaf):
        return 1
    least = [_least(child) for child in node.children]
    return sum(least) if node.operator == AND else min(least, default=0)


class _Maker:
    def __init__(self, event_type: EventType, kinds: list[Kind | None]) -> None:
        self.event_type = event_type
        self.kinds = kinds

    def node(self, expression: Expression) -> _Node:
        if isinstance(expression, Predicate):
            return self.predicate(expression)
        assert isinstance(expression, And | Or), expression  # of a gate
        children = [self.node(part) for part in expression.parts]
        return _joined(AND, _paired(children)) if isinstance(expression, And) else _joined(OR, children)

    def predicate(self, predicate: Predicate) -> _Node:
        column = self.event_type.index(predicate.attribute)
        kind = self.event_type.attributes[predicate.attribute]
        made = _short_predicate if len(predicate.operands) <= _SHORT else _predicate
        node, numbers = made(column, kind, predicate)
        for number in numbers:
            self.kinds[number] = kind
        return node


def _predicate(column: int, kind: Kind, predicate: Predicate) -> tuple[_Node, tuple[int, ...]]:
    """The node of a predicate whose operands are variables named 1, 2, ..., and the operands' numbers."""
    numbers: dict[int, None] = {}

    def number_of(operand: PartOperand, _: Kind) -> int:
        assert isinstance(operand, Variable)
        number = int(operand.name) - 1
        numbers[number] = None
        return number

    def conjunction(parts: Iterable[Part]) -> _Node:
        plans = [plan for part in parts for plan in part_plans(part, kind, number_of)]
        return _joined(AND, [_Leaf(column, plan) for plan in plans])

    required = requirements(predicate, kind)
    node = _joined(AND, [_joined(OR, [conjunction(parts) for parts in each]) for each in required])
    return node, tuple(numbers)


_SHORT = 2
_short_predicate = lru_cache(maxsize=8_192)(_predicate)  # shared by all filters, since operands are numbered


def _joined(operator: int, children: list[_Node]) -> _Node:
    """A node, with children of its operator merged into it; a conjunction with an empty disjunction becomes
    one."""
    flat: list[_Node] = []
    for child in children:
        if operator == AND and child == _NEVER:
            return _NEVER
        if isinstance(child, _Inner) and child.operator == operator:
            flat.extend(child.children)
        else:
            flat.append(child)
    return flat[0] if len(flat) == 1 else _Inner(operator, tuple(flat))


def _paired(children: list[_Node]) -> list[_Node]:
    """The parts of a conjunction, with a lower and an upper bound of one attribute joined in one interval."""
    paired: list[_Node] = []
    waiting: dict[tuple[int, bool], int] = {}
    for child in children:
        plan = child.plan if isinstance(child, _Leaf) else None
        if isinstance(plan, TestPlan) and (plan.lower is None) != (plan.upper is None):
            assert isinstance(child, _Leaf)
            at = waiting.pop((child.column, plan.lower is None), None)
            if at is not None:
                other = paired[at]
                assert isinstance(other, _Leaf)
                assert isinstance(other.plan, TestPlan)
                lower, upper = plan.lower or other.plan.lower, plan.upper or other.plan.upper
                paired[at] = _Leaf(child.column, TestPlan(plan.kind, lower, upper, plan.low, plan.high))
                continue
            waiting.setdefault((child.column, plan.lower is not None), len(paired))
        paired.append(child)
    return paired


# --- access rows ----------------------------------------------------------------------------------


Row = tuple[int, ...]  # the numbers of its leaves

MOST_TESTS = 4  # leaves of an access row: each is stored once more
ENOUGH = 1e-3  # share of events below which another test costs more than it saves
FEW = 0.1  # share of events below which alternatives, which multiply rows, cost more than they save
MOST_ROWS = 16  # the most rows of a product of alternatives
USELESS = 0.9  # the share of the events from which on a test restricts too little to find a tree by it


@dataclass(frozen=True, slots=True)
class Access:
    """The rows by which part of a tree is found, and the expected share of the events that pass them."""

    rows: tuple[Row, ...]
    passed: float


def access_rows(words: Sequence[int], passed: Sequence[float]) -> Access:
    """The access rows of a tree in words, where leaf i holds for the share passed[i] of the events; one row
    without tests if every event may match. Linear in the tree; at most about four rows per leaf."""
    access, _ = _access(words, 0, passed)
    return Access(((),), 1.0) if access is None else access


def _access(words: Sequence[int], at: int, passed: Sequence[float]) -> tuple[Access | None, int]:
    """The access of the node at a word, None if nothing restricts it, and the next word."""
    word = words[at]
    at += 1
    if word >= 0:
        return (Access(((word,),), passed[word]) if passed[word] < USELESS else None), at
    node = -1 - word
    end = at + (node >> 1)
    parts: list[Access | None] = []
    while at < end:
        part, at = _access(words, at, passed)
        parts.append(part)
    known = [part for part in parts if part is not None]
    if node & 1:
        return (_any(known) if len(known) == len(parts) else None), at
    return (_all(known) if known else None), at


def _any(parts: list[Access]) -> Access | None:
    share = 1 - prod(1 - part.passed for part in parts)
    rows = dict.fromkeys(row for part in parts for row in part.rows)
    return Access(tuple(rows), share) if share < USELESS else None


def _all(parts: list[Access]) -> Access:
    """The most selective part, joined with others while they are worth their tests and rows."""
    first, *others = sorted(parts, key=lambda part: (part.passed * len(part.rows) ** 0.5, len(part.rows)))
    rows, share = first.rows, first.passed
    for part in others:
        longest = max(map(len, rows)) + max(map(len, part.rows))
        multiplies = len(part.rows) > 1 and (share <= FEW or len(rows) * len(part.rows) > MOST_ROWS)
        if share > ENOUGH and longest <= MOST_TESTS and not multiplies:
            rows = tuple([(*row, *more) for row in rows for more in part.rows])
            share *= part.passed
    return Access(rows, share)

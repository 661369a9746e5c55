"""Plans: how subscriptions of one structure become rows of interval tests.

Invariant: a test has at most one bound on a side, so a new value of a variable is one word to write.
Structures that differ in attribute names alone share a *skeleton*, which is computed once. It numbers the
attributes of a structure, its *places*, in the order of the event type; a plan adds the columns at these
places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import combinations, islice, zip_longest

from covey.matcher.covering.boxes import Absent, Bound, Box, Part, PartOperand, Text, boxes_of
from covey.matcher.covering.cuts import LINES
from covey.matcher.encoding.keys import largest_key
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import FIRST, LAST, MISSING, NAN_KEY
from covey.matcher.expressions.expression import (
    And,
    Constant,
    Expression,
    Operand,
    Or,
    Predicate,
    Variable,
    leaves,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.filters.filter import Filter

SKELETONS = 1 << 12  # the most skeletons whose plans are kept to be shared


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a test, excluded if `strict`; if `past`, the least string above all that begin with the
    operand."""

    operand: int
    strict: bool
    past: bool = False


@dataclass(frozen=True, slots=True)
class TestPlan:
    """An interval of an attribute; where a side is None, the end is `low` or `high`."""

    __test__ = False  # not for pytest

    kind: Kind
    lower: Side | None
    upper: Side | None
    low: int
    high: int
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self._shape())

    @property
    def is_ranked(self) -> bool:
        """Whether it is a range of strings, which is tested by ranks."""
        return (
            self.kind is Kind.STRING and self.shape > Shape.FIXED and (self.lower or self.upper) is not None
        )

    def _shape(self) -> Shape:
        if self.lower is not None and self.lower == self.upper:
            return Shape.FIXED if self.kind is Kind.BOOL else Shape.EQUAL
        if self.lower is None and self.upper is None:
            return Shape.FIXED if self.low == self.high else Shape.BOTH
        if self.upper is None:
            return Shape.LOW
        return Shape.HIGH if self.lower is None else Shape.BOTH


class Shape(IntEnum):
    """Which bounds a row stores for a test: one key for an equality, one or two ends for a range."""

    EQUAL = 0  # one key, of an attribute worth hashing
    FIXED = 1  # one key not worth hashing: a boolean, a text test, an absent attribute
    LOW = 2
    HIGH = 3
    BOTH = 4


# the most selective first
_ORDER = {Shape.EQUAL: 0, Shape.FIXED: 1, Shape.BOTH: 2, Shape.LOW: 3, Shape.HIGH: 3}


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A derived column of the operand's value that must be true (or false, if not `expected`); a set that
    must contain the event's value (or not); or the ending of a string.
    """

    operator: Operator
    operand: int
    expected: bool

    @property
    def is_set(self) -> bool:
        return self.operator is Operator.IN

    @property
    def is_ending(self) -> bool:
        """Whether the string must end with the operand: its last bytes are compared."""
        return self.operator is Operator.SUFFIX and self.expected

    @property
    def shape(self) -> Shape:
        return Shape.EQUAL if self.expected and (self.is_set or self.is_ending) else Shape.FIXED


@dataclass(frozen=True, slots=True, eq=False)
class BoxSkeleton:
    """One row: its `tests`, then its `texts`, on the attributes at `places`; `shapes` are in the same order.
    """

    tests: tuple[TestPlan, ...]
    texts: tuple[TextPlan, ...]
    places: tuple[int, ...]
    shapes: tuple[Shape, ...] = field(init=False)
    is_plain: bool = field(init=False)  # it tests no strings

    def __post_init__(self) -> None:
        is_plain = not self.texts and all(test.kind is not Kind.STRING for test in self.tests)
        object.__setattr__(self, "is_plain", is_plain)
        shapes = (*[test.shape for test in self.tests], *[text.shape for text in self.texts])
        object.__setattr__(self, "shapes", shapes)


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """One row: a box of a skeleton, the columns of its tests, and the attributes of its texts."""

    skeleton: BoxSkeleton
    columns: tuple[int, ...]
    text_columns: tuple[int, ...]

    @classmethod
    def of(cls, skeleton: BoxSkeleton, attributes: Sequence[int], schema: SchemaColumns) -> BoxPlan:
        placed = tuple([attributes[place] for place in skeleton.places])
        tested = [
            schema.ranks[attribute] if test.is_ranked else schema.columns[attribute]
            for test, attribute in zip(skeleton.tests, placed, strict=False)
        ]
        return cls(skeleton, tuple(tested), placed[len(tested) :])

    @property
    def tests(self) -> tuple[TestPlan, ...]:
        return self.skeleton.tests

    @property
    def texts(self) -> tuple[TextPlan, ...]:
        return self.skeleton.texts

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return self.skeleton.shapes

    @property
    def size(self) -> int:
        return len(self.skeleton.shapes)


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of all filters of one structure. `variables[o]` is the variable of operand o, None for a
    constant.
    """

    filter: Filter
    boxes: tuple[BoxPlan, ...]
    kinds: tuple[Kind | None, ...]  # None where no box needs the operand
    variables: tuple[Variable | None, ...]
    overlaps: bool  # an event may match several of the boxes

    def operands_of(self, names: set[str]) -> frozenset[int]:
        return frozenset(o for o, v in enumerate(self.variables) if v is not None and v.name in names)


Node = type[And] | type[Or] | Operator | int

Skeleton = tuple[tuple[Node, ...], tuple[int, ...], tuple[Kind, ...]]
"""A structure without attribute names: its tree in preorder, with the number of parts or operands of each
node; the places of its predicates; the kinds of its places. `a < $x or b in ($y, $z)` is Or 2 < 1 in 2."""

PlanKey = tuple["SkeletonPlan | Skeleton | Filter", tuple[int, ...], tuple[Variable | None, ...], bool]
"""The key of a plan: a skeleton or its plan, the columns at its places, the operands that are variables, and
whether constants make the boxes disjoint; or a filter as it is, and nothing else."""


_ORDERED_BY = 64  # the most leaves by which a node is ordered, so that ordering takes linear time


def _parts_in_order(node: And | Or, event_type: EventType) -> list[Expression]:
    """The parts of a node in an order that does not depend on the filter's text."""
    index, last = event_type.index, len(event_type.names)

    def order(part: Expression) -> tuple[int, str]:
        return (index(part.attribute), part.operator) if isinstance(part, Predicate) else (last, "")

    def order_below(part: Expression) -> list[tuple[int, str]]:
        return sorted(map(order, islice(leaves(part), _ORDERED_BY)))

    parts = sorted(node.parts, key=order)
    nested = sum([not isinstance(part, Predicate) for part in parts])
    if nested > 1:
        parts[-nested:] = sorted(parts[-nested:], key=order_below)
    return parts


def in_order(expression: Expression, event_type: EventType) -> Expression:
    """A gate in a canonical order of parts, so that filters that differ in order alone share a plan."""
    if not isinstance(expression, (And, Or)):
        return expression
    parts: list[Expression] = []
    for part in _parts_in_order(expression, event_type):
        parts.append(in_order(part, event_type))  # noqa: PERF401 (saves stack)
    return expression.__class__(tuple(parts))


def structure_key(filter: Filter) -> tuple[Skeleton, tuple[int, ...], tuple[Operand, ...]]:
    """The skeleton of a structure, its columns, and its operands in the order of `in_order`."""
    tree: list[Node] = []
    tested: list[int] = []
    operands: list[Operand] = []
    index, kinds = filter.event_type.index, filter.event_type.kinds
    pending: list[Expression] = [filter.expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Predicate):
            tree += part.operator, len(part.operands)
            tested.append(index(part.attribute))
            operands += part.operands
        else:
            assert isinstance(part, And | Or), part  # of a gate
            tree += part.__class__, len(part.parts)
            pending += _parts_in_order(part, filter.event_type)[::-1]
    columns = sorted(set(tested))
    place = {column: place for place, column in enumerate(columns)}
    places = tuple([place[column] for column in tested])
    skeleton = tuple(tree), places, tuple([kinds[column] for column in columns])
    return skeleton, tuple(columns), tuple(operands)


def variables_of(operands: Iterable[PartOperand]) -> tuple[Variable | None, ...]:
    return tuple([operand if isinstance(operand, Variable) else None for operand in operands])


def plan_key(filter: Filter) -> tuple[PlanKey, tuple[Operand, ...]]:
    """The key of a filter's plan and the filter's operands, cached in the filter. Where constants make fewer
    boxes than variables, the key is the filter, without operands: `volume not in (1, 2, 3)` is four gaps
    between constants, but eight boxes around three variables."""
    if filter.plan_key is None:
        filter.plan_key = _plan_key(filter)
    return filter.plan_key


def _plan_key(filter: Filter) -> tuple[PlanKey, tuple[Operand, ...]]:
    skeleton, columns, operands = structure_key(filter)
    shared = _skeleton_plan(skeleton)
    if shared is None or (len(shared.boxes) > 1 and _has_fewer(filter, len(shared.boxes))):
        return (filter, (), (), False), ()
    told_apart = shared.overlaps and any(
        _are_different([operands[number] for number in numbers]) for numbers in shared.equalities
    )
    return (shared, columns, variables_of(operands), told_apart), operands


def _are_different(operands: list[PartOperand]) -> bool:
    constants = {operand.value for operand in operands if isinstance(operand, Constant)}
    return len(constants) == len(operands)


def _has_fewer(filter: Filter, boxes: int) -> bool:
    own = filter.boxes()
    return own is not None and len(own) < boxes


def make_plan(
    filter: Filter, key: PlanKey, schema: SchemaColumns
) -> tuple[Plan, tuple[PartOperand, ...]] | None:
    """The plan of a filter by its key, and its operands; None if it has no normal form under the cap."""
    columns: Sequence[int]
    structure, columns, variables, told_apart = key
    if isinstance(structure, Filter):
        shared = _columnless_plan(filter.event_type, filter.boxes(), [])
        columns = range(len(filter.event_type.names))
        variables = () if shared is None else variables_of(shared.operands)
    else:
        shared = structure if isinstance(structure, SkeletonPlan) else _skeleton_plan(structure)
    if shared is None:
        return None
    boxes = tuple([BoxPlan.of(box, columns, schema) for box in shared.boxes])
    overlaps = shared.overlaps and not told_apart
    return Plan(filter, boxes, shared.kinds, variables, overlaps), shared.operands


@lru_cache(SKELETONS)
def _skeleton_plan(skeleton: Skeleton) -> SkeletonPlan | None:
    tree, places, kinds = skeleton
    names = [f"a{place}" for place in range(len(kinds))]
    event_type = EventType("skeleton", {**dict(zip(names, kinds, strict=True)), "other": Kind.BOOL})
    operands: list[Operand] = []
    expression = _expression(iter(tree), iter([names[place] for place in places]), operands)
    return _columnless_plan(event_type, boxes_of(event_type, expression), operands)


def _expression(tree: Iterator[Node], names: Iterator[str], operands: list[Operand]) -> Expression:
    node, parts = next(tree), next(tree)
    assert isinstance(parts, int)
    if isinstance(node, Operator):
        mine = [Variable(str(number)) for number in range(len(operands), len(operands) + parts)]
        operands += mine
        return Predicate(next(names), node, tuple(mine))
    assert not isinstance(node, int)
    children: list[Expression] = []
    for _ in range(parts):
        children.append(_expression(tree, names, operands))  # noqa: PERF401 (saves stack)
    return node(tuple(children))


@dataclass(frozen=True, slots=True, eq=False)
class SkeletonPlan:
    """The plan of a structure but for its columns; equal to itself alone, so that a key with it is fast."""

    boxes: tuple[BoxSkeleton, ...]
    kinds: tuple[Kind | None, ...]
    overlaps: bool  # an event may match several boxes, for some values of operands
    equalities: tuple[tuple[int, ...], ...]
    """Where every box tests one attribute for equality: the operands of these tests, one per box."""
    operands: tuple[PartOperand, ...]
    is_plain: bool = field(init=False)  # row bounds depend on operands alone, not on columns

    def __post_init__(self) -> None:
        is_plain = bool(self.boxes) and all(box.is_plain for box in self.boxes)
        object.__setattr__(self, "is_plain", is_plain)


def _columnless_plan(
    event_type: EventType,
    boxes: tuple[Box, ...] | None,
    initial: Sequence[Operand],
) -> SkeletonPlan | None:
    """Operands of the boxes get the numbers after those of `initial`."""
    if boxes is None:
        return None
    operands = _Operands(initial)
    rows = tuple([_box(event_type, box, operands) for box in boxes])
    kinds = tuple([operands.kinds.get(number) for number in range(len(operands.numbers))])
    numbers = list(operands.numbers)
    overlaps = not all(_are_disjoint(*pair, numbers) for pair in combinations(rows, 2))
    equal = [_equalities(row) for row in rows]
    places = set.intersection(*map(set, equal)) if overlaps else ()
    equalities = tuple([tuple([each[place] for each in equal]) for place in places])
    return SkeletonPlan(rows, kinds, overlaps, equalities, tuple(numbers))


def _equalities(box: BoxSkeleton) -> dict[int, int]:
    pairs = zip(box.tests, box.places, strict=False)
    return {p: t.lower.operand for t, p in pairs if t.shape is Shape.EQUAL and t.lower is not None}


def _are_disjoint(one: BoxSkeleton, other: BoxSkeleton, operands: Sequence[PartOperand]) -> bool:
    """Whether two tests of one attribute exclude each other for all values of variables."""
    return any(
        place == other_place and (_ends_before(test, after, operands) or _ends_before(after, test, operands))
        for test, place in zip(one.tests, one.places, strict=False)
        for after, other_place in zip(other.tests, other.places, strict=False)
    )


def _ends_before(test: TestPlan, other: TestPlan, operands: Sequence[PartOperand]) -> bool:
    upper, lower = test.upper, other.lower
    if upper is None or lower is None:
        most = test.high if upper is None else largest_key(test.kind)
        return most < (other.low if lower is None else FIRST)
    if upper.operand == lower.operand:
        return lower.past > upper.past or (lower.past == upper.past and (upper.strict or lower.strict))
    high, low = operands[upper.operand], operands[lower.operand]
    if not isinstance(high, Constant) or not isinstance(low, Constant) or upper.past:
        return False
    before = LINES[test.kind].before
    return bool(before(high.value) < before(low.value))


class _Operands:
    def __init__(self, known: Iterable[Operand]) -> None:
        self.numbers: dict[PartOperand, int] = {operand: number for number, operand in enumerate(known)}
        self.kinds: dict[int, Kind] = {}

    def number(self, operand: PartOperand, kind: Kind) -> int:
        number = self.numbers.setdefault(operand, len(self.numbers))
        self.kinds[number] = kind
        return number


def _box(event_type: EventType, box: Box, operands: _Operands) -> BoxSkeleton:
    tests: list[tuple[TestPlan, int]] = []
    texts: list[tuple[TextPlan, int]] = []
    for part in box:
        place = event_type.index(part.attribute)
        for plan in part_plans(part, event_type.attributes[part.attribute], operands.number):
            if isinstance(plan, TextPlan):
                texts.append((plan, place))
            else:
                tests.append((plan, place))
    tests.sort(key=lambda pair: _ORDER[pair[0].shape])
    return BoxSkeleton(
        tuple([test for test, _ in tests]),
        tuple([text for text, _ in texts]),
        tuple([place for _, place in (*tests, *texts)]),
    )


def part_plans(
    part: Part, kind: Kind, number_of: Callable[[PartOperand, Kind], int]
) -> Sequence[TestPlan | TextPlan]:
    """The tests of a part of a box on an attribute, its operands numbered by `number_of`."""
    if isinstance(part, Text):
        return [TextPlan(part.operator, number_of(part.operand, kind), part.expected)]
    if isinstance(part, Absent):
        return [TestPlan(kind, None, None, MISSING, MISSING)]
    if part.nan:
        return [TestPlan(kind, None, None, NAN_KEY, NAN_KEY)]
    if not part.lower and not part.upper:
        return [TestPlan(kind, None, None, FIRST, LAST)]

    def side(bound: Bound) -> Side:
        return Side(number_of(bound.operand, kind), bound.strict, bound.past)

    def interval(lower: Side | None, upper: Side | None) -> TestPlan:
        return TestPlan(kind, lower, upper, FIRST, largest_key(kind))

    equal = [side(b) for b in part.lower if b in part.upper and not b.strict]
    lowers = [side(b) for b in part.lower if b.strict or b not in part.upper]
    uppers = [side(b) for b in part.upper if b.strict or b not in part.lower]
    return [interval(s, s) for s in equal] + [interval(*ends) for ends in zip_longest(lowers, uppers)]

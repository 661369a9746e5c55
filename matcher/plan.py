"""Plans: how subscriptions of one structure become rows of interval tests.

Filters that differ in constants alone, or in the values of their variables, share a plan. It says per box
which columns are tested and which operand gives each bound; the operands' values then make the rows. A test
of a plan has at most one bound on a side: `price > $a and price > 5` is two tests of one column, so that a
new value of `$a` is one word to write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from covey.matcher.boxes import SHARED, Absent, Bound, Box, Test, Text
from covey.matcher.event_type import EventType, Kind
from covey.matcher.expression import Constant, Operand, Operator, Scalar, Variable
from covey.matcher.filter import Filter
from covey.matcher.keys import FIRST, LAST, MISSING, NAN_KEY, largest_key


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a test: operand number `operand`, itself left out if `strict`."""

    operand: int
    strict: bool


@dataclass(frozen=True, slots=True)
class TestPlan:
    """An interval of one attribute; where a side is None, the end is `low` or `high`."""

    __test__ = False  # not for pytest

    column: int
    kind: Kind
    lower: Side | None
    upper: Side | None
    low: int
    high: int
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self._shape())

    def _shape(self) -> Shape:
        if self.lower is not None and self.lower == self.upper:
            return Shape.FIXED if self.kind is Kind.BOOL else Shape.EQUAL
        if self.lower is None and self.upper is None:
            return Shape.FIXED if self.low == self.high else Shape.BOTH
        if self.upper is None:
            return Shape.LOW
        return Shape.HIGH if self.lower is None else Shape.BOTH


class Shape(IntEnum):
    """Which bounds of a test a row has to keep: one key for an equality, one or two ends for a range."""

    EQUAL = 0
    """One key, of an attribute worth hashing."""
    FIXED = 1
    """One key that is not worth hashing: a boolean, a text test, an absent attribute."""
    LOW = 2
    HIGH = 3
    BOTH = 4


# what fails soonest first
_ORDER = {Shape.EQUAL: 0, Shape.FIXED: 1, Shape.BOTH: 2, Shape.LOW: 3, Shape.HIGH: 3}


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A derived column, found by the value of its operand, that must be true (or false, if not
    `expected`).
    """

    attribute: int
    operator: Operator
    operand: int
    expected: bool


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """One row: its `tests`, and after them its `texts`."""

    tests: tuple[TestPlan, ...]
    texts: tuple[TextPlan, ...]
    columns: tuple[int, ...] = field(init=False)
    """Of the tests."""
    shapes: tuple[Shape, ...] = field(init=False)
    """Of the tests, and after them of the texts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple([test.column for test in self.tests]))
        shapes = [*[test.shape for test in self.tests], *[Shape.FIXED] * len(self.texts)]
        object.__setattr__(self, "shapes", tuple(shapes))

    @property
    def size(self) -> int:
        return len(self.shapes)


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of all filters of one structure. `variables[o]` is what operand o is made of; None for a
    constant.
    """

    filter: Filter
    boxes: tuple[BoxPlan, ...]
    kinds: tuple[Kind | None, ...]  # None where no box needs the operand
    variables: tuple[Variable | None, ...]
    coded: frozenset[int]  # operands that are strings to compare by code

    def operands_of(self, names: set[str]) -> frozenset[int]:
        """The operands that any of these variables is part of."""
        return frozenset(o for o, v in enumerate(self.variables) if v is not None and v.name in names)


PlanKey = tuple[Filter, tuple[Variable | None, ...]]


def plan_key(filter: Filter) -> tuple[PlanKey, tuple[Scalar | None, ...]]:
    """What tells plans apart, and the constants that a filter gives its operands."""
    structure, operands = _form(filter)
    variables = tuple([o if isinstance(o, Variable) else None for o in operands])
    return (structure, variables), tuple([o.value if isinstance(o, Constant) else None for o in operands])


def make_plan(filter: Filter) -> tuple[Plan, tuple[Scalar | None, ...]] | None:
    """The plan of a filter and its constants; None when it has no normal form under the cap."""
    structure, lifted = _form(filter)
    boxes = structure.boxes()
    if boxes is None:
        return None
    operands = _Operands(list(lifted), lifted=bool(lifted))
    made = tuple([_box(filter.event_type, box, operands) for box in boxes])
    found = operands.operands
    variables = tuple([o if isinstance(o, Variable) else None for o in found])
    kinds = tuple([operands.kinds.get(o) for o in range(len(found))])
    constants = tuple([o.value if isinstance(o, Constant) else None for o in found])
    tests = [test for box in made for test in box.tests if test.kind is Kind.STRING]
    coded = frozenset(side.operand for test in tests for side in (test.lower, test.upper) if side is not None)
    return Plan(filter, made, kinds, variables, coded), constants


def _form(filter: Filter) -> tuple[Filter, tuple[Operand, ...]]:
    """The structure and its operands; or the filter as it is, and none, where constants make for fewer boxes.

    `volume not in (1, 2, 3)` is four gaps between constants, but eight boxes around three variables.
    """
    structure, operands = filter.lift()
    boxes = structure.boxes()
    if boxes is None:
        return filter, ()
    if len(boxes) > 1:
        own = filter.boxes()
        if own is not None and len(own) < len(boxes):
            return filter, ()
    return structure, operands


class _Operands:
    """The operands of a plan by number: those that were lifted, whose variables are numbered from "1" on; or
    of a filter as it is, as they come.
    """

    def __init__(self, operands: list[Operand], *, lifted: bool) -> None:
        self.operands = operands
        self.lifted = lifted
        self.kinds: dict[int, Kind] = {}
        self._numbers: dict[Operand, int] = {}

    def number(self, operand: Operand, kind: Kind) -> int:
        if self.lifted:
            assert isinstance(operand, Variable)
            found = int(operand.name) - 1
        else:
            found = self._numbers.setdefault(operand, len(self.operands))
            if found == len(self.operands):
                self.operands.append(operand)
        self.kinds[found] = kind
        return found


def _box(event_type: EventType, box: Box, operands: _Operands) -> BoxPlan:
    tests: list[TestPlan] = []
    texts: list[TextPlan] = []
    for part in box:
        column, kind = event_type.index(part.attribute), event_type.attributes[part.attribute]
        if isinstance(part, Text):
            number = operands.number(part.operand, kind)
            texts.append(TextPlan(column, part.operator, number, part.expected))
        elif isinstance(part, Absent):
            tests.append(TestPlan(column, kind, None, None, MISSING, MISSING))
        elif operands.lifted:
            made = _shared_tests(part, column, kind)
            operands.kinds.update(dict.fromkeys(made.operands, kind))
            tests += made.tests
        else:
            tests += _tests(part, column, kind, operands)
    tests.sort(key=lambda test: _ORDER[test.shape])
    return BoxPlan(tuple(tests), tuple(texts))


@lru_cache(SHARED)
def _interval(column: int, kind: Kind, lower: Side | None, upper: Side | None) -> TestPlan:
    return TestPlan(column, kind, lower, upper, FIRST, largest_key(kind))


@lru_cache(SHARED)
def _equality(column: int, kind: Kind, operand: int) -> TestPlan:
    side = Side(operand, False)
    return _interval(column, kind, side, side)


def _tests(test: Test, column: int, kind: Kind, operands: _Operands) -> list[TestPlan]:
    if test.nan:
        return [TestPlan(column, kind, None, None, NAN_KEY, NAN_KEY)]
    if not test.lower and not test.upper:
        return [TestPlan(column, kind, None, None, FIRST, LAST)]
    if len(test.lower) == 1 and test.lower == test.upper and not test.lower[0].strict:
        return [_equality(column, kind, operands.number(test.lower[0].operand, kind))]

    def side(bound: Bound) -> Side:
        return Side(operands.number(bound.operand, kind), bound.strict)

    equal = [b for b in test.lower if b in test.upper and not b.strict]
    lowers = [side(b) for b in test.lower if b not in equal]
    uppers = [side(b) for b in test.upper if b not in equal]
    made = [_equality(column, kind, operands.number(b.operand, kind)) for b in equal]
    for i in range(max(len(lowers), len(uppers))):
        low_side = lowers[i] if i < len(lowers) else None
        high_side = uppers[i] if i < len(uppers) else None
        made.append(_interval(column, kind, low_side, high_side))
    return made


@dataclass(frozen=True, slots=True)
class _Made:
    tests: tuple[TestPlan, ...]
    operands: tuple[int, ...]


@lru_cache(SHARED)
def _shared_tests(test: Test, column: int, kind: Kind) -> _Made:
    """The tests of a structure's, whose operands are numbered by their names."""
    operands = _Operands([], lifted=True)
    tests = _tests(test, column, kind, operands)
    return _Made(tuple(tests), tuple(operands.kinds))

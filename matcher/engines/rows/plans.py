"""Plans by number: subscriptions of one structure share a plan, which lives while it has any."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.bounds import Operands, Values, evaluate_column
from covey.matcher.compile.plan import (
    BoxPlan,
    Plan,
    PlanKey,
    SkeletonPlan,
    make_plan,
    plan_key,
    structure_key,
    variables_of,
)
from covey.matcher.compile.tree_plan import OR, TreeShape, make_tree
from covey.matcher.covering.boxes import PartOperand
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engine import IdArray
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.errors import VariableError
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Operand, Variable
from covey.matcher.expressions.values import Family
from covey.matcher.filters.filter import Filter

Write = tuple[int, int, Variable, Kind, bool, int, bool]
"""A bound written in place: box, part (odd: low end), operand, kind, strict; column and past of strings."""

Writes = tuple[tuple[Family | None, ...], tuple[Write, ...]]
"""The families of some variables, and what their values write; plans that write the same share it."""

NONE = -1

_SHARED = 1 << 12  # writes in the cache
_MOST_NAMES = 256  # tuples of variables per plan whose writes are cached


@dataclass(slots=True)
class PlanUse:
    """A plan, compiled on first use, and how many subscriptions have it; `operands` are those of `filter`."""

    filter: Filter
    key: PlanKey
    operands: tuple[PartOperand, ...]
    schema: SchemaColumns
    made: Plan | None = None
    subscriptions: int = 0
    writes: dict[tuple[str, ...], Writes | None] | None = None

    @property
    def plan(self) -> Plan:
        if self.made is None:
            plan_and_operands = make_plan(self.filter, self.key, self.schema)
            assert plan_and_operands is not None
            self.made = plan_and_operands[0]
        return self.made

    def in_place(self, values: Mapping[str, object]) -> Writes | None:
        """What these values write in place; None where a row moves or a variable is unknown."""
        names = tuple(values)
        if self.writes is None:
            self.writes = {}
        if names not in self.writes:
            if any(self.plan.filter.family(name) is None for name in names):
                return None
            if len(self.writes) == _MOST_NAMES:  # in some of the orders that names have
                self.writes.clear()
            changed = self.plan.operands_of(set(names))
            in_place = not any(moves(box, changed) for box in self.plan.boxes)
            self.writes[names] = _canonical(writes_of(self.plan, names)) if in_place else None
        return self.writes[names]


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """Filters by number, with the plan and operands of each; filters matched as trees have the plan NONE."""

    members: list[int]
    plans: list[int]
    operands: list[tuple[PartOperand, ...]]


class PlanTable:
    def __init__(self, schema: SchemaColumns) -> None:
        self._schema = schema
        self._numbers: dict[PlanKey, int] = {}
        self._uses: list[PlanUse | None] = []
        self._free: list[int] = []

    def __getitem__(self, number: int) -> PlanUse:
        use = self._uses[number]
        assert use is not None
        return use

    def __len__(self) -> int:
        """One more than the highest number."""
        return len(self._uses)

    def find(self, filter: Filter) -> tuple[int, tuple[PartOperand, ...]] | None:
        """The number of a filter's plan, and its operands; None if it is to be matched as a tree."""
        key, operands = plan_key(filter)
        number = self._numbers.get(key)
        if number is None:
            plan: Plan | None = None
            mine: tuple[PartOperand, ...] = operands
            if self._is_tree(filter, key):
                return None
            if isinstance(key[0], Filter):
                plan_and_operands = make_plan(filter, key, self._schema)
                if plan_and_operands is None:
                    return None
                plan, mine = plan_and_operands
            number = self._enter(PlanUse(filter, key, mine, self._schema, plan))
        return number, operands or self[number].operands

    def _is_tree(self, filter: Filter, key: PlanKey) -> bool:
        """Whether a filter without a plan is to be matched as a tree although it has boxes."""
        return False

    def groups(self, filters: Sequence[Filter]) -> Iterator[PlanGroup]:
        """Groups of filters whose plans differ only in the columns of their tests."""
        groups: dict[object, PlanGroup] = {}
        for member, filter in enumerate(filters):
            numbered = self.find(filter)
            if numbered is None:
                key: object = None
                numbered = NONE, ()
            else:
                use = self[numbered[0]]
                structure, _, variables, told_apart = use.key
                if isinstance(structure, SkeletonPlan) and structure.is_plain:
                    key = structure, variables, told_apart
                else:
                    has_texts = any(box.texts for box in use.plan.boxes)
                    key = member if has_texts else numbered[0], has_texts
            group = groups.get(key)
            if group is None:
                group = groups[key] = PlanGroup([], [], [])
            group.members.append(member)
            group.plans.append(numbered[0])
            group.operands.append(numbered[1])
        yield from groups.values()

    def forget_unused(self, numbers: Iterable[int]) -> None:
        for number in set(numbers) - {NONE}:
            use = self._uses[number]
            if use is not None and use.subscriptions == 0:
                self.release(number, 0)

    def _enter(self, use: PlanUse) -> int:
        number = self._free.pop() if self._free else len(self._uses)
        if number == len(self._uses):
            self._uses.append(None)
        self._uses[number] = use
        self._numbers[use.key] = number
        return number

    def release(self, number: int, subscriptions: int) -> None:
        """Subtract subscriptions of a plan; without any, the plan is removed."""
        use = self[number]
        use.subscriptions -= subscriptions
        if use.subscriptions == 0:
            del self._numbers[use.key]
            self._uses[number] = None
            self._free.append(number)


@lru_cache(_SHARED)
def _canonical(writes: Writes) -> Writes:
    """One object for equal writes, so that identity compares them."""
    return writes


def moves(plan: BoxPlan, changed: frozenset[int]) -> bool:
    """Whether new values of these operands change which columns a row tests."""
    return any(text.operand in changed for text in plan.texts)


def writes_of(plan: Plan, names: Collection[str]) -> Writes:
    """What values of these variables write in boxes whose rows stay."""
    families = tuple([plan.filter.family(name) for name in names])
    changed = plan.operands_of(set(names))
    return families, tuple(_changes(plan, changed))


def _changes(plan: Plan, changed: frozenset[int]) -> Iterator[Write]:
    for box, box_plan in enumerate(plan.boxes):
        if moves(box_plan, changed):
            continue
        for t, test in enumerate(box_plan.tests):
            for side, part in ((test.lower, 1 + 2 * t), (test.upper, 2 + 2 * t)):
                if side is not None and side.operand in changed:
                    variable = plan.variables[side.operand]
                    assert variable is not None
                    column = box_plan.columns[t] if test.kind is Kind.STRING else NONE
                    yield box, part, variable, test.kind, side.strict, column, side.past


class TreePlans(PlanTable):
    """Has the shapes of trees by plan; `version` counts the trees ever added."""

    def __init__(self, schema: SchemaColumns) -> None:
        super().__init__(schema)
        self.shapes: dict[int, TreeShape] = {}
        self.version = 0

    def find(self, filter: Filter) -> tuple[int, tuple[Operand, ...]]:
        skeleton, columns, operands = structure_key(filter)
        key: PlanKey = (skeleton, columns, variables_of(operands), False)
        number = self._numbers.get(key)
        if number is None:
            plan, shape = make_tree(filter, key[2], self._schema)
            number = self._enter(PlanUse(filter, key, operands, self._schema, plan))
            self.shapes[number] = shape
            self.version += 1
        return number, operands

    def release(self, number: int, subscriptions: int) -> None:
        super().release(number, subscriptions)
        if self._uses[number] is None:
            del self.shapes[number]


def show_tree(plans: TreePlans, number: int, lines: list[str]) -> list[str]:
    """Replace the first line of an explanation by the plan's tree."""
    if plans[number].plan.boxes:
        tree, _ = _show(plans.shapes[number].words.tolist(), 0)
        lines[0] = f"  {tree}, of these predicates:"
    return lines


def _show(words: list[int], at: int) -> tuple[str, int]:
    """The node at a word, with leaves numbered from 1, and the next word."""
    word = words[at]
    at += 1
    if word >= 0:
        return str(word + 1), at
    operator, end = (-1 - word) & 1, at + ((-1 - word) >> 1)
    parts = []
    while at < end:
        part, at = _show(words, at)
        parts.append(part)
    return f"({(' or ' if operator == OR else ' and ').join(parts)})", end


@dataclass(frozen=True, slots=True)
class Addition:
    """Subscriptions to add: plans that differ in columns alone, which plan each has, values of operands."""

    plans: list[int]
    of_plan: Numbers
    ids: IdArray
    interfaces: npt.NDArray[np.int64]
    operands: Operands


def operands_of(
    plan: Plan,
    operand_list: Sequence[PartOperand | None],
    values: Mapping[str, Values],
    only: frozenset[int] | None,
) -> Operands:
    """Values by number of operand, of all operands or `only` these."""
    operands: Operands = {}
    for number, kind in enumerate(plan.kinds):
        if kind is None or (only is not None and number not in only):
            continue
        operand = operand_list[number]
        assert operand is not None
        value: Values = (
            evaluate_column(operand, kind, values[operand.name])
            if isinstance(operand, Variable)
            else operand.value
        )
        operands[number] = value
    return operands


def check_names(plan: Plan, subscription_id: int, values: Mapping[str, object]) -> None:
    """`VariableError` for an unknown variable, without the plan's filter: its constants may be another's."""
    for name in values:
        if name not in plan.filter.variables:
            known = ", ".join(f"${variable}" for variable in plan.filter.variables) or "none"
            raise VariableError(f"variable ${name} is unknown: subscription {subscription_id} has {known}")

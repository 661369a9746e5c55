"""The plans of an engine by number, shared by all subscriptions of one structure, kept while there are
any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from covey.matcher.event_type import Kind
from covey.matcher.expression import Scalar, Variable
from covey.matcher.filter import Filter
from covey.matcher.plan import BoxPlan, Plan, PlanKey, make_plan, plan_key

Write = tuple[int, int, Variable, Kind, bool, bool]
"""A bound written in place: box, part of the row, operand, kind, strict, and whether it is a low end."""

Constants = tuple[Scalar | None, ...]


@dataclass(slots=True)
class Shared:
    """A plan and its subscriptions. `constants` are those of the filter it was made for."""

    plan: Plan
    key: PlanKey
    constants: Constants
    users: int = 0
    writes: dict[tuple[str, ...], list[Write] | None] = field(default_factory=dict)

    def in_place(self, values: Mapping[str, object]) -> list[Write] | None:
        """What values of these variables write in place; None where a row moves, or a variable is unknown."""
        names = tuple(values)
        if names not in self.writes:
            changed = self.plan.operands_of(set(names))
            known = set(names) <= set(self.plan.filter.variables)
            still = not changed & self.plan.coded and not any(moves(box, changed) for box in self.plan.boxes)
            self.writes[names] = list(_changes(self.plan, changed)) if known and still else None
        return self.writes[names]


class Plans:
    """Plans by number."""

    def __init__(self) -> None:
        self._numbers: dict[PlanKey, int] = {}
        self._shared: list[Shared | None] = []
        self._free: list[int] = []

    def __getitem__(self, number: int) -> Shared:
        found = self._shared[number]
        assert found is not None
        return found

    def find(self, filter: Filter) -> tuple[int, Constants] | None:
        """The number of a filter's plan and the constants among its operands; None where it has no boxes."""
        key, constants = plan_key(filter)
        number = self._numbers.get(key)
        if number is not None:
            return number, constants or self[number].constants
        made = make_plan(filter)
        if made is None:
            return None
        plan, constants = made
        number = self._free.pop() if self._free else len(self._shared)
        if number == len(self._shared):
            self._shared.append(None)
        self._numbers[key] = number
        self._shared[number] = Shared(plan, key, constants)
        return number, constants

    def release(self, number: int, users: int) -> None:
        """So many subscriptions of a plan are gone."""
        shared = self[number]
        shared.users -= users
        if shared.users == 0:
            del self._numbers[shared.key]
            self._shared[number] = None
            self._free.append(number)


def moves(plan: BoxPlan, changed: frozenset[int]) -> bool:
    """Whether new values of these operands change which columns a row tests."""
    return any(text.operand in changed for text in plan.texts)


def _changes(plan: Plan, changed: frozenset[int]) -> Iterator[Write]:
    for box, box_plan in enumerate(plan.boxes):
        for t, test in enumerate(box_plan.tests):
            for side, part in ((test.lower, 1 + 2 * t), (test.upper, 2 + 2 * t)):
                if side is not None and side.operand in changed:
                    variable = plan.variables[side.operand]
                    assert variable is not None
                    yield box, part, variable, test.kind, side.strict, part % 2 == 1

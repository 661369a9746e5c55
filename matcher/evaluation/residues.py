"""Residues with values, by number: the plan of each, and the contents of its slots.

Each plan has a table with a line per residue: the literals of its slots (twice the number of a call, plus one
if it is expected to be true) and its operands. Calls are shared by their keys. Invariant: a call is in the
table exactly while a residue has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.bound_calls import BoundCall, is_stateful
from covey.matcher.evaluation.residue_plans import Node, Plan, Template, plan_of, template_of
from covey.matcher.expressions.calls import kinds_of
from covey.matcher.expressions.expression import Call, Scalar, Variable
from covey.matcher.expressions.values import affine, normal
from covey.matcher.filters.filter import Filter
from covey.matcher.operators.table import find

Numbers = npt.NDArray[np.int64]
Values = Mapping[str, Scalar | Sequence[Scalar]]


class PlanLines:
    """The residues of one plan: literals, int64[lines, slots], and operands, object[lines, operands]."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.literals = np.zeros((0, plan.slots), np.int64)
        self.operands = np.zeros((0, plan.operands), object)
        self.numbers: Numbers = np.zeros(0, np.int64)  # of residues by line, -1 for a free one
        self._free: list[int] = []

    def allocate(self, count: int) -> Numbers:
        missing = count - len(self._free)
        if missing > 0:
            top = len(self.numbers)
            room = max(missing, top // 4, 4)
            self.literals = np.concatenate([self.literals, np.zeros((room, self.plan.slots), np.int64)])
            self.operands = np.concatenate([self.operands, np.zeros((room, self.plan.operands), object)])
            self.numbers = np.concatenate([self.numbers, np.full(room, -1, np.int64)])
            self._free += range(top + room - 1, top - 1, -1)
        lines = self._free[len(self._free) - count :][::-1]
        del self._free[len(self._free) - count :]
        return np.array(lines, np.int64)

    def free(self, lines: Numbers) -> None:
        self.numbers[lines] = -1
        self.operands[lines] = 0
        self._free += lines.tolist()

    def __len__(self) -> int:
        return len(self.numbers) - len(self._free)

    @property
    def nbytes(self) -> int:
        return self.literals.nbytes + self.operands.nbytes + self.numbers.nbytes


class Residues:
    """The residues of an engine, or of a user of filters without one; `version` counts changes."""

    def __init__(self) -> None:
        self.version = 0
        self._name = uuid4().hex
        """Part of the keys of calls with state: others that get the batch have seen other events."""
        self.calls: list[BoundCall | None] = []
        self.plans: list[PlanLines | None] = []
        self.plan_of: Numbers = np.zeros(0, np.int64)  # by residue
        self.line_of: Numbers = np.zeros(0, np.int64)
        self._free: list[int] = []
        self._uses: list[int] = []
        self._free_calls: list[int] = []
        self._call_numbers: dict[int, int] = {}
        self._plan_numbers: dict[Node, int] = {}
        self._free_plans: list[int] = []
        self._templates: dict[Filter, Template] = {}

    def __len__(self) -> int:
        return len(self.plan_of) - len(self._free)

    def add(self, filter: Filter, values: Mapping[str, Scalar]) -> int:
        """The number of an added residue, of a filter with calls and with checked values."""
        return int(self.add_many(filter, values, 1)[0])

    def add_many(self, filter: Filter, values: Values, count: int) -> Numbers:
        """Add residues of one filter; each variable has a checked value for all, or a sequence of values."""
        numbers = self._allocate(count)
        self._fill(numbers, filter, values)
        return numbers

    def replace(self, numbers: Numbers, filter: Filter, values: Values) -> None:
        """Give residues of one filter other values, all of them."""
        old = [(self.plan_of[number], self.line_of[number]) for number in numbers.tolist()]
        self._fill(numbers, filter, values)
        for plan, line in old:
            self._release(int(plan), np.array([line]))

    def remove(self, numbers: Numbers) -> None:
        plans = self.plan_of[numbers]
        for plan in np.unique(plans).tolist():
            self._release(plan, self.line_of[numbers[plans == plan]])
        self.plan_of[numbers] = -1
        self._free += numbers.tolist()
        self.version += 1

    def calls_of(self, number: int) -> list[tuple[BoundCall, bool]]:
        """The calls of a residue, and whether each is expected to be true."""
        lines = self.lines(int(self.plan_of[number]))
        literals = lines.literals[self.line_of[number]].tolist()
        return [(self.call(literal), bool(literal & 1)) for literal in literals]

    def are_late(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        plans, of_each = np.unique(self.plan_of[numbers], return_inverse=True)
        return np.array([self.lines(plan).plan.is_late for plan in plans.tolist()], np.bool_)[of_each]

    def lines(self, plan: int) -> PlanLines:
        lines = self.plans[plan]
        assert lines is not None
        return lines

    def call(self, literal: int) -> BoundCall:
        call = self.calls[literal >> 1]
        assert call is not None
        return call

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without Python's calls."""
        return (
            self.plan_of.nbytes
            + self.line_of.nbytes
            + sum(lines.nbytes for lines in self.plans if lines is not None)
        )

    # --- filling ----------------------------------------------------------------------------------

    def _allocate(self, count: int) -> Numbers:
        missing = count - len(self._free)
        if missing > 0:
            top = len(self.plan_of)
            room = max(missing, top // 4, 4)
            self.plan_of = np.concatenate([self.plan_of, np.full(room, -1, np.int64)])
            self.line_of = np.concatenate([self.line_of, np.zeros(room, np.int64)])
            self._free += range(top + room - 1, top - 1, -1)
        chosen = self._free[len(self._free) - count :][::-1]
        del self._free[len(self._free) - count :]
        return np.array(chosen, np.int64)

    def _fill(self, numbers: Numbers, filter: Filter, values: Values) -> None:
        template = self._template(filter)
        count = len(numbers)
        columns = [_operand_column(template, n, values, count) for n in range(len(template.operands))]
        stateful = any(map(is_stateful, template.calls))
        owners = _owners(self._name, filter, values, count) if stateful else None
        plan = self._plan(template)
        lines = self.lines(plan)
        places = lines.allocate(count)
        for slot, (call, operands) in enumerate(zip(template.calls, template.of_calls, strict=True)):
            own = owners if owners is not None and is_stateful(call) else None
            calls = self._enter_calls(call, [columns[n] for n in operands], own, count)
            lines.literals[places, slot] = 2 * calls + call.expected
        for place, n in enumerate(template.kept):
            column = columns[n]
            lines.operands[places, place] = _objects(column) if isinstance(column, list) else column
        lines.numbers[places] = numbers
        self.plan_of[numbers], self.line_of[numbers] = plan, places
        self.version += 1

    def _template(self, filter: Filter) -> Template:
        template = self._templates.get(filter)
        if template is None:
            residue = filter.residue
            assert residue is not None
            template = template_of(residue, kinds_of(filter.event_type.attributes, filter.calls))
            if len(self._templates) >= _CACHED:
                self._templates.clear()
            self._templates[filter] = template
        return template

    def _plan(self, template: Template) -> int:
        number = self._plan_numbers.get(template.node)
        if number is None:
            number = self._free_plans.pop() if self._free_plans else len(self.plans)
            if number == len(self.plans):
                self.plans.append(None)
            self._plan_numbers[template.node] = number
            self.plans[number] = PlanLines(plan_of(template))
        return number

    def _enter_calls(self, call: Call, columns: list[Any], owners: list[str] | None, count: int) -> Numbers:
        """The numbers of a call with these values, for each residue."""
        if owners is None and not any(isinstance(column, list) for column in columns):
            return np.full(count, self._enter(BoundCall(call, columns), count), np.int64)
        each = [column if isinstance(column, list) else [column] * count for column in columns]
        numbers: dict[tuple[Any, ...], int] = {}
        uses: dict[tuple[Any, ...], int] = {}
        # Of an unknown operator a value may be true or 1, which are equal in Python.
        types = [list(map(type, column)) for column in (each if find(call.operator) is None else ())]
        each.append([""] * count if owners is None else owners)
        keys = list(zip(*each, *types, strict=True))
        for key in keys:
            uses[key] = uses.get(key, 0) + 1
        owner = len(columns)
        for key, used in uses.items():
            numbers[key] = self._enter(BoundCall(call, key[:owner], key[owner]), used)
        return np.array([numbers[key] for key in keys], np.int64)

    def _enter(self, call: BoundCall, uses: int) -> int:
        number = self._call_numbers.get(call.key)
        if number is None:
            if self._free_calls:
                number = self._free_calls.pop()
                self.calls[number] = call
            else:
                number = len(self.calls)
                self.calls.append(call)
                self._uses.append(0)
            self._call_numbers[call.key] = number
        self._uses[number] += uses
        return number

    def _release(self, plan: int, lines: Numbers) -> None:
        table = self.lines(plan)
        calls, counts = np.unique(table.literals[lines] >> 1, return_counts=True)
        for number, count in zip(calls.tolist(), counts.tolist(), strict=True):
            self._uses[number] -= count
            if not self._uses[number]:
                del self._call_numbers[self.call(2 * number).key]
                self.calls[number] = None
                self._free_calls.append(number)
        table.free(lines)
        if not len(table):
            del self._plan_numbers[table.plan.node]
            self.plans[plan] = None
            self._free_plans.append(plan)


_CACHED = 4096


def _operand_column(template: Template, number: int, values: Values, count: int) -> Any:
    operand, kind = template.operands[number], template.kinds[number]
    if not isinstance(operand, Variable):
        return operand.value
    value = values[operand.name]
    if not isinstance(value, list):
        return normal(kind, affine(operand, value))  # type: ignore[arg-type]
    if len(value) == 1 == count:
        return normal(kind, affine(operand, value[0]))
    return [normal(kind, affine(operand, element)) for element in value]


def _owners(name: str, filter: Filter, values: Values, count: int) -> list[str]:
    owners = []
    for i in range(count):
        mine = {name: value[i] if isinstance(value, list) else value for name, value in values.items()}
        owners.append(f"{name} {filter.substitute(mine)}")
    return owners


def _objects(column: list[Scalar]) -> npt.NDArray[Any]:
    array = np.empty(len(column), object)
    array[:] = column
    return array

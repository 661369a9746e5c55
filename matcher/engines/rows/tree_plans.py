"""The plans of an engine that matches filters as trees, by number, and the shapes of their trees."""

from __future__ import annotations

from covey.matcher.compile.plan import PlanKey, structure_key, variables_of
from covey.matcher.compile.tree_plan import OR, TreeShape, make_tree
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.rows.plans import PlanTable, PlanUse
from covey.matcher.expressions.expression import Operand
from covey.matcher.filters.filter import Filter


class TreePlans(PlanTable):
    """Plans by number, and the shapes of their trees."""

    def __init__(self, schema: SchemaColumns) -> None:
        super().__init__(schema)
        self.shapes: dict[int, TreeShape] = {}
        self.version = 0

    def find(self, filter: Filter) -> tuple[int, tuple[Operand, ...]]:
        """The number of a filter's plan and its operands."""
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
    """An explanation of a plan's leaves, below its tree."""
    if plans[number].plan.boxes:
        tree, _ = _show(plans.shapes[number].words.tolist(), 0)
        lines[0] = f"  {tree}, of these predicates:"
    return lines


def _show(words: list[int], at: int) -> tuple[str, int]:
    """The node at a word with its leaves counted from 1, and the next word."""
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

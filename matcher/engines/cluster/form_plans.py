"""The plans of a cluster engine, which chooses between normal form and tree (`compile/form_model.py`).

The choice is made when a structure gets its first subscription, by what the engine knows of events then, and
holds while it has any.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.matcher.compile import form_model
from covey.matcher.compile.form_model import PASSED, Choice
from covey.matcher.compile.plan import (
    PlanKey,
    Shape,
    SkeletonPlan,
    make_plan,
    plan_key,
    structure_key,
    variables_of,
)
from covey.matcher.compile.tree_plan import make_tree
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.rows.plans import PlanTable
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import MISSING
from covey.matcher.filters.filter import Filter

MOST_CHOICES = 4096
"""The most structures whose choice is kept."""
FEWEST_EVENTS = 64
"""Sampled events from which on the share of an equality is theirs."""


class FormPlans(PlanTable):
    """Plans of filters in normal form. `sample`, which the engine sets, gives the keys of sampled events on a
    column.
    """

    sample: Callable[[int], Keys]

    def __init__(self, schema: SchemaColumns) -> None:
        super().__init__(schema)
        self._choices: dict[PlanKey, Choice] = {}

    def _is_tree(self, filter: Filter, key: PlanKey) -> bool:
        structure = key[0]
        if isinstance(structure, SkeletonPlan):
            if all(len(box.shapes) <= 1 for box in structure.boxes) or len(structure.boxes) <= 1:
                return False
        elif isinstance(structure, Filter):
            boxes = structure.boxes()
            if boxes is None or len(boxes) <= 1 or all(len(box) <= 1 for box in boxes):
                return False  # there is no choice
        return self.choice(filter).is_tree

    def choice(self, filter: Filter) -> Choice:
        """The costs of a filter in both forms, and which is chosen."""
        key, _ = plan_key(filter)
        known = self._choices.get(key)
        if known is None:
            if len(self._choices) >= MOST_CHOICES:
                self._choices.clear()
            known = self._choices[key] = self._choose(filter, key)
        return known

    def _choose(self, filter: Filter, key: PlanKey) -> Choice:
        plan_and_operands = make_plan(filter, key, self._schema)
        normal = None
        if plan_and_operands is not None:
            normal = form_model.normal_form(plan_and_operands[0].boxes, self._schema.kinds, self.passed)
        plan, shape = make_tree(filter, variables_of(structure_key(filter)[2]), self._schema)
        nothing = form_model.Cost(0.0, 0.0)
        tree = (
            form_model.tree(shape.words.tolist(), plan.boxes[0], self._schema.kinds, self.passed)
            if plan.boxes
            else nothing
        )
        if plan_and_operands is None:
            return Choice(form_model.conjunction_count(filter.expression), None, tree)
        return Choice(len(plan_and_operands[0].boxes), normal, tree)

    def passed(self, shape: int, column: int) -> float:
        """The part of the events that pass a test of a shape: of an equality, how often two events agree."""
        prior = PASSED[Shape(shape)]
        if shape != Shape.EQUAL or column < 0:
            return prior
        keys = self.sample(column)
        is_string = self._schema.kinds.get(column) is Kind.STRING
        keys = (
            keys[keys > 0] if is_string else keys[keys != MISSING]
        )  # no string without a number is a constant
        if len(keys) < FEWEST_EVENTS:
            return prior
        _, counts = np.unique(keys, return_counts=True)
        return float(((counts / len(keys)) ** 2).sum())

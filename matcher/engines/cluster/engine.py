"""The cluster engine: subscriptions by access predicate, other tests columnwise (Fabret et al. 2001, 2-4).

Equalities, several at once, and cells of ranges are hashed; a cost model chooses the attributes (`tuning/`).
Invariant: the configuration decides how fast an answer comes, never which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Unpack

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
from covey.matcher.encoding.schema_columns import MOST_TEXTS, SchemaColumns
from covey.matcher.engines.cluster.store import ClusterStore
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import PlanTable
from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.evaluator import EvaluationOptions
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import MISSING
from covey.matcher.filters.filter import Filter

MOST_CHOICES = 4096  # structures whose choice is cached
FEWEST_EVENTS = 64  # sampled events from which on the share of an equality is measured


class FormPlans(PlanTable):
    """Plans of filters in normal form; the engine sets `sample`: the keys of sampled events on a column."""

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
        """The costs of a filter in both forms, and the form chosen."""
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
        """The fraction of events that passes a test of a shape; for equality, how often two events agree."""
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


MOST_THREADS = 256
FORMS = ("model", "normal")


class ClusterEngine(RowEngine):
    """The production engine. `configuration` is one of `configuration.KINDS`; `threads` share the events of a
    batch; `forms` is "model" (normal form or tree, by cost) or "normal" (a tree only without normal form);
    `CoveyError` for other values. `texts` is the most distinct constants of `contains` and `not suffix`, each
    of which adds 8 bytes to an event's keys (`CapacityError` beyond it).
    """

    name: ClassVar[str] = "cluster"
    store: ClusterStore

    def __init__(
        self,
        event_type: EventType,
        *,
        configuration: str = "adaptive",
        threads: int = 1,
        texts: int = MOST_TEXTS,
        forms: str = "model",
        **options: Unpack[EvaluationOptions],
    ) -> None:
        if forms not in FORMS:
            raise CoveyError(f"forms {forms!r}: expected one of {', '.join(FORMS)}")
        if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
            raise CoveyError(f"threads {threads!r}: expected 1 to {MOST_THREADS}")
        self._policy, self._threads = Policy.of(configuration), threads
        self._configuration, self._forms = configuration, forms
        super().__init__(event_type, **options)
        self.columns.most_texts = texts

    def empty(self) -> ClusterEngine:
        return ClusterEngine(
            self.event_type,
            configuration=self._configuration,
            threads=self._threads,
            texts=self.columns.most_texts,
            forms=self._forms,
        )

    def _new_plans(self) -> PlanTable:
        if self._forms == "normal":
            return super()._new_plans()
        return FormPlans(self.columns.schema)

    def form(self, filter: Filter) -> str:
        choice = self.plans.choice(filter.gate) if isinstance(self.plans, FormPlans) else None
        return choice.reason if choice is not None and choice.conjunctions > 1 else ""

    def _new_store(self) -> ClusterStore:
        store = ClusterStore(self.event_type, self._policy, self._threads)
        if isinstance(self.plans, FormPlans):  # of the store, not of the engine: that were a reference cycle
            self.plans.sample = lambda column: store.placement.events.of_column(column)
        return store

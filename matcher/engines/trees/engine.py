"""The engine of trees: filters as they are, each evaluated only on the events that its access rows let
through. The production engine has one for the filters that it does not match in normal form.
"""

from __future__ import annotations

from typing import ClassVar

from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import TreePlans, show_tree
from covey.matcher.engines.trees.tree_store import TreeStore
from covey.matcher.events.batch import EventBatch


class TreeEngine(RowEngine):
    """Trees behind access rows, whatever their normal form."""

    name: ClassVar[str] = "trees"
    plans: TreePlans
    store: TreeStore

    def _new_plans(self) -> TreePlans:
        return TreePlans(self.columns.schema)

    def _new_store(self) -> TreeStore:
        return TreeStore(self.event_type, self.plans)

    def _explain(self, number: int, first: int, event: EventBatch) -> list[str]:
        return show_tree(self.plans, number, super()._explain(number, first, event))

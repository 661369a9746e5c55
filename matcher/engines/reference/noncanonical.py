"""The non-canonical engine (Bittner and Hinze 2005): filters as they are, with no normal form and so without
a cap.

Predicates are indexed and counted as in the counting engine, but a subscription is one row whatever its
filter; when as many of its leaves hold as its tree needs at the very least, the tree is evaluated. Plans
share the shape of a tree; a row's predicates are its leaves, in order.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import noncanonical_kernels as k
from covey.matcher.engines.reference.counting import CountingStore
from covey.matcher.engines.reference.reference_store import Tests
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import TreePlans, show_tree
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType


class NoncanonicalStore(CountingStore):
    """Rows in the lists of the leaves of their trees."""

    def __init__(self, event_type: EventType, plans: TreePlans) -> None:
        self._plans = plans
        self._version = -1
        super().__init__(event_type)

    def _need(self, tests: Tests) -> Numbers:
        least = np.zeros(max(self._plans.shapes, default=0) + 1, dtype=np.int64)
        for number, shape in self._plans.shapes.items():
            least[number] = max(shape.least, 1)
        return np.minimum(least[self.plans_of(tests.rows)], tests.sizes)

    def begin_match(self, keys: Keys) -> None:
        super().begin_match(keys)
        if self._version != self._plans.version:
            self._version = self._plans.version
            shapes = self._plans.shapes
            top = max(shapes, default=0) + 1
            starts, decided = np.zeros(top, dtype=np.int32), np.zeros(top, dtype=np.bool_)
            words, size = [np.zeros(1, dtype=np.int32)], 1
            for number, shape in shapes.items():
                starts[number], decided[number] = size, shape.all_of_them
                words.append(shape.words)
                size += len(shape.words)
            depth = max((shape.depth for shape in shapes.values()), default=0) + 1
            stack = np.zeros((depth, 2), dtype=np.int64)
            self._trees = k.Trees(self.signatures.plans, np.concatenate(words), starts, decided, stack)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        trees = self._trees._replace(plans=self.signatures.plans)
        done: int = k.evaluate_events(
            self.rows(), self._counted, trees, self._index, keys, start, self._most_matches(), offsets, found
        )
        return done

    def structure_bytes(self) -> dict[str, int]:
        words = sum(shape.words.nbytes for shape in self._plans.shapes.values())
        return super().structure_bytes() | {"trees": words}

    def render(self, columns: Columns) -> list[str]:
        shapes = list(self._plans.shapes.values())
        plain = sum(shape.all_of_them for shape in shapes)
        return [
            *super().render(columns),
            f"{len(shapes)} shapes of trees, {plain} of them plain conjunctions",
        ]


class NoncanonicalEngine(RowEngine):
    """Counts leaves that hold, and evaluates trees; see the module."""

    name: ClassVar[str] = "noncanonical"
    plans: TreePlans
    store: NoncanonicalStore

    def _new_plans(self) -> TreePlans:
        return TreePlans(self.columns.schema)

    def _new_store(self) -> NoncanonicalStore:
        return NoncanonicalStore(self.event_type, self.plans)

    def _explain(self, number: int, first: int, event: EventBatch) -> list[str]:
        return show_tree(self.plans, number, super()._explain(number, first, event))

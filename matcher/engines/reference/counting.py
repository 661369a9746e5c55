"""The counting engine (Yan and Garcia-Molina; Pereira et al.; Bittner and Hinze 2005, section 2.2), and the
non-canonical one (Bittner and Hinze 2005).

Phase one finds the predicates that an event satisfies, phase two counts them per subscription. The
non-canonical engine counts the leaves of filters as they are, so without a cap, one row per subscription; it
evaluates a tree once the tree's least number of leaves holds. Invariant: a row's predicates are its leaves,
in order.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import counting_kernels as k
from covey.matcher.engines.reference.reference_store import (
    ReferenceStore,
    Tests,
    index_bytes,
    index_predicates,
)
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import TreePlans, show_tree
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType


class CountingStore(ReferenceStore):
    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        self._index, ranks = index_predicates(tests, self)
        need = self._need(tests).astype(np.uint16)
        self._counted = k.Counted(
            starts=np.searchsorted(np.sort(ranks), np.arange(len(self._index.edges) + 1)),
            places=tests.owners[np.argsort(ranks, kind="stable")].astype(np.int32),
            need=need,
            left=np.zeros_like(need),
            always=np.flatnonzero(tests.sizes == 0),
        )
        return tests.rows.astype(np.int32)

    def _need(self, tests: Tests) -> Numbers:
        return tests.sizes

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        done: int = k.count_events(
            self.rows(), self._counted, self._index, keys, start, self._most_matches(), offsets, found
        )
        return done

    def structure_bytes(self) -> dict[str, int]:
        counted = self._counted
        return {
            **super().structure_bytes(),
            "predicate order": index_bytes(self._index),
            "predicate-subscription table": counted.places.nbytes + counted.starts.nbytes,
            "counts": counted.need.nbytes + counted.left.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        return [self.summary()]


class CountingEngine(RowEngine):
    name: ClassVar[str] = "counting"

    def _new_store(self) -> CountingStore:
        return CountingStore(self.event_type)


class NoncanonicalStore(CountingStore):
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
    name: ClassVar[str] = "noncanonical"
    plans: TreePlans
    store: NoncanonicalStore

    def _new_plans(self) -> TreePlans:
        return TreePlans(self.columns.schema)

    def _new_store(self) -> NoncanonicalStore:
        return NoncanonicalStore(self.event_type, self.plans)

    def _explain(self, number: int, first: int, event: EventBatch) -> list[str]:
        return show_tree(self.plans, number, super()._explain(number, first, event))

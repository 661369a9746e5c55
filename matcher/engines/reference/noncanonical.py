"""The non-canonical engine (Bittner and Hinze 2005): filters as they are, with no normal form and so without
a cap.

Predicates are indexed and counted as in the counting engine, but a subscription is one row whatever its
filter; when as many of its leaves hold as its tree needs at the very least, the tree is evaluated. The
papers' trees carry predicate numbers in their leaves; here plans share the shape of a tree, and a row's
links, which unsubscription needs anyway, are its leaves. Invariant: a row's links are the leaves of its
plan's tree, in order.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import noncanonical_kernels as k
from covey.matcher.engines.reference.counting import CountingStore
from covey.matcher.engines.rows.arrays import Numbers, grown
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.tree_plans import TreePlans, show_tree
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType

_BYTE = 255


class NoncanonicalStore(CountingStore):
    """Rows in the lists of the leaves of their trees."""

    def __init__(self, event_type: EventType, plans: TreePlans) -> None:
        super().__init__(event_type)
        self._plans = plans
        self._version = -1
        self._evaluating = False
        self._trees = k.Trees(
            plans=self.signatures.plans,
            shapes=np.zeros(1, dtype=np.int32),
            starts=np.zeros(1, dtype=np.int32),
            decided=np.zeros(1, dtype=np.bool_),
            true=np.zeros(self.predicates.capacity, dtype=np.int64),
            stack=np.zeros((1, 2), dtype=np.int64),
        )

    def _needs(self, rows: Numbers, tests: int) -> None:
        shape = self._plans.shapes[self.plan_of(int(rows[0]))]
        self._need[rows] = min(max(shape.least, 1), _BYTE)

    def _prepare(self) -> None:
        super()._prepare()
        self._trees = self._trees._replace(plans=self.signatures.plans)
        if self._version != self._plans.version:
            self._version = self._plans.version
            shapes = self._plans.shapes
            top = max(shapes, default=0) + 1
            starts, decided = np.zeros(top, dtype=np.int32), np.zeros(top, dtype=np.bool_)
            words: list[npt.NDArray[np.int32]] = [np.zeros(1, dtype=np.int32)]
            size = 1
            for number, shape in shapes.items():
                starts[number] = size
                decided[number] = shape.all_of_them and shape.least <= _BYTE
                words.append(shape.words)
                size += len(shape.words)
            self._evaluating = not all(decided[number] for number in shapes)
            depth = max((shape.depth for shape in shapes.values()), default=0) + 1
            self._trees = self._trees._replace(
                shapes=np.concatenate(words),
                starts=starts,
                decided=decided,
                stack=np.zeros((depth, 2), dtype=np.int64),
            )
        if len(self._trees.true) < self.predicates.capacity:
            self._trees = self._trees._replace(true=grown(self._trees.true, self.predicates.capacity))

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        hits, spans = self.predicates.buffers()
        done: int = k.evaluate_events(
            self.predicates.arrays,
            self._lists,
            self._order,
            self._trees,
            self._evaluating,
            self._links,
            self.arrays.rows,
            self._need[: self.row_top],
            self._left,
            keys,
            start,
            hits,
            spans,
            offsets,
            found,
        )
        return done

    def structure_bytes(self) -> dict[str, int]:
        t = self._trees
        return super().structure_bytes() | {
            "trees": t.shapes.nbytes + t.starts.nbytes + t.decided.nbytes,
            "satisfied predicates": t.true.nbytes,
        }

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

"""The propagation engine (Fabret et al. 2001, sections 2 and 6): single access predicates.

Phase one sets the bit of each predicate that an event satisfies. Phase two compares the rows of the clusters
whose access predicate is satisfied, by their bits. A row's access predicate is its equality with the fewest
users, or another predicate where it has no equality.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import propagation_kernels as p
from covey.matcher.engines.reference.reference_store import (
    ReferenceStore,
    Tests,
    classes_of,
    index_bytes,
    index_predicates,
)
from covey.matcher.engines.reference.store_kernels import POINT
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.evaluation.evaluator import EvaluationOptions
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType


class PropagationStore(ReferenceStore):
    def __init__(self, event_type: EventType, lookahead: bool) -> None:
        self._lookahead = int(lookahead)
        super().__init__(event_type)

    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        self._index, ranks = index_predicates(tests, self)
        users = np.bincount(ranks, minlength=len(self._index.edges))
        others = classes_of(tests.lows, tests.highs, self.tops_of(tests.columns)) != POINT
        ranks = ranks[np.lexsort((users[ranks], others, tests.owners))]  # a row's access predicate first
        access = np.full(len(tests.rows), -1, dtype=np.int64)
        access[tests.sizes > 0] = ranks[tests.starts[tests.sizes > 0]]
        order = np.lexsort((tests.sizes, access))
        access, left, starts = access[order], np.maximum(tests.sizes[order] - 1, 0), tests.starts[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (np.diff(access) != 0) | (np.diff(left) != 0)
        places = np.flatnonzero(new)
        counts = np.diff(places, append=len(order))
        heads = np.cumsum(left[places] * counts) - left[places] * counts
        self._clusters = p.Clusters(
            bits=np.zeros(len(self._index.edges), dtype=np.uint8),
            lists=np.searchsorted(access[places], np.arange(len(self._index.edges) + 1)),
            clusters=np.stack([left[places], counts, heads, places], axis=1),
            cells=np.empty(int(left.sum()), dtype=np.int32),
        )
        row = np.repeat(np.arange(len(order)), left)
        test = np.arange(len(row)) - np.repeat(np.cumsum(left) - left, left)
        cluster = (np.cumsum(new) - 1)[row]
        cells = heads[cluster] + test * counts[cluster] + row - places[cluster]
        self._clusters.cells[cells] = ranks[starts[row] + 1 + test]
        return tests.rows[order].astype(np.int32)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        done: int = p.propagate_events(
            self.rows(), self._clusters, self._index, keys, start, self._most_matches(), self._lookahead,
            offsets, found,
        )  # fmt: skip
        return done

    def satisfied(self, keys: Keys) -> Numbers:
        counts = np.zeros(len(keys), dtype=np.int64)
        p.satisfied_predicates(self._clusters, self._index, self._padded(keys), counts)
        return counts

    def structure_bytes(self) -> dict[str, int]:
        of = self._clusters
        return {
            **super().structure_bytes(),
            "predicate order": index_bytes(self._index) + of.bits.nbytes,
            "cluster vector": of.lists.nbytes + of.clusters.nbytes,
            "clusters": of.cells.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        return [f"{len(self._clusters.clusters)} clusters", self.summary()]


class PropagationEngine(RowEngine):
    """Fabret's propagation algorithm; without `lookahead` nothing is prefetched."""

    name: ClassVar[str] = "propagation"
    store: PropagationStore

    def __init__(
        self, event_type: EventType, *, lookahead: bool = True, **options: Unpack[EvaluationOptions]
    ) -> None:
        self._lookahead = lookahead
        super().__init__(event_type, **options)

    def empty(self) -> PropagationEngine:
        return PropagationEngine(self.event_type, lookahead=self._lookahead)

    def _new_store(self) -> PropagationStore:
        return PropagationStore(self.event_type, self._lookahead)

    def satisfied_predicates(self, batch: EventBatch) -> Numbers:
        """Phase one alone: how many distinct predicates each event satisfies."""
        return self.store.satisfied(self._keys(batch))

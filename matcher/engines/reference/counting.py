"""The counting engine (Yan and Garcia-Molina; Pereira et al.; Bittner and Hinze 2005, section 2.2).

Phase one finds the predicates that an event satisfies, phase two counts for every subscription how many of
its own are among them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import counting_kernels as c
from covey.matcher.engines.reference.predicate_index import index_bytes, index_predicates
from covey.matcher.engines.reference.reference_store import ReferenceStore, Tests
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine


class CountingStore(ReferenceStore):
    """Rows in the lists of their predicates."""

    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        self._index, ranks = index_predicates(tests, self)
        need = self._need(tests).astype(np.uint16)
        self._counted = c.Counted(
            starts=np.searchsorted(np.sort(ranks), np.arange(len(self._index.edges) + 1)),
            places=tests.owners[np.argsort(ranks, kind="stable")].astype(np.int32),
            need=need,
            left=np.zeros_like(need),
            always=np.flatnonzero(tests.sizes == 0),
        )
        return tests.rows.astype(np.int32)

    def _need(self, tests: Tests) -> Numbers:
        """How many predicates of each row must hold."""
        return tests.sizes

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        done: int = c.count_events(
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
    """Counts satisfied predicates per subscription; see the module."""

    name: ClassVar[str] = "counting"

    def _new_store(self) -> CountingStore:
        return CountingStore(self.event_type)

"""The cluster engine: subscriptions grouped by access predicate and tests, stored columnwise (Fabret et
al. 2001, 2).

Every box of a filter is a row. Its equalities, up to four, are its access predicate and are found by
hashing; what is left are interval tests, checked column by column. Invariant: a row lies in the bucket of
its own access predicate, and in the cluster of its own signature there.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.engines import cluster_kernels as k
from covey.matcher.engines.cluster_store import ClusterStore
from covey.matcher.engines.row_engine import RowEngine
from covey.matcher.keys import Keys

MANY_TABLES = 32
"""An event is looked up in every table; from so many on, new structures share the tables there are."""


class ClusterEngine(RowEngine):
    """The production engine."""

    name: ClassVar[str] = "cluster"
    store: ClusterStore

    def _new_store(self) -> ClusterStore:
        return ClusterStore()

    def _choose_access(self, equalities: tuple[int, ...]) -> tuple[int, ...]:
        """All equalities while there are few tables; then those of the widest table that fits."""
        wanted = tuple(sorted(equalities))[: k.ACCESS]
        if wanted in self.store.tables or len(self.store.tables) < MANY_TABLES:
            return wanted
        fitting = [columns for columns in self.store.tables if columns and set(columns) <= set(equalities)]
        return max(fitting, key=len, default=wanted[:1])

    def _match_bits(self, keys: Keys, bits: npt.NDArray[np.uint64]) -> None:
        self.store.match_bits(keys, bits, int(np.count_nonzero(self._interfaces)))

"""The cluster engine: subscriptions grouped by access predicate, what is left to test stored columnwise
(Fabret et al. 2001, 2-4).

Equalities, several at once, and cells of ranges are found by hashing; under which attributes is for a cost
model to choose (`cluster_planning.py`). Invariant: the configuration decides how fast an answer comes,
never which.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster.store import ClusterStore
from covey.matcher.engines.cluster.tuning.planning import Planner
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import EventType

MOST_THREADS = 256


class ClusterEngine(RowEngine):
    """The production engine; `configuration` is one of `cluster_planning.KINDS`, `threads` share the events
    of a batch. `CoveyError` for what neither is.
    """

    name: ClassVar[str] = "cluster"
    store: ClusterStore

    def __init__(self, event_type: EventType, *, configuration: str = "adaptive", threads: int = 1) -> None:
        if not 1 <= threads <= MOST_THREADS:
            raise CoveyError(f"threads {threads}: expected 1 to {MOST_THREADS}")
        self._planner, self._threads = Planner(configuration), threads
        super().__init__(event_type)

    def _new_store(self) -> ClusterStore:
        return ClusterStore(self.event_type, self._planner, self._threads)

    def _match_bits(self, keys: Keys, bits: npt.NDArray[np.uint64]) -> None:
        self.store.match_bits(keys, bits, self._interfaces.in_use)


class PropagationEngine(ClusterEngine):
    """Fabret's propagation algorithm: access predicates of one equality; with `lookahead`, clusters are
    fetched before they are searched, and in blocks.
    """

    name: ClassVar[str] = "propagation"

    def __init__(self, event_type: EventType, *, lookahead: bool = True, threads: int = 1) -> None:
        kind = "propagation_lookahead" if lookahead else "propagation"
        super().__init__(event_type, configuration=kind, threads=threads)

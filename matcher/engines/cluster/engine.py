"""The cluster engine: subscriptions grouped by access predicate, what is left to test stored columnwise
(Fabret et al. 2001, 2-4).

Equalities, several at once, and cells of ranges are found by hashing; a cost model chooses the attributes
(`tuning/`). Invariant: the configuration decides how fast an answer comes, never which.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from covey.matcher.encoding.schema_columns import MOST_TEXTS
from covey.matcher.engines.cluster.form_plans import FormPlans
from covey.matcher.engines.cluster.store import ClusterStore
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import PlanTable
from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.options import EvaluationOptions
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter

MOST_THREADS = 256
FORMS = ("model", "normal")


class ClusterEngine(RowEngine):
    """The production engine; `configuration` is one of `configuration.KINDS`, `threads` share the events of
    a batch, `forms` is "model", by which a filter is matched in normal form or as a tree, or "normal" for all
    that have one in normal form (`CoveyError` for others), and `texts` is the most different constants of
    `contains` and `not suffix`, each of which adds 8 bytes to an event's keys (`CapacityError` over it).
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

"""STRICTNESS (Jayaram et al., Fig. 5 line 10): before an event is handed out, its filter is evaluated again
on the newest values.

Invariant: `match` uses the newest values of every subscription that was put and not discarded, of moving
variables at the event's ingress time. A pair with an undecided residue does not match. Results stay in the
batch, so no call is evaluated again, and an operator with state sees an event once, whichever way it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.matching import FilterAt, Matching
from covey.overlay.core.matching.operator_matching import OperatorMatching
from covey.overlay.core.moving.motion import moves, still

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter

Int64s = npt.NDArray[np.int64]

_FEW = 16
"""Filters that are tested one by one: most clients have no more, and load no kernels."""


@dataclass(slots=True, eq=False)
class ClientSubscription:
    """`wire_id` is the broker's id; `born` the epoch of its Subscribe, `changed` of its newest values,
    `last_epoch` of a view's newest message, 0 if later events may have been dropped; `anew` of the newest
    update after such a loss, whose Answered ends what is sent again. `enters` is the narrower filter by which
    keys enter a view, if any. `strictness`, of this subscription alone, is created by a reader that needs it.
    `ends_ns` is by the clock of the session's calls, None for never."""

    uid: int
    filter: Filter
    values: dict[str, Scalar]
    wire_id: int = field(init=False)
    anew: int = 0
    born: int = 0
    changed: int = 0
    last_epoch: int = 0
    enters: ClientSubscription | None = None
    ends_ns: int | None = None
    strictness: Strictness | None = None

    def __post_init__(self) -> None:
        self.wire_id = self.uid


def _at(subscription: ClientSubscription, now_ns: int) -> FilterAt:
    return FilterAt(subscription.uid, subscription.filter, still(subscription.values, now_ns))


class Strictness:
    def __init__(self, event_type: EventType, engine: str, evaluator: Evaluator) -> None:
        create = partial(Matching, engine, few=_FEW)
        self._matching = OperatorMatching(create, event_type, evaluator, reads=True)
        self.moving: dict[int, ClientSubscription] = {}
        """Subscriptions with moving variables, for which no broker's match is final."""
        self.has_calls = False
        """Whether a filter calls a named operator, so that matching adds results to a batch."""

    def __len__(self) -> int:
        return len(self._matching)

    def widen(self, event_type: EventType) -> None:
        self._matching.widen(event_type)

    def put(self, subscription: ClientSubscription) -> None:
        """Add a subscription, or apply its new values."""
        if moves(subscription.values):
            self.moving[subscription.uid] = subscription
        else:
            self.moving.pop(subscription.uid, None)
        self._matching.put(_at(subscription, 0), 0)
        self.has_calls = self._matching.calls

    def discard(self, subscription: ClientSubscription) -> None:
        self.moving.pop(subscription.uid, None)
        self._matching.discard(subscription)
        self.has_calls = self._matching.calls

    def match(self, batch: EventBatch, among: tuple[Int64s, Int64s] | None = None) -> tuple[Int64s, Int64s]:
        """The pairs (row, subscription id) that match, in order of rows, then of ids. With `among`, of
        subscriptions with calls only these pairs."""
        self._move(batch)
        offsets, ids, _ = self._matching.decide(EventPoints(batch), among)
        return np.repeat(np.arange(len(batch)), np.diff(offsets)), ids

    def rows(self, batch: EventBatch) -> Int64s:
        self._move(batch)
        return np.flatnonzero(self._matching.match(EventPoints(batch)).any())

    def _move(self, batch: EventBatch) -> None:
        for subscription in self.moving.values():
            self._matching.put(_at(subscription, batch.ingress_ns), 0)

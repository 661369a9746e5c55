"""Matching by walking the poset, as in Siena: the matcher of the first two systems in the evaluation of
Jayaram et al. (section 4.2: "it is the poset that is evaluated on the event"). Each pair of an event and a
filter is tested in Python, at 0.3 µs and more. A match is over the nodes that the posets have at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import bits_of
from covey.matcher.evaluation.problem import FALSE, TRUE, UNDECIDED
from covey.matcher.matches import Matches
from covey.overlay.core.covering.interest import CLIENTS
from covey.overlay.core.matching.event_points import EventPoints, Walkable
from covey.overlay.core.matching.interest_matching import NO_PAIRS, Decided
from covey.overlay.core.matching.operator_matching import CallResidues
from covey.sim.baselines.diagram import Diagram, Place

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.overlay.core.covering.poset import Poset
    from covey.overlay.core.matching.interest_matching import Matched


class PosetMatching:
    """An `InterestMatching` over the diagrams in `posets`, by group: for `sessions` that of all clients, else
    those of the neighbours."""

    def __init__(
        self, event_type: EventType, posets: Mapping[str, Poset], sessions: bool, evaluator: Evaluator
    ) -> None:
        self._event_type = event_type
        self._posets = cast("Mapping[str, Diagram]", posets)
        self._sessions = sessions
        self._numbers: dict[int, int] = {}
        self._calling = CallResidues(evaluator, reads=False)

    @property
    def calls(self) -> bool:
        return len(self._calling) > 0

    def widen(self, event_type: EventType) -> None:
        self._event_type = event_type

    def check_room(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        """There is always room."""

    def put(self, interest: Matched, number: int) -> None:
        """The interest must be in its group's poset before the next match."""
        self._numbers[interest.uid] = number
        if interest.filter.calls:
            self._calling.put(interest, number)

    def discard(self, interest: Matched) -> None:
        del self._numbers[interest.uid]
        self._calling.discard(interest)

    def form(self, filter: Filter) -> str:
        return ""

    def interests(self) -> dict[int, int]:
        return dict(self._numbers)

    # --- matching -------------------------------------------------------------------------------------------

    def match(self, events: EventPoints) -> Matches:
        offsets, uids, _ = self.decide(events)
        return Matches.of(offsets, uids)

    def decide(self, events: EventPoints) -> Decided:
        """See `InterestMatching.decide`. The walk takes calls as true."""
        offsets, uids = self._walk(events).ids()
        if not self._calling:
            return offsets, uids, NO_PAIRS
        events.batch.shared_results()
        rows = np.repeat(np.arange(len(events)), np.diff(offsets))
        calling = np.flatnonzero(np.isin(uids, list(self._calling.interfaces())))
        truths = np.full(len(uids), TRUE)
        batch = events.over(self._event_type).batch
        truths[calling] = self._calling.truths(batch, rows[calling], uids[calling])
        unsure = truths == UNDECIDED
        np.cumsum(np.bincount(rows[truths != FALSE], minlength=len(events)), out=offsets[1:])
        return offsets, uids[truths != FALSE], (rows[unsure], uids[unsure])

    def _walk(self, events: EventPoints) -> Matches:
        events = events.over(self._event_type)
        matching_uids: list[list[int]] = [[] for _ in events.rows]
        for poset in self._mine():
            seen: set[Place] = set(poset.tops())
            pending = [(place, events.rows) for place in poset.tops()]
            while pending:
                place, rows = pending.pop()
                rows = events.inside(place.region, rows)
                if not rows:
                    continue
                for row in rows:
                    matching_uids[row] += place.members
                for below in place.below:
                    if below not in seen:
                        seen.add(below)
                        pending.append((below, rows))
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum([len(uids) for uids in matching_uids], out=offsets[1:])
        uids = np.array([uid for uids in matching_uids for uid in sorted(uids)], np.int64)
        return Matches.of(offsets, uids)

    def match_interfaces(self, events: EventPoints, exclude: int = -1) -> npt.NDArray[np.uint64]:
        """As `Matches.interfaces`, from roots alone; the bits of the interface `exclude` are undefined."""
        events = events.over(self._event_type)
        words = max(self._numbers.values(), default=0) // 64 + 1
        bits = np.zeros((len(events), words), np.uint64)
        if self._calling:
            for row, uids in enumerate(self.match(events).per_event()):
                for uid in uids.tolist():
                    bits[row, self._numbers[uid] // 64] |= np.uint64(1 << self._numbers[uid] % 64)
            return bits
        for poset in self._mine():
            unmatched, number = events.rows, 0
            for place in poset.tops():
                number = self._numbers[place.first.uid]
                if number == exclude:
                    break
                hit = set(events.inside(place.region, unmatched))
                unmatched = [row for row in unmatched if row not in hit]
                if not unmatched:
                    break
            reached = sorted(set(events.rows).difference(unmatched))
            bits[reached, number // 64] |= np.uint64(1 << number % 64)
        return bits

    def event_interfaces(self, events: EventPoints, exclude: int = -1) -> int:
        if self._calling:
            return bits_of(self.match_interfaces(events, exclude))
        events, bits = events.over(self._event_type), 0
        for poset in self._mine():
            top = next(poset.tops(), None)
            number = exclude if top is None else self._numbers[top.first.uid]
            if number != exclude and _in_a_top(poset, events):
                bits |= 1 << number
        return bits

    def _mine(self) -> Iterable[Diagram]:
        return [poset for group, poset in self._posets.items() if (group == CLIENTS) == self._sessions]


def _in_a_top(poset: Diagram, events: EventPoints) -> bool:
    alone = events.alone
    for place in poset.tops():
        prepared = place.prepared
        if prepared is None or prepared.region is not place.region:
            prepared = place.prepared = Walkable(place.region)
        for attribute, low, high in prepared.box:
            point = alone[attribute] if attribute in alone else events.point(attribute)
            if not low <= point < high:
                break
        else:
            if prepared.is_box or events.inside(place.region, events.rows):
                return True
    return False

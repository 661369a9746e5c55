"""Matching by walking the poset, as Siena does: no engine beside it, nothing to bring up to date.

An event is tested against the roots, and against what stands below a filter only if it matches that filter
(Jayaram et al., section 4.2: "it is the poset that is evaluated on the event"). This is the matcher of the
first two systems of their evaluation. It tests every pair of an event and a filter that it meets in Python,
at 0.3 µs and more each: that is what it means to have no index, and why the broker's own engines are not
built so.

Invariant: what it answers is what the posets of the groups hold at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation import passes
from covey.matcher.expression import Constant
from covey.matcher.intervals import LINES, Cuts
from covey.overlay.core.diagram import Diagram, Place

if TYPE_CHECKING:
    from covey.matcher.batch import EventBatch
    from covey.matcher.conjunction import Conjunction
    from covey.matcher.covering import Region
    from covey.matcher.event_type import EventType
    from covey.overlay.core.matching import Matched

POSET = "poset"
"""The name of this matcher, where that of an engine is expected."""

Rows = list[int]


class PosetMatching:
    """Answers what `Matching` answers, for links or for sessions; `posets` are those of the groups by name.

    `sessions` is the name of the group of all clients if it is to answer for sessions; else it answers for
    the other groups, the links.
    """

    def __init__(
        self, event_type: EventType, posets: Mapping[str, Any], clients: str, sessions: bool
    ) -> None:
        self._event_type = event_type
        self._posets = posets
        self._clients = clients
        self._sessions = sessions
        self._numbers: dict[int, int] = {}

    def put(self, interest: Matched, number: int) -> None:
        """This interest is in its group's poset, or will be before the next match."""
        self._numbers[interest.uid] = number

    def discard(self, interest: Matched) -> None:
        del self._numbers[interest.uid]

    def flush(self) -> PosetMatching:
        """Itself: the poset is up to date always."""
        return self

    def installed(self) -> dict[int, int]:
        return dict(self._numbers)

    def wanted(self) -> dict[int, int]:
        return dict(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, uid: object) -> bool:
        return uid in self._numbers

    # --- matching -------------------------------------------------------------------------------------------

    def match(self, batch: EventBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As `Engine.match`: offsets, and the uids of the matching subscriptions of each event, ascending."""
        events = _Events(self._event_type, batch)
        found: list[list[int]] = [[] for _ in range(len(batch))]
        for poset in self._mine():
            seen: set[Place] = set(poset.tops())
            pending = [(place, events.rows) for place in poset.tops()]
            while pending:
                place, rows = pending.pop()
                rows = events.inside(place.region, rows)
                if not rows:
                    continue
                for row in rows:
                    found[row] += place.members
                for below in place.below:
                    if below not in seen:
                        seen.add(below)
                        pending.append((below, rows))
        offsets = np.zeros(len(batch) + 1, np.int64)
        np.cumsum([len(uids) for uids in found], out=offsets[1:])
        return offsets, np.array([uid for uids in found for uid in sorted(uids)], np.int64)

    def match_interfaces(self, batch: EventBatch) -> npt.NDArray[np.uint64]:
        """As `Engine.match_interfaces`. What stands below a root asks for nothing that the root does not."""
        events = _Events(self._event_type, batch)
        words = max(self._numbers.values(), default=0) // 64 + 1
        bits = np.zeros((len(batch), words), np.uint64)
        for poset in self._mine():
            left, number = events.rows, 0
            for place in poset.tops():
                number = self._numbers[place.first.uid]
                hit = set(events.inside(place.region, left))
                left = [row for row in left if row not in hit]
                if not left:
                    break
            reached = sorted(set(events.rows).difference(left))
            bits[reached, number // 64] |= np.uint64(1 << number % 64)
        return bits

    def _mine(self) -> Iterable[Diagram]:
        return [poset for group, poset in self._posets.items() if (group == self._clients) == self._sessions]


class _Events:
    """The events of a batch as points between the cuts of regions, attribute by attribute, made on demand."""

    def __init__(self, event_type: EventType, batch: EventBatch) -> None:
        self.rows: Rows = list(range(len(batch)))
        self._kinds = event_type.attributes
        self._batch = batch
        self._values: dict[str, list[Any]] = {}
        self._points: dict[str, list[Any]] = {}

    def inside(self, region: Region, rows: Rows) -> Rows:
        """Those of the rows whose events lie in the region, ascending."""
        if region.conjunctions is None:
            if region.every:
                for part in region.parts:
                    rows = self.inside(part, rows)
                return rows
            return self._union([self.inside(part, rows) for part in region.parts])
        if len(region.conjunctions) == 1:
            return self._within(region.conjunctions[0], rows)
        return self._union([self._within(conjunction, rows) for conjunction in region.conjunctions])

    @staticmethod
    def _union(parts: list[Rows]) -> Rows:
        return sorted({row for rows in parts for row in rows})

    def _within(self, conjunction: Conjunction, rows: Rows) -> Rows:
        for attribute, cuts in conjunction.cuts.items():
            points = self._points.get(attribute)
            if points is None:
                points = self._points_of(attribute)
            if len(cuts) == 2:
                low, high = cuts
                rows = [row for row in rows if low <= points[row] < high]
            else:
                rows = [row for row in rows if _lies(points[row], cuts)]
            if not rows:
                return rows
        for atom in conjunction.atoms:
            values = self._values_of(atom.attribute)
            operands = [operand.value for operand in atom.operands if isinstance(operand, Constant)]
            rows = [
                row
                for row in rows
                if values[row] is not None and passes(atom.operator, values[row], operands)
            ]
        return rows

    def _values_of(self, attribute: str) -> list[Any]:
        values = self._values.get(attribute)
        if values is None:
            values = self._values[attribute] = self._batch.record_batch.column(attribute).to_pylist()
        return values

    def _points_of(self, attribute: str) -> list[Any]:
        line = LINES[self._kinds[attribute]]
        points = self._points[attribute] = [
            line.missing if value is None else line.before(value) if value == value else line.top
            for value in self._values_of(attribute)
        ]
        return points


def _lies(point: Any, cuts: Cuts) -> bool:
    return any(cuts[i] <= point < cuts[i + 1] for i in range(0, len(cuts), 2))

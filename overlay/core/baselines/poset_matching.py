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

from covey.overlay.core.baselines.diagram import Diagram, Place
from covey.overlay.core.matching.event_points import EventPoints

if TYPE_CHECKING:
    from covey.overlay.core.matching.matching import Matched

POSET = "poset"
"""The name of this matcher, where that of an engine is expected."""


class PosetMatching:
    """Answers what `Matching` answers, for links or for sessions; `posets` are those of the groups by name.

    `sessions` is the name of the group of all clients if it is to answer for sessions; else it answers for
    the other groups, the links.
    """

    def __init__(self, posets: Mapping[str, Any], clients: str, sessions: bool) -> None:
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

    def match(self, events: EventPoints) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As `Engine.match`: offsets, and the uids of the matching subscriptions of each event, ascending."""
        found: list[list[int]] = [[] for _ in events.rows]
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
        offsets = np.zeros(len(events) + 1, np.int64)
        np.cumsum([len(uids) for uids in found], out=offsets[1:])
        return offsets, np.array([uid for uids in found for uid in sorted(uids)], np.int64)

    def match_interfaces(self, events: EventPoints, but: int = -1) -> npt.NDArray[np.uint64]:
        """As `Engine.match_interfaces`, except that nothing need be said of the interface `but`.

        What stands below a root asks for nothing that the root does not.
        """
        words = max(self._numbers.values(), default=0) // 64 + 1
        bits = np.zeros((len(events), words), np.uint64)
        for poset in self._mine():
            left, number = events.rows, 0
            for place in poset.tops():
                number = self._numbers[place.first.uid]
                if number == but:
                    break
                hit = set(events.inside(place.region, left))
                left = [row for row in left if row not in hit]
                if not left:
                    break
            reached = sorted(set(events.rows).difference(left))
            bits[reached, number // 64] |= np.uint64(1 << number % 64)
        return bits

    def _mine(self) -> Iterable[Diagram]:
        return [poset for group, poset in self._posets.items() if (group == self._clients) == self._sessions]

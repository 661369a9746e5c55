"""When a broker takes another upward link.

Invariant: one candidate at a time. The chosen candidate keeps the link while it is connected, until a better
one has answered all probes for `repair_after_ns`; without a connection it keeps it for `repair_after_ns`.
Then the best candidate that answers comes next, and nobody while none answers. A candidate that answered, was
chosen and did not take the link (its overlay file may differ) comes behind the others, and has to answer for
twice as long each time before a working link is given up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_DOUBLINGS = 6


@dataclass(slots=True)
class _Candidate:
    place: int
    since_ns: int | None = None
    """Since when it has answered every probe; None if it did not answer the last."""
    failures: int = 0
    """How often in a row it was chosen and did not take the link."""


class Uplink:
    """The choice of one broker among its candidates, the best first; it begins with the best."""

    def __init__(self, candidates: Sequence[str], repair_after_ns: int) -> None:
        self.repair_after_ns = repair_after_ns
        self._candidates = {name: _Candidate(place) for place, name in enumerate(candidates)}
        self.chosen: str | None = next(iter(candidates), None)
        self._answered = False
        """Whether the chosen one was chosen because it answered."""

    @property
    def best(self) -> str | None:
        return next(iter(self._candidates), None)

    def set_candidates(self, candidates: Sequence[str]) -> None:
        """From now on these, the best first. The chosen one stays, if it is among them."""
        known = self._candidates
        self._candidates = {}
        for place, name in enumerate(candidates):
            candidate = self._candidates[name] = known.get(name) or _Candidate(place)
            candidate.place = place
        if self.chosen not in self._candidates:
            self.chosen, self._answered = self.best if not known else None, False

    def to_probe(self, connected: bool) -> list[str]:
        """The candidates to probe now: the better ones while there is a connection, else all others."""
        return [
            name
            for name, each in self._candidates.items()
            if name != self.chosen
            and not (
                connected and self.chosen is not None and each.place > self._candidates[self.chosen].place
            )
        ]

    def probed(self, name: str, answered: bool, now_ns: int) -> None:
        """A candidate has answered a probe, or has not."""
        candidate = self._candidates.get(name)
        if candidate is not None:
            if not answered:
                candidate.since_ns = None
            elif candidate.since_ns is None:
                candidate.since_ns = now_ns

    def answers(self, name: str) -> bool:
        """Whether a candidate has answered its last probe."""
        candidate = self._candidates.get(name)
        return candidate is not None and candidate.since_ns is not None

    def linked(self) -> None:
        """The chosen one has taken the link."""
        self._answered = False
        if self.chosen is not None:
            self._candidates[self.chosen].failures = 0

    def better(self, now_ns: int) -> str | None:
        """The candidate to prefer to the chosen one, which is connected; None if there is none."""
        if self.chosen is None:
            return None
        for name, each in self._candidates.items():
            if name == self.chosen:
                return None
            patience_ns = self.repair_after_ns << min(each.failures, _MOST_DOUBLINGS)
            if each.since_ns is not None and now_ns - each.since_ns >= patience_ns:
                return name
        return None

    def give_up(self) -> None:
        """The chosen one has been without a connection for too long."""
        if self.chosen is not None:
            self._candidates[self.chosen].failures += self._answered
            self._candidates[self.chosen].since_ns = None
        self.chosen, self._answered = None, False

    def choose(self, name: str | None = None) -> str | None:
        """Choose a candidate, by default the best that answers; None if none does. The others have to answer
        anew, before one is preferred to it.
        """
        if name is None:
            answering = [(each, n) for n, each in self._candidates.items() if each.since_ns is not None]
            answering.sort(key=lambda pair: (pair[0].failures, pair[0].place))
            name = answering[0][1] if answering else None
        self.chosen, self._answered = name, name is not None
        return name

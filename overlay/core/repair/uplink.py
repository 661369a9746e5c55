"""Which upward links a broker may have, in an order that all brokers compute from the overlay file, and when
it changes its link.

The tree is rooted at the file's first broker. *Rank* is the place in breadth-first order, neighbours in the
order of the file's links. Each broker has at most one upward link, to one of its *candidates*: its parent,
its other ancestors up to the root, then all others of lower rank, the lowest first. `fallbacks` replace all
but the parent.

Invariant: every candidate has a lower rank than its broker, so upward links form no cycle, whatever each
broker believes about who is dead. Where reachability is mutual and transitive, the brokers that reach each
other form one tree (without `fallbacks`), since all but the first have a candidate among them. (With the
root's children as last candidates, the children of a dead one would have none if the root is dead, too.)

Invariant of the choice: one candidate at a time. The chosen one keeps its link until a better one has
answered all probes for `repair_after_ns`, or for `repair_after_ns` without a connection. Then the best
candidate that answers is chosen. A candidate that answered but did not take the link (its overlay file may
differ) comes last, and each time has to answer for twice as long before a working link is given up for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


class UplinkRule:
    """`links` are a tree that joins all `brokers`. `ValueError` names a fallback without lower rank."""

    def __init__(
        self,
        brokers: Sequence[str],
        links: Sequence[tuple[str, str]],
        fallbacks: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        around: dict[str, list[str]] = {broker: [] for broker in brokers}
        for a, b in links:
            around[a].append(b)
            around[b].append(a)
        self.brokers = tuple(brokers)
        self.order = [brokers[0]]
        self.parents: dict[str, str] = {}
        for broker in self.order:
            for other in around[broker]:
                if other != self.parents.get(broker):
                    self.parents[other] = broker
                    self.order.append(other)
        self.ranks = {broker: rank for rank, broker in enumerate(self.order)}
        self._fallbacks = {broker: tuple(names) for broker, names in (fallbacks or {}).items()}
        for broker, names in self._fallbacks.items():
            for name in names:
                if self.ranks.get(name, len(self.order)) >= self.ranks[broker]:
                    lower = ", ".join(self.order[: self.ranks[broker]]) or "none"
                    raise ValueError(
                        f"names {name!r}: expected brokers that the tree has before {broker}: {lower}"
                    )

    def candidates(self, broker: str) -> tuple[str, ...]:
        """The brokers that a broker may link to upward, in order of preference. O(brokers)."""
        if broker not in self.parents:
            return ()
        above = [self.parents[broker]]
        if broker in self._fallbacks:
            others = self._fallbacks[broker]
        else:
            while above[-1] in self.parents:
                above.append(self.parents[above[-1]])
            others = tuple(self.order[: self.ranks[broker]])
        return tuple(dict.fromkeys((*above, *others)))

    def may_link(self, lower: str, upper: str) -> bool:
        return lower in self.ranks and upper in self.candidates(lower)

    def neighbours(self, broker: str) -> dict[str, bool]:
        """The neighbours in the tree; True if the broker dials them, as the lower end of a link does."""
        above = {self.parents[broker]: True} if broker in self.parents else {}
        return above | {other: False for other in self.order if self.parents.get(other) == broker}

    def uplink(self, broker: str, reaches: Callable[[str], bool]) -> str | None:
        """The first candidate that it reaches."""
        return next((name for name in self.candidates(broker) if reaches(name)), None)


def links_without(
    brokers: Sequence[str], links: Sequence[tuple[str, str]], name: str
) -> tuple[tuple[str, str], ...]:
    """The links after a broker has left; new ones have the hub first, so that the others dial it."""
    around = UplinkRule(brokers, links).neighbours(name)  # the parent first, then the children
    hub = next(iter(around), None)
    remaining = []
    for link in links:
        if name not in link:
            remaining.append(link)
        elif hub is not None and hub not in link:
            remaining.append((hub, link[0] if link[1] == name else link[1]))
    return tuple(remaining)


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
        """The best first; the chosen one stays if it is among them."""
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
        candidate = self._candidates.get(name)
        if candidate is not None:
            if not answered:
                candidate.since_ns = None
            elif candidate.since_ns is None:
                candidate.since_ns = now_ns

    def answers(self, name: str) -> bool:
        candidate = self._candidates.get(name)
        return candidate is not None and candidate.since_ns is not None

    def linked(self) -> None:
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
        """Give the chosen one up, which was without a connection for too long."""
        if self.chosen is not None:
            self._candidates[self.chosen].failures += self._answered
            self._candidates[self.chosen].since_ns = None
        self.chosen, self._answered = None, False

    def choose(self, name: str | None = None) -> str | None:
        """Choose `name`, by default the best candidate that answers; None if none does."""
        if name is None:
            answering = [(each, n) for n, each in self._candidates.items() if each.since_ns is not None]
            answering.sort(key=lambda pair: (pair[0].failures, pair[0].place))
            name = answering[0][1] if answering else None
        self.chosen, self._answered = name, name is not None
        return name

"""Which upward links a broker may have: the order that all brokers compute from the overlay file.

The tree of the file has its root at the file's first broker. *Rank* is the place of a broker in breadth-first
order from there, neighbours in the order of the file's links. Each broker has at most one upward link at a
time, to one of its *candidates*: its parent in the tree, then its other ancestors up to the root, then all
others of lower rank, the lowest first. `fallbacks` replace whatever comes after the parent.

Invariant: every candidate has a lower rank than its broker. So whatever each broker believes about who is
dead, the upward links have no cycle: following them, ranks only fall. And where being reachable is mutual and
transitive, the brokers that reach each other are one tree, since all but the first of them have a candidate
among them (without `fallbacks`). The last candidates are all brokers of lower rank, not the other children of
the root alone: with the root and one of its children dead, the children of that one would have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


class UplinkRule:
    """The rule for the brokers of an overlay. `ValueError`, with the broker and its fallback, for a fallback
    that has no lower rank; `links` are a tree that joins all `brokers`.
    """

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
        """The brokers in the order of the file."""
        self.order = [brokers[0]]
        """The brokers by rank."""
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
        """The brokers that a broker may be linked to upward, in order of preference. O(brokers)."""
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
        """Whether one broker may have its upward link to another."""
        return lower in self.ranks and upper in self.candidates(lower)

    def neighbours(self, broker: str) -> dict[str, bool]:
        """The neighbours in the tree, each with whether the broker dials it: the lower end of a link does."""
        above = {self.parents[broker]: True} if broker in self.parents else {}
        return above | {other: False for other in self.order if self.parents.get(other) == broker}

    def uplink(self, broker: str, reaches: Callable[[str], bool]) -> str | None:
        """Where the upward link of a broker settles that reaches these others."""
        return next((name for name in self.candidates(broker) if reaches(name)), None)

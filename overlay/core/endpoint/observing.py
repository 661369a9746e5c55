"""How long a broker's work takes, as histograms, and the spans of its work, as its endpoint reports them.

Invariant: an observation costs O(log buckets), once per batch of messages; pending ones are bounded by
`MOST_PENDING` per interface. `overlay/node/node_tracing.py` has the spans."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from covey.overlay.core.messages import Interface, Message, Update


class Tracing(Protocol):
    """Gets messages with their trace contexts, once per batch."""

    def arrived(self, interface: Interface, messages: list[Message]) -> list[Message]:
        """Messages that arrived together: the same, the traced ones with contexts of this broker's spans."""

    def handled(self) -> None:
        """The last events are on their way to all receivers."""

    def settled(self, interface: Interface, epoch: int) -> None:
        """All control messages of an interface up to an epoch have taken effect."""

    def forget(self, interface: Interface) -> None:
        """An interface has ended, or has lost its state."""


NS_PER_S = 1e9
MOST_PENDING = 256
"""Batches of updates of one interface that are timed at once; further ones are not observed."""
UPDATE_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
MATCH_BOUNDS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class Histogram:
    """Numbers of observations by the least bound that is not below them, the last above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def quantile(self, share: float) -> float:
        """The least bound that `share` of the observations do not exceed; above all bounds the greatest."""
        wanted, below = share * sum(self.counts), 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            below += count
            if below >= wanted:
                return bound
        return self.bounds[-1]


class Timings:
    """One broker's histograms, in seconds, by a monotonic `clock_ns`: of an Update until it has taken effect
    everywhere, and of matching and queueing a batch for neighbours, and for clients."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self.updates = Histogram(UPDATE_BOUNDS_S)
        self.links = Histogram(MATCH_BOUNDS_S)
        self.sessions = Histogram(MATCH_BOUNDS_S)
        self._pending: dict[Interface, deque[tuple[int, int, int]]] = {}
        """By interface, pending batches of updates: newest epoch, updates, time of arrival."""

    def matched(self, histogram: Histogram, start_ns: int) -> None:
        histogram.observe((self.clock_ns() - start_ns) / NS_PER_S)

    def arrived(self, interface: Interface, messages: Sequence[Message]) -> None:
        updates = [message for message in messages if isinstance(message, Update)]
        if updates:
            pending = self._pending.setdefault(interface, deque())
            if len(pending) < MOST_PENDING:
                pending.append((updates[-1].epoch, len(updates), self.clock_ns()))

    def settled(self, interface: Interface, epoch: int) -> None:
        pending = self._pending.get(interface)
        if pending is None:
            return
        while pending and pending[0][0] <= epoch:
            _, updates, arrived_ns = pending.popleft()
            self.updates.observe((self.clock_ns() - arrived_ns) / NS_PER_S, updates)
        if not pending:
            del self._pending[interface]

    def forget(self, interface: Interface) -> None:
        self._pending.pop(interface, None)

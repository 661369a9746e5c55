"""The time of an endpoint that reads no clock, and deadlines by key."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(slots=True)
class EndpointClock:
    """The current call's time by a monotonic clock; `stamp_ns` is by the clock that stamps events."""

    now_ns: int
    offset_ns: int = 0

    @property
    def stamp_ns(self) -> int:
        return self.now_ns + self.offset_ns


K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """At most one deadline per key, in nanoseconds; `next_ns` is the earliest. All calls are O(log n)."""

    def __init__(self) -> None:
        self.next_ns: int | None = None
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ns: int, *, earlier: bool = False) -> None:
        """Replace the key's deadline; with `earlier` only by an earlier one."""
        before = self._due.get(key)
        if before is None or (before > due_ns if earlier else before != due_ns):
            self._due[key] = due_ns
            self._serial += 1
            heapq.heappush(self._heap, (due_ns, self._serial, key))
            if self._serial % 64 == 0 and len(self._heap) > 64 + 4 * len(self._due):
                self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
                heapq.heapify(self._heap)
            if self.next_ns is None or due_ns < self.next_ns:
                self.next_ns = due_ns
            elif before == self.next_ns:
                self._find_next()

    def cancel(self, key: K) -> None:
        if self._due.pop(key, None) == self.next_ns:
            self._find_next()

    def _find_next(self) -> None:
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        self.next_ns = heap[0][0] if heap else None

    def take(self, now_ns: int, most: int | None = None) -> list[K]:
        """Remove and return the keys whose deadlines have come, in their order, at most `most`."""
        taken: list[K] = []
        while self.next_ns is not None and self.next_ns <= now_ns and len(taken) != most:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            taken.append(key)
            if self._heap:
                self._find_next()
            else:
                self.next_ns = None
        return taken

"""Virtual time: a heap of (time, sequence). Invariant: time never goes back, and the order of two actions
depends only on their times and the order in which they were scheduled; never on identity, hashing or the real
clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Clock:
    """Times are integers, in ns since the start of the simulation."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.steps = 0
        self._heap: list[tuple[int, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._polls = 0

    def at(self, time_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action at a time, now at the earliest."""
        self._push(time_ns, False, action, arguments)

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now_ns + delay_ns, action, *arguments)

    def poll_at(self, time_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """As `at`, for an action that repeats and mostly has nothing to do (`only_polls`)."""
        self._polls += 1
        self._push(time_ns, True, action, arguments)

    def _push(
        self, time_ns: int, poll: bool, action: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (max(time_ns, self.now_ns), self._serial, poll, action, arguments))

    def run(self, until_ns: int | None = None, steps: int | None = None) -> None:
        """Run all actions due by `until_ns` and advance the clock to it; without it run all. With `steps` run
        at most that many and leave the clock at the last of them."""
        heap = self._heap
        last = None if steps is None else self.steps + steps
        while heap and (until_ns is None or heap[0][0] <= until_ns):
            if self.steps == last:
                return
            self.now_ns, _, poll, action, arguments = heapq.heappop(heap)
            self.steps += 1
            self._polls -= poll
            action(*arguments)
        if until_ns is not None:
            self.now_ns = max(self.now_ns, until_ns)

    @property
    def idle(self) -> bool:
        return not self._heap

    @property
    def only_polls(self) -> bool:
        return len(self._heap) == self._polls

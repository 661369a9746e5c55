"""Virtual time: a heap of (time, sequence), so that what is due at one moment happens in the order of asking.

Invariant: time never goes back, and the order of two happenings depends on nothing but their times and the
order in which they were asked for; never on identity, hashing or the real clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Clock:
    """Times are integers, in nanoseconds since the start of the simulation."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.steps = 0
        """How many things have happened."""
        self._heap: list[tuple[int, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._looks = 0

    def at(self, time_ns: int, what: Callable[..., None], *arguments: Any) -> None:
        """Have something happen at a time, now at the earliest."""
        self._push(time_ns, False, what, arguments)

    def look_at(self, time_ns: int, what: Callable[..., None], *arguments: Any) -> None:
        """As `at`, for what looks after something again and again and mostly finds nothing to do: while
        nothing else is going to happen the clock is `calm`.
        """
        self._looks += 1
        self._push(time_ns, True, what, arguments)

    def _push(self, time_ns: int, look: bool, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (max(time_ns, self.now_ns), self._serial, look, what, arguments))

    def after(self, delay_ns: int, what: Callable[..., None], *arguments: Any) -> None:
        """Have something happen so much later."""
        self.at(self.now_ns + delay_ns, what, *arguments)

    def run(self, until_ns: int | None = None, steps: int | None = None) -> None:
        """Let everything happen that is due by a time, or everything at all; it is that time then.

        With `steps`, so many things at most, and time stays at the last of them.
        """
        heap = self._heap
        last = None if steps is None else self.steps + steps
        while heap and (until_ns is None or heap[0][0] <= until_ns):
            if self.steps == last:
                return
            self.now_ns, _, look, what, arguments = heapq.heappop(heap)
            self.steps += 1
            self._looks -= look
            what(*arguments)
        if until_ns is not None:
            self.now_ns = max(self.now_ns, until_ns)

    @property
    def idle(self) -> bool:
        """Nothing is going to happen any more."""
        return not self._heap

    @property
    def calm(self) -> bool:
        """Nothing is going to happen but that somebody looks after something."""
        return len(self._heap) == self._looks

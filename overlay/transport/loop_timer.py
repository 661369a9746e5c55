"""One timer of an event loop for a state machine that says when it wants to be called."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class LoopTimer:
    """Calls `fire` with the time when it is due, in nanoseconds of the monotonic clock. A call may come
    early: the deadline it was armed for may have passed away meanwhile. Event loops have that clock.

    Holds `fire`, a method of its owner, only while it is armed: else the two were a reference cycle, and the
    owner would stay in memory until a full garbage collection.
    """

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def arm(self, due_ns: int | None, fire: Callable[[int], None]) -> None:
        """Fire at that time at the latest; None asks for nothing."""
        if due_ns is None or (self._handle is not None and self._due_ns <= due_ns):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._due_ns = due_ns
        self._handle = asyncio.get_running_loop().call_at(due_ns / 1e9, self._on_time, fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self, fire: Callable[[int], None]) -> None:
        self._handle = None
        fire(time.monotonic_ns())

"""The event loop of Covey's processes: timers, pauses between attempts to connect, and a waiting line.

Pauses double up to a bound, at random so that peers do not reconnect together. Only a connection that lasted
resets them.

The waiting line serves, one by one, bytes of unauthenticated connections, the rest of what exceeds a
connection's turn, and single calls. Together they take at most half of the loop's time, in slices of about
`_SLICE_S`; a TLS handshake or a request may take longer.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
_NEVER = 1 << 63
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
HEALTHY_AFTER_S = 5.0
"""A connection that lasts so long resets the pauses."""
_SLICE_S = 0.0005
_MOST_BYTES = 32 << 20


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class LoopTimer:
    """Calls `fire` with the time in ns of the monotonic clock, maybe early, since a deadline may be
    withdrawn. Keeps `fire`, a method of its owner, only while armed: the reference cycle would keep the owner
    in memory."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None
        self.due_ns = _NEVER

    def arm(self, due_ns: int | None, fire: Callable[[int], None]) -> None:
        """Fire at `due_ns` at the latest. No effect for None, or a time behind the current `due_ns`."""
        if due_ns is None or self.due_ns <= due_ns:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.due_ns = due_ns
        self._handle = asyncio.get_running_loop().call_at(due_ns / 1e9, self._on_time, fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self.due_ns = None, _NEVER

    def _on_time(self, fire: Callable[[int], None]) -> None:
        self._handle, self.due_ns = None, _NEVER
        fire(time.monotonic_ns())


class Backoff:
    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._connected_s: float | None = None

    def connected(self) -> None:
        self._connected_s = time.monotonic()

    def pause_s(self) -> float:
        """Seconds before the next attempt: doubling, up to 1 s."""
        if self._connected_s is not None and time.monotonic() - self._connected_s >= HEALTHY_AFTER_S:
            self._pause_s = _FIRST_PAUSE_S
        self._connected_s = None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.0)


class WaitingLine:
    """The line of one server. `bytes` in it are bounded (`full`)."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False
        self.bytes = 0

    @property
    def full(self) -> bool:
        return self.bytes >= _MOST_BYTES

    def join(self, serve: Callable[[], None]) -> None:
        self._waiting.append(serve)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._serve)

    async def run(self, call: Callable[[], T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.join(partial(_settle, result, call))
        try:
            return await result
        finally:
            del result  # a traceback with this frame would keep it, and itself, until a full collection

    def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        spent = 0.0
        for _ in range(len(self._waiting)):  # who joins again meanwhile comes when the loop has served others
            try:
                self._waiting.popleft()()
            except Exception as error:  # a defect: those behind it have their turn all the same
                loop.call_exception_handler({"message": "a turn in the line failed", "exception": error})
            spent = time.perf_counter() - began
            if spent >= _SLICE_S:
                # Connections free as many old objects as they make new ones. Python counts the difference,
                # so it would scan 100,000 young ones at once, for 20 ms.
                gc.collect(1)
                spent = time.perf_counter() - began
                break
        self._due = bool(self._waiting)
        if self._due and spent < _SLICE_S:
            loop.call_soon(self._serve)
        elif self._due:
            loop.call_later(spent, self._serve)


def _settle(result: asyncio.Future[T], call: Callable[[], T]) -> None:
    try:
        if not result.done():
            result.set_result(call())
    except Exception as error:
        result.set_exception(error)
    finally:
        del result  # as above

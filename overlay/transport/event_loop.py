"""What Covey's processes have of an event loop: the loop, a timer for a state machine, pauses between
attempts to connect, and a waiting line.

Pauses double up to a bound and vary at random, so that peers that lost the same broker do not reconnect at
the same moment. Only a connection that lasted starts them over: one that opens and breaks at once, because
its peer cannot take what it is sent, is a failure like any other.

The waiting line is for those whom a server does not trust yet, and for those who bring too little: one after
the other. In it stand the bytes of connections that have not proven who they are, the rest of what was more
than a turn of a connection, and requests of single calls. However many they are, all together have at most
half of the loop's time, in slices of about `_SLICE_S`: what else is ready waits for one slice, or for the one
thing in it that takes longer, a TLS handshake or a request.
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
"""How long a connection lasts before the next pause is the first one again."""
_SLICE_S = 0.0005
_MOST_BYTES = 32 << 20


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class LoopTimer:
    """Calls `fire` with the time when it is due, in nanoseconds of the monotonic clock. A call may come
    early: the deadline it was armed for may have passed away meanwhile. Event loops have that clock.

    Holds `fire`, a method of its owner, only while it is armed: else the two were a reference cycle, and the
    owner would stay in memory until a full garbage collection.
    """

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None
        self.due_ns = _NEVER
        """When it fires."""

    def arm(self, due_ns: int | None, fire: Callable[[int], None]) -> None:
        """Fire at that time at the latest; None asks for nothing, as does a time behind `due_ns`."""
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
    """The pauses of one connection."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._connected_s: float | None = None

    def connected(self) -> None:
        """A connection has opened."""
        self._connected_s = time.monotonic()

    def pause_s(self) -> float:
        """Seconds to wait before the next attempt; about twice as long each time, up to 1 s."""
        if self._connected_s is not None and time.monotonic() - self._connected_s >= HEALTHY_AFTER_S:
            self._pause_s = _FIRST_PAUSE_S
        self._connected_s = None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.0)


class WaitingLine:
    """That of one server. `bytes` of those who wait are bounded (`full`)."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether those who wait have as many bytes as all together may have."""
        return self.bytes >= _MOST_BYTES

    def join(self, serve: Callable[[], None]) -> None:
        """Call `serve` when it is its turn."""
        self._waiting.append(serve)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._serve)

    async def run(self, call: Callable[[], T]) -> T:
        """What a call returns or raises, when it is its turn."""
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
                # Who comes and goes frees as many old objects as he makes new ones. Python counts the
                # difference, so that it would look at 100,000 young ones at once, for 20 ms.
                gc.collect(1)
                spent = time.perf_counter() - began
                break
        self._due = bool(self._waiting)
        if self._due and spent < _SLICE_S:
            loop.call_soon(self._serve)
        elif self._due:
            loop.call_later(spent, self._serve)


def _settle(result: asyncio.Future[T], call: Callable[[], T]) -> None:
    """Make the call for who waits for its result, unless he has gone."""
    try:
        if not result.done():
            result.set_result(call())
    except Exception as error:
        result.set_exception(error)
    finally:
        del result  # as above

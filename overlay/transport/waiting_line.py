"""What a server does for those whom it does not trust yet, and for those who bring too little: one after the
other.

In the line stand the bytes of connections that have not proven who they are, the rest of what was more than a
turn of a connection, and requests of single calls. However many they are, all together have at most half of
the loop's time, in slices of about `_SLICE_S`: what else is ready waits for one slice, or for the one thing
in it that takes longer, a TLS handshake or a request.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")

_SLICE_S = 0.0005
_MOST_BYTES = 32 << 20


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

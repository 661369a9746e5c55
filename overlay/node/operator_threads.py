"""Runs functions in another thread until a deadline: a hanging operator holds the event loop no longer.

A thread serves one call at a time and is used again. A thread whose call passes its deadline is *abandoned*:
an exception is raised in it, which ends a loop of Python, and it ends with its call; a call that sleeps or is
in a library ends when that returns. What cannot be bounded from within a process: a library that keeps the
GIL holds every thread of it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_SWITCH_S = 0.0005
"""How long an abandoned thread that computes keeps the event loop from running; Python's default is 5 ms."""


class DeadlineError(Exception):
    """A call has not returned in time."""


class _Abandoned(BaseException):
    """Raised in a thread whose call has passed its deadline."""


class _Call:
    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class _Thread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="covey operators", daemon=True)
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()

    def run(self) -> None:
        try:
            while (call := self.calls.get()) is not None:
                try:
                    call.result = call.function()
                except BaseException as error:
                    call.error = error
                call.done.release()
                del call
        except _Abandoned:
            pass  # between two statements of this loop

    def abandon(self) -> None:
        self.calls.put(None)
        self.interrupt()

    def interrupt(self) -> None:
        if self.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.ident), ctypes.py_object(_Abandoned)
            )


class OperatorThreads:
    """The thread that serves calls, and those that were abandoned. All calls are of one thread."""

    def __init__(self) -> None:
        self._thread: _Thread | None = None
        self._abandoned: dict[str, list[_Thread]] = {}
        self._switch_s = sys.getswitchinterval()

    def run(self, name: str, function: Callable[[], Any], deadline_ns: int) -> Any:
        """What a function returns; it raises what that raises, and `DeadlineError` once its time is over.
        `name` is whose thread is abandoned then.
        """
        thread = self._thread
        if thread is None:
            thread = self._thread = _Thread()
            thread.start()
        call = _Call(function)
        thread.calls.put(call)
        if not call.done.acquire(timeout=deadline_ns / 1e9):
            self._thread = None
            thread.abandon()
            self._abandoned.setdefault(name, []).append(thread)
            sys.setswitchinterval(min(_SWITCH_S, self._switch_s))
            raise DeadlineError
        if call.error is not None:
            raise call.error
        return call.result

    def abandoned(self, name: str) -> int:
        """How many abandoned calls of a name go on. Those that can be interrupted are so once more."""
        threads = self._abandoned.get(name)
        if not threads:
            return 0
        threads[:] = [thread for thread in threads if thread.is_alive()]
        for thread in threads:
            thread.interrupt()
        if not threads:
            del self._abandoned[name]
            if not self._abandoned:
                sys.setswitchinterval(self._switch_s)
        return len(threads)

    def close(self) -> None:
        """End the thread that serves calls."""
        if self._thread is not None:
            self._thread.calls.put(None)
            self._thread = None

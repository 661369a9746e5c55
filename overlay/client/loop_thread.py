"""An event loop in a thread of its own, for clients of code that is not asynchronous.

A client answers its broker while its user computes: with its loop in the user's thread, a long computation
would be taken for a dead peer. The thread is a daemon, which an interpreter that exits does not wait for.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError as Cancelled
from contextlib import suppress
from typing import Any, Self, TypeVar

from covey.overlay.client.errors import ClosedError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines, from any other thread; `stop` waits `patience_s` seconds for those that still run, and
    cancels the others. A forked process has no such thread: there calls raise `ClosedError`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = os.getpid()
        self._accepting = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Once."""
        self.loop = asyncio.new_event_loop()
        self._accepting = True
        self._thread.start()
        return self

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    @property
    def started(self) -> bool:
        """Whether it has run, and may have ended."""
        return self._thread.ident is not None

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, or its exception. An interrupt cancels it. Before `start` and after
        `stop` it runs in the caller's thread, as far as it has to wait for nothing; `ClosedError` where it
        has, or was cancelled.
        """
        if os.getpid() != self._process:
            coroutine.close()
            raise ClosedError(f"{self.name} was opened before a fork: expected a new one in each process")
        with self._lock:
            accepted = self._accepting
            if accepted:
                future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        if not accepted:
            return self._run_at_once(coroutine)
        try:
            return future.result()
        except Cancelled:
            raise ClosedError(f"{self.name} was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def _run_at_once(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        coroutine.close()
        raise ClosedError(f"{self.name} is closed")

    def stop(self, patience_s: float = 0.0) -> None:
        """End the thread and return once it has ended. Several threads may call it, and again."""
        with self._lock:
            accepting, self._accepting = self._accepting, False
        if accepting:
            ending = asyncio.run_coroutine_threadsafe(_end_all(patience_s), self.loop)
            try:
                with suppress(Cancelled):
                    ending.result()
            finally:
                self.loop.call_soon_threadsafe(self.loop.stop)
        if self.started:
            self._thread.join()


async def _end_all(patience_s: float) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks and patience_s:
        _, tasks = await asyncio.wait(tasks, timeout=patience_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

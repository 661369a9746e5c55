"""Tasks beside others: awaited together, so that none delays the next, or repeated at a period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """Running tasks. Invariant: `join` raises the first failure of any, whenever it happened."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()

    async def join(self) -> None:
        """Wait for all tasks; no failure cancels the others."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # until their callbacks have run
        if self._failure is not None:
            raise self._failure


async def every(period_s: Callable[[], float], work: Callable[[], object]) -> None:
    """Call `work` again and again, and await it where it returns a coroutine; the next call is no earlier
    than a period after the last."""
    loop = asyncio.get_running_loop()
    while True:
        start = loop.time()
        result = work()
        if asyncio.iscoroutine(result):
            await result
        await asyncio.sleep(max(0.0, start + period_s() - loop.time()))

"""Tasks that start at their time and are awaited together, so that none delays the next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
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

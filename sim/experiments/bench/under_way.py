"""Work that is begun at its time and waited for together, so that none of it holds up the next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class UnderWay:
    """Tasks on their way. Invariant: the first failure of any is raised by `end`, whenever it happened."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()

    async def end(self) -> None:
        """Wait for all that was begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # until they have been taken note of
        if self._failure is not None:
            raise self._failure

"""Work that is finished although the bridge ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

GRACE_S = 5.0


async def finished(work: Coroutine[None, None, None]) -> None:
    """Await some work. Where this is cancelled, the work has `GRACE_S` seconds to end."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({task}, timeout=GRACE_S)
        task.cancel()
        raise

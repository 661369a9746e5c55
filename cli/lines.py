"""Lines of standard input for programs that do other things meanwhile, whatever stdin is: a terminal, a
pipe, a file."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator

_AHEAD = 1_024


async def stdin_lines() -> AsyncIterator[str]:
    """The lines, without their ends. Reading stops when whoever iterates does not keep up."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)

    def put(line: str | None) -> bool:
        room.acquire()
        try:
            loop.call_soon_threadsafe(queue.put_nowait, line)
        except RuntimeError:  # The loop has ended.
            return False
        return True

    def read() -> None:
        try:
            for line in sys.stdin:
                if not put(line.rstrip("\r\n")):
                    return
        except (ValueError, OSError):
            pass
        put(None)

    # A daemon, since nothing can end a read of a terminal.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while True:
        line = await queue.get()
        room.release()
        if line is None:
            return
        yield line

"""Lines for programs that do other things meanwhile: of standard input, whatever it is (a terminal, a pipe,
a file), and of what a process writes."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator

_AHEAD = 1_024
_LONGEST_BYTES = 16_384
_CHUNK_BYTES = 65_536


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


async def output_lines(output: asyncio.StreamReader, longest: int = _LONGEST_BYTES) -> AsyncIterator[str]:
    """The lines of a process's output, without their ends. A line of more than `longest` bytes is cut, and
    says so."""
    line, length = bytearray(), 0
    while chunk := await output.read(_CHUNK_BYTES):
        *ends, begun = chunk.split(b"\n")
        for end in ends:
            line += end[: longest - len(line)]
            yield _shown(line, length + len(end))
            line, length = bytearray(), 0
        line += begun[: longest - len(line)]
        length += len(begun)
    if length:
        yield _shown(line, length)


def _shown(line: bytes | bytearray, length: int) -> str:
    text = line.decode(errors="replace").rstrip()
    return text if length == len(line) else f"{text} ... ({length - len(line):,} more bytes)"

"""Waiting without blocking the loop: cancellation by signals, lines of standard input and of processes."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from io import TextIOWrapper
from typing import Any, TypeVar

import typer

T = TypeVar("T")

CONNECT_S = 5.0


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result. SIGINT and SIGTERM cancel it; without a result the command then exits
    with 128 plus the number of the first signal."""

    from covey.overlay.transport.event_loop import run

    async def until_signal() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
        signals: list[int] = []

        def stop(number: int) -> None:
            signals.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not signals:
                raise
            raise typer.Exit(128 + signals[0]) from None

    return run(until_signal())


_AHEAD = 1_024
_LONGEST_BYTES = 16_384
_CHUNK_BYTES = 65_536


async def stdin_lines() -> AsyncIterator[str]:
    """The lines of standard input, without line ends; undecodable bytes are lone surrogates. Reading pauses
    while the consumer lags."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)

    def put(line: str | None) -> bool:
        room.acquire()
        try:
            loop.call_soon_threadsafe(queue.put_nowait, line)
        except RuntimeError:  # the loop is closed
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

    if isinstance(sys.stdin, TextIOWrapper):  # else such bytes would end the input, with all read with them
        sys.stdin.reconfigure(errors="surrogateescape")
    # A daemon thread, since a read of a terminal cannot be interrupted.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while True:
        line = await queue.get()
        room.release()
        if line is None:
            return
        yield line


async def output_lines(output: asyncio.StreamReader, longest: int = _LONGEST_BYTES) -> AsyncIterator[str]:
    """The lines of a process's output, without line ends. A line longer than `longest` bytes is truncated,
    and ends with the number of bytes left out."""
    line, length = bytearray(), 0
    while chunk := await output.read(_CHUNK_BYTES):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line += end[: longest - len(line)]
            yield _shown(line, length + len(end))
            line, length = bytearray(), 0
        line += rest[: longest - len(line)]
        length += len(rest)
    if length:
        yield _shown(line, length)


def _shown(line: bytes | bytearray, length: int) -> str:
    text = line.decode(errors="replace").rstrip()
    return text if length == len(line) else f"{text} ... ({length - len(line):,} more bytes)"

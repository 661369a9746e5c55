"""A connection whose frames take time on their way, for overlays on one machine that stand for a wide one.

Jayaram et al., section 5.3, add 10 ms to every link. Each end of a link between brokers holds back what it
sends; for a client, which knows nothing of delays, its broker holds back both directions. Invariant: frames
leave in the order in which they came, none before its time, and at most `MOST_FRAMES` are on their way: then
who writes waits, and what is read stays where it is.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from types import TracebackType
from typing import Self

import grpc.aio

from covey.overlay.transport.pump import STREAM_ERRORS, Connection

MOST_FRAMES = 256

_Line = asyncio.Queue[tuple[float, bytes | BaseException]]


def delayed(
    connection: Connection, *, sent_s: float = 0.0, read_s: float = 0.0
) -> AbstractAsyncContextManager[Connection]:
    """The connection with delays in seconds, for as long as an `async with` block lasts; itself if there are
    none.
    """
    if not sent_s and not read_s:
        return nullcontext(connection)
    return Delayed(connection, sent_s, read_s)


class Delayed:
    """A `Connection` around another; leaving its context lets what was written arrive, if it still can."""

    def __init__(self, connection: Connection, sent_s: float, read_s: float) -> None:
        self._connection = connection
        self._sent_s = sent_s
        self._read_s = read_s
        self._out: _Line = asyncio.Queue(MOST_FRAMES)
        self._in: _Line = asyncio.Queue(MOST_FRAMES)
        self._error: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._carry())]
        if self._read_s:
            self._tasks.append(asyncio.create_task(self._fetch()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._sent_s + 1.0):
                await self._out.join()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def write(self, data: bytes) -> None:
        """Have the frame written when its time has come; raises what an earlier write has raised."""
        if self._error is not None:
            raise self._error
        await self._out.put((asyncio.get_running_loop().time() + self._sent_s, data))

    async def read(self) -> bytes:
        """The next frame, when its time has come; raises what reading has raised."""
        if not self._read_s:
            return await self._connection.read()
        due, data = await self._in.get()
        await _until(due)
        if isinstance(data, BaseException):
            raise data
        return data

    async def _carry(self) -> None:
        while True:
            due, data = await self._out.get()
            await _until(due)
            assert isinstance(data, bytes)
            if self._error is None:
                try:
                    await self._connection.write(data)
                except STREAM_ERRORS as error:
                    self._error = error
            self._out.task_done()

    async def _fetch(self) -> None:
        data: bytes | BaseException = b""
        while data is not grpc.aio.EOF and not isinstance(data, BaseException):
            try:
                data = await self._connection.read()
            except STREAM_ERRORS as error:
                data = error
            await self._in.put((asyncio.get_running_loop().time() + self._read_s, data))


async def _until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

"""What `peers` runs: a server that stores events, a publisher, and a reader that may go away.

A server is a process on this machine with an empty folder. Events are 128 bytes: a number, the time of
publishing in ns, and text. The reader acknowledges what it gets, and goes on after it or the server was away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from covey.matcher.errors import CoveyError
from covey.sim.experiments.local_overlay import free_addresses

TEXT = "x" * 112
WINDOW = 256
"""Events that are published and not confirmed, at full speed."""
_NUMBERS = struct.Struct("<qq")
_START_S = 60.0

Take = Callable[[int, int], None]
"""Called with the number and the time of each event that arrives."""


def body(number: int, sent_ns: int) -> bytes:
    """The bytes of an event, for systems without types."""
    return _NUMBERS.pack(number, sent_ns) + TEXT.encode()


def read_body(data: bytes) -> tuple[int, int]:
    """The number and the time."""
    number, sent_ns = _NUMBERS.unpack_from(data)
    return number, sent_ns


class Peer(ABC):
    """One system with one configuration; `storing` says what it does before it confirms an event."""

    label: str
    program: str
    storing: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (address,) = free_addresses(1)
        self.port = int(address.rpartition(":")[2])
        self._process: asyncio.subprocess.Process | None = None

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command of the server, whose files are in `folder` and which listens at `port`."""

    def environment(self) -> Mapping[str, str]:
        return {}

    @abstractmethod
    async def ready(self) -> None:
        """Connect and close; any exception means that the server does not serve yet."""

    @abstractmethod
    async def open_publisher(self) -> None:
        """Connect a publisher."""

    @abstractmethod
    async def publish(self, number: int, sent_ns: int) -> None:
        """Returns when the server has confirmed the event."""

    @abstractmethod
    async def close_publisher(self) -> None:
        """Disconnect it."""

    @abstractmethod
    async def open_reader(self, take: Take) -> None:
        """Connect the reader, by the name it had before."""

    @abstractmethod
    async def close_reader(self) -> None:
        """Disconnect it; what is published from now on waits for it."""

    async def publish_many(self, first: int, count: int, now_ns: Callable[[], int]) -> None:
        """So many events, as fast as the system takes them; returns when all are confirmed."""
        room = asyncio.Semaphore(WINDOW)

        async def publish(number: int) -> None:
            try:
                await self.publish(number, now_ns())
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:
            for number in range(first, first + count):
                await room.acquire()
                group.create_task(publish(number))

    async def start(self) -> None:
        """Start the server. `CoveyError` if it does not serve within a minute."""
        with (self.folder / "output").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.command(),
                env={**os.environ, **self.environment()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        deadline = asyncio.get_running_loop().time() + _START_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return await asyncio.wait_for(self.ready(), 5)
            except Exception as error:
                said = (self.folder / "output").read_text(errors="replace")[-500:]
                if self._process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                    raise CoveyError(f"{self.label} does not serve: {error!r}\n{said}") from None
            await asyncio.sleep(0.1)

    async def end(self, how: signal.Signals) -> None:
        """Send the server's processes a signal; those that it leaves behind are killed."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 20)
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None

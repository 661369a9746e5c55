"""A test's own mosquitto, at a free port, and bridges to it in this process."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from running import free_ports, until

if TYPE_CHECKING:
    from covey.bridge.mqtt_session import Counts

PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_mosquitto = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed (Debian: mosquitto)")


class Mosquitto:
    """It keeps its storage in `folder` over restarts; `lines` are added to its configuration."""

    def __init__(self, folder: Path, *lines: str, port: int | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self._file = folder / f"mosquitto-{self.port}.conf"
        store = folder / f"mosquitto-{self.port}"
        store.mkdir()
        settings = (
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "max_queued_messages 0",
            "persistence true",
            f"persistence_location {store}/",
            f"user {getpass.getuser()}",
            *lines,
        )
        self._file.write_text("\n".join(settings) + "\n")
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        assert PROGRAM is not None
        quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.DEVNULL)
        self._process = await asyncio.create_subprocess_exec(PROGRAM, "-c", str(self._file), **quiet)
        await until(self._serves, "mosquitto")

    async def _serves(self) -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return True
        return False

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """SIGTERM has it store its sessions' messages."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()


@asynccontextmanager
async def bridge(file: Path, broker: str, mapping: str, **options: Any) -> AsyncIterator[Counts]:
    """A bridge of a mapping, written to the file, once it is ready."""
    from covey.bridge.mqtt import run_mqtt_bridge
    from covey.bridge.mqtt_session import Counts

    file.write_text(mapping)
    counts, ready = Counts(), asyncio.Event()
    running = asyncio.create_task(run_mqtt_bridge(file, broker, counts=counts, ready=ready.set, **options))
    await until(lambda: ready.is_set() or running.done(), "a bridge")
    if running.done():
        running.result()
    try:
        yield counts
    finally:
        running.cancel()
        await asyncio.wait({running})
    if not running.cancelled():
        running.result()

"""Mosquitto as `peers` runs it: MQTT with QoS 1, a persistent session, persistence."""

from __future__ import annotations

import asyncio
import getpass
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from benchmarks.peer import WINDOW, Peer, Take, body, read_body

_TOPIC = "order/IBM"
_log = logging.getLogger("covey.mqtt")
_log.setLevel(logging.ERROR)  # it warns of more than ten publishes in flight


class Mosquitto(Peer):
    """With the default of its persistence."""

    label = "Mosquitto"
    program = "mosquitto"
    storing = "memory; a file of all every 30 minutes (persistence, autosave_interval, the default)"

    def command(self) -> Sequence[str]:
        file = self.folder / "mosquitto.conf"
        file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
            f"max_inflight_messages {WINDOW}\npersistence true\npersistence_location {self.folder}/\n"
            f"user {getpass.getuser()}\n"
        )
        return [self.program, "-c", str(file)]

    def _client(self, name: str) -> Any:
        import aiomqtt

        return aiomqtt.Client(
            "127.0.0.1",
            self.port,
            identifier=name,
            clean_session=False,
            logger=_log,
            max_inflight_messages=WINDOW,
            max_concurrent_outgoing_calls=2 * WINDOW,
        )

    async def ready(self) -> None:
        async with self._client("reader") as client:
            await client.subscribe(_TOPIC, qos=1)

    async def open_publisher(self) -> None:
        self._publisher = self._client("publisher")
        await self._publisher.__aenter__()

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._publisher.publish(_TOPIC, body(number, sent_ns), qos=1, timeout=60)

    async def close_publisher(self) -> None:
        with suppress(Exception):  # the server may be gone
            await self._publisher.__aexit__(None, None, None)

    async def open_reader(self, take: Take) -> None:
        self._reader = self._client("reader")
        await self._reader.__aenter__()
        await self._reader.subscribe(_TOPIC, qos=1)

        async def read() -> None:
            async for message in self._reader.messages:
                take(*read_body(message.payload))

        self._reading = asyncio.create_task(read())

    async def close_reader(self) -> None:
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        await self._reader.__aexit__(None, None, None)

"""What `lone` runs: one server of each system that stores nothing, and the clients that Python has for it.

Events are 128 bytes, as those of `peers`: a number, the time of publishing in ns, and text.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from benchmarks.lone_relay import Frames
from benchmarks.peer import TEXT, body, read_body
from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.sim.experiments.local_overlay import LocalOverlay, free_addresses

ORDER = EventType("Order", {"firm": "string", "number": "int64", "sent_ns": "int64", "text": "string"})
FILTER = 'firm == "IBM"'
_START_S = 20.0


class Server:
    """A process that serves at `address` while the block runs."""

    def __init__(self, *command: str) -> None:
        (self.address,) = free_addresses(1)
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        port = self.address.rpartition(":")[2]
        self._process = await asyncio.create_subprocess_exec(
            *(part.replace("PORT", port) for part in self._command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            process_group=0,
        )
        deadline = asyncio.get_running_loop().time() + _START_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", int(port))
            except OSError:
                if self._process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                    raise CoveyError(f"{self._command[0]} does not serve") from None
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        await self._process.wait()

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid


class System(ABC):
    """A client of one system. `publish` returns as soon as the client library lets it."""

    label: str

    @staticmethod
    @abstractmethod
    async def serve(stack: AsyncExitStack, folder: Path) -> tuple[str, int]:
        """Start a server until the stack ends: its address and its process."""

    @abstractmethod
    async def open(self, address: str) -> None:
        """Connect."""

    @abstractmethod
    async def publish(self, number: int, sent_ns: int) -> None:
        """One event."""

    @abstractmethod
    async def read(self, take: Callable[[int, int], None]) -> None:
        """Subscribe; from then on `take` gets the number and the time of each event."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect, once the server has what was published."""


class Covey(System):
    label = "Covey"

    @staticmethod
    async def serve(stack: AsyncExitStack, folder: Path) -> tuple[str, int]:
        overlay = await stack.enter_async_context(LocalOverlay((), event_types=[ORDER]))
        return overlay.addresses["b1"], overlay.process_ids()["b1"]

    async def open(self, address: str) -> None:
        self._client = Client(address)
        self._reading: asyncio.Task[None] | None = None
        await self._client.open()
        await self._client.advertise(ORDER)

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._client.publish("Order", firm="IBM", number=number, sent_ns=sent_ns, text=TEXT)

    async def read(self, take: Callable[[int, int], None]) -> None:
        subscription = await self._client.subscribe(ORDER, FILTER)

        async def events() -> None:
            async for event in subscription:
                take(event["number"], event["sent_ns"])

        self._reading = asyncio.create_task(events())

    async def close(self) -> None:
        await self._client.close()
        if self._reading is not None:
            await self._reading


class Nats(System):
    label = "NATS, nats-py"

    @staticmethod
    async def serve(stack: AsyncExitStack, folder: Path) -> tuple[str, int]:
        server = await stack.enter_async_context(Server("nats-server", "-a", "127.0.0.1", "-p", "PORT"))
        return server.address, server.process_id

    async def open(self, address: str) -> None:
        import nats

        self._client: Any = await nats.connect(f"nats://{address}", allow_reconnect=False)

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._client.publish("order.IBM", body(number, sent_ns))

    async def read(self, take: Callable[[int, int], None]) -> None:
        async def arrived(message: Any) -> None:
            take(*read_body(message.data))

        await self._client.subscribe(
            "order.IBM", cb=arrived, pending_msgs_limit=1 << 24, pending_bytes_limit=1 << 32
        )
        await self._client.flush()

    async def close(self) -> None:
        await self._client.flush()
        await self._client.close()


class Mosquitto(System):
    label = "mosquitto, gmqtt"

    @staticmethod
    async def serve(stack: AsyncExitStack, folder: Path) -> tuple[str, int]:
        file = folder / "mosquitto.conf"
        server = Server("mosquitto", "-c", str(file))
        file.write_text(
            f"listener {server.address.rpartition(':')[2]} 127.0.0.1\nallow_anonymous true\n"
            f"max_queued_messages 0\nuser {getpass.getuser()}\n"
        )
        await stack.enter_async_context(server)
        return server.address, server.process_id

    async def open(self, address: str) -> None:
        from gmqtt import Client as MqttClient

        self._client: Any = MqttClient(f"lone-{os.getpid()}")
        self._subscribed = asyncio.Event()
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        await self._client.connect("127.0.0.1", int(address.rpartition(":")[2]))

    async def publish(self, number: int, sent_ns: int) -> None:
        self._client.publish("order/IBM", body(number, sent_ns), qos=0)

    async def read(self, take: Callable[[int, int], None]) -> None:
        def arrived(_client: Any, _topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
            take(*read_body(payload))
            return 0

        self._client.on_message = arrived
        self._client.subscribe("order/IBM", qos=0)
        await self._subscribed.wait()

    async def close(self) -> None:
        await asyncio.sleep(0.1)
        await self._client.disconnect()


class Sockets(System):
    label = "relay of bytes in Python"

    @staticmethod
    async def serve(stack: AsyncExitStack, folder: Path) -> tuple[str, int]:
        command = (sys.executable, "-m", "benchmarks.lone_relay", "PORT")
        server = await stack.enter_async_context(Server(*command))
        return server.address, server.process_id

    async def open(self, address: str) -> None:
        port = int(address.rpartition(":")[2])
        loop = asyncio.get_running_loop()
        _, self._frames = await loop.create_connection(Frames, "127.0.0.1", port)

    async def publish(self, number: int, sent_ns: int) -> None:
        self._frames.send(body(number, sent_ns))

    async def read(self, take: Callable[[int, int], None]) -> None:
        self._frames.take = lambda frame: take(*read_body(frame))

    async def close(self) -> None:
        await asyncio.sleep(0.1)
        self._frames.transport.close()


SYSTEMS: dict[str, type[System]] = {
    "covey": Covey,
    "sockets": Sockets,
    "nats": Nats,
    "mosquitto": Mosquitto,
}

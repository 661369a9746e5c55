"""The systems of `peers` and `lone`: a server on this machine with an empty folder, a publisher and a reader.
Events are 128 bytes: a number, the time of publishing in ns, and text.

The server of a system in `DURABLE` stores events before it confirms them, and the reader acknowledges, and
resumes after an absence of it or the server: Covey with one broker, a durable type and a durable session;
Mosquitto (MQTT) with QoS 1, a persistent session and persistence; NATS JetStream with a stream in files,
retention by interest, a durable consumer and explicit acks; RabbitMQ with a quorum queue of one member, a
topic and publisher confirms. Systems in `FLEETING` store nothing, and `publish` returns as soon as the client
library does.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.bench.relays import Messages
from covey.sim.experiments.local_overlay import LocalOverlay, free_addresses

TEXT = "x" * 112
WINDOW = 256
"""Unconfirmed events in flight at full speed."""
ORDER = EventType("Order", {"firm": "string", "number": "int64", "sent_ns": "int64", "text": "string"})
FILTER = 'firm == "IBM"'
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


@asynccontextmanager
async def _meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class System(ABC):
    """One system with one configuration. `storing` describes what it does before it confirms an event. The
    server's files are in `folder`; clients in other processes have `port` alone."""

    label: str
    program: str
    package = ""
    storing = "nothing"

    def __init__(self, folder: Path = Path(), port: int = 0) -> None:
        self.folder = folder
        self.port = port or int(free_addresses(1)[0].rpartition(":")[2])
        self._process: asyncio.subprocess.Process | None = None

    @classmethod
    def missing(cls) -> str:
        """Why it cannot run here, or ""."""
        if cls.program == "covey":
            return ""
        if shutil.which(cls.program) is None:
            return f"{cls.program} is not on the PATH: expected an installed server"
        if find_spec(cls.package) is None:
            return f"{cls.package}, the client of {cls.program}, is missing: `pip install 'covey[bench]'`"
        return ""

    def command(self) -> Sequence[str]:
        """The command of the server, which listens at `port`; Covey's is a `LocalOverlay`'s."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    async def ready(self) -> None:  # noqa: B027
        """Connect and close, if accepting connections is not enough; any exception means that the server is
        not serving yet."""

    @abstractmethod
    def publisher(self) -> AbstractAsyncContextManager[None]:
        """A publisher is connected during the block, and `publish` uses it."""

    @abstractmethod
    async def publish(self, number: int, sent_ns: int) -> None:
        """Returns when the server has confirmed the event, if it stores events."""

    @abstractmethod
    def reader(self, take: Take) -> AbstractAsyncContextManager[None]:
        """The reader is connected during the block, always by the same name; later events wait for it."""

    async def publish_many(self, first: int, count: int, now_ns: Callable[[], int]) -> None:
        """Publish as fast as the system takes events; returns when all are confirmed."""
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

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

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
        """Send the server's processes a signal; any that remain are killed."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 20)
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None


class Covey(System):
    """Single events."""

    label = "Covey"
    program = "covey"
    storing = "fdatasync, one for all events that have arrived"
    durable: Sequence[str] = (ORDER.name,)
    _overlay: LocalOverlay | None = None

    async def start(self) -> None:
        if self._overlay is not None:
            return await self._overlay.start("b1")
        self._overlay = LocalOverlay((), event_types=[ORDER], durable=self.durable)
        await self._overlay.__aenter__()
        self.port = int(self._overlay.addresses["b1"].rpartition(":")[2])

    async def end(self, how: signal.Signals) -> None:
        if self._overlay is not None:
            await (self._overlay.kill("b1") if how is signal.SIGKILL else self._overlay.stop())

    @property
    def process_id(self) -> int:
        assert self._overlay is not None
        return self._overlay.process_ids()["b1"]

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[None]:
        async with Client(self._address) as self._publisher:
            await self._publisher.advertise(ORDER)
            yield

    async def publish(self, number: int, sent_ns: int) -> None:
        values = {"firm": "IBM", "number": number, "sent_ns": sent_ns, "text": TEXT}
        await self._publisher.publish(ORDER.name, values, confirm=True)

    async def publish_many(self, first: int, count: int, now_ns: Callable[[], int]) -> None:
        for number in range(first, first + count):
            values = {"firm": "IBM", "number": number, "sent_ns": now_ns(), "text": TEXT}
            await self._publisher.publish(ORDER.name, values)
        await self._publisher.flush()

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        async def read() -> None:
            async for batch in subscription.batches():
                columns = batch.record_batch
                numbers, times = (columns.column(name).to_pylist() for name in ("number", "sent_ns"))
                for number, sent_ns in zip(numbers, times, strict=True):
                    take(number, sent_ns)

        async with Client(self._address, "reader", durable=True) as client:
            subscription = await client.subscribe(ORDER, FILTER)
            async with _meanwhile(read()):
                yield


class CoveyBatches(Covey):
    """Arrow batches of as many events as others have in flight."""

    label = "Covey, in batches"

    async def publish_many(self, first: int, count: int, now_ns: Callable[[], int]) -> None:
        for at in range(first, first + count, WINDOW):
            size = min(WINDOW, first + count - at)
            numbers = pa.array(np.arange(at, at + size))
            times = pa.array(np.full(size, now_ns()))
            columns = [pa.array(["IBM"] * size), numbers, times, pa.array([TEXT] * size)]
            batch = pa.record_batch(columns, schema=ORDER.arrow_schema)
            await self._publisher.publish_batch(ORDER.name, batch)
        await self._publisher.flush()


class FleetingCovey(Covey):
    """Without durable types."""

    storing = "nothing"
    durable = ()

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._publisher.publish("Order", firm="IBM", number=number, sent_ns=sent_ns, text=TEXT)

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        async def read() -> None:
            async for event in subscription:
                take(event["number"], event["sent_ns"])

        async with Client(self._address) as client:
            subscription = await client.subscribe(ORDER, FILTER)
            async with _meanwhile(read()):
                yield


_TOPIC = "order/IBM"
_MQTT_LOG = logging.getLogger("covey.mqtt")
_MQTT_LOG.setLevel(logging.ERROR)  # it warns of more than ten publishes in flight


class Mosquitto(System):
    """With the default of its persistence."""

    label = "Mosquitto"
    program = "mosquitto"
    package = "aiomqtt"
    storing = "memory; a file of all every 30 minutes (persistence, autosave_interval, the default)"

    def command(self) -> Sequence[str]:
        return self._configured(
            f"max_inflight_messages {WINDOW}\npersistence true\npersistence_location {self.folder}/\n"
        )

    def _configured(self, more: str = "") -> Sequence[str]:
        file = self.folder / "mosquitto.conf"
        file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
            f"user {getpass.getuser()}\n{more}"
        )
        return [self.program, "-c", str(file)]

    def _client(self, name: str) -> Any:
        import aiomqtt

        return aiomqtt.Client(
            "127.0.0.1",
            self.port,
            identifier=name,
            clean_session=False,
            logger=_MQTT_LOG,
            max_inflight_messages=WINDOW,
            max_concurrent_outgoing_calls=2 * WINDOW,
        )

    async def ready(self) -> None:
        async with self._client("reader") as client:
            await client.subscribe(_TOPIC, qos=1)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[None]:
        async with self._client("publisher") as self._publisher:
            yield

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._publisher.publish(_TOPIC, body(number, sent_ns), qos=1, timeout=60)

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        async def read() -> None:
            async for message in client.messages:
                take(*read_body(message.payload))

        async with self._client("reader") as client:
            await client.subscribe(_TOPIC, qos=1)
            async with _meanwhile(read()):
                yield


class FleetingMosquitto(Mosquitto):
    """With QoS 0."""

    label = "mosquitto, gmqtt"
    package = "gmqtt"
    storing = "nothing"

    def command(self) -> Sequence[str]:
        return self._configured()

    async def ready(self) -> None:
        """Accepting connections is enough."""

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[None]:
        from gmqtt import Client as MqttClient

        self._mqtt: Any = MqttClient(f"lone-{os.getpid()}")
        await self._mqtt.connect("127.0.0.1", self.port)
        yield
        await asyncio.sleep(0.1)
        await self._mqtt.disconnect()

    async def publish(self, number: int, sent_ns: int) -> None:
        self._mqtt.publish(_TOPIC, body(number, sent_ns), qos=0)

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        def arrived(_client: Any, _topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
            take(*read_body(payload))
            return 0

        async with self.publisher():
            subscribed = asyncio.Event()
            self._mqtt.on_subscribe = lambda *_: subscribed.set()
            self._mqtt.on_message = arrived
            self._mqtt.subscribe(_TOPIC, qos=0)
            await subscribed.wait()
            yield


_SUBJECT = "order.IBM"


class FleetingNats(System):
    """Without JetStream."""

    label = "NATS, nats-py"
    program = "nats-server"
    package = "nats"

    def command(self) -> Sequence[str]:
        return [self.program, "-a", "127.0.0.1", "-p", str(self.port)]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        import nats

        async def quiet(_: Exception) -> None:
            """Exceptions are raised as well."""

        address = f"nats://127.0.0.1:{self.port}"
        connection = await nats.connect(address, allow_reconnect=False, error_cb=quiet)
        try:
            yield connection
            await connection.flush()
        finally:
            await connection.close()

    async def ready(self) -> None:
        async with self._connected():
            pass

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[None]:
        async with self._connected() as self._publisher:
            yield

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._publisher.publish(_SUBJECT, body(number, sent_ns))

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        async def arrived(message: Any) -> None:
            take(*read_body(message.data))

        async with self._connected() as connection:
            limits = {"pending_msgs_limit": 1 << 24, "pending_bytes_limit": 1 << 32}
            await connection.subscribe(_SUBJECT, cb=arrived, **limits)
            await connection.flush()
            yield


class JetStream(FleetingNats):
    """With the default of the server."""

    label = "NATS JetStream"
    storing = "write; fsync every 2 minutes (sync_interval, the default)"
    sync_interval = "2m"

    @classmethod
    def missing(cls) -> str:
        if why := super().missing():
            return why
        with tempfile.TemporaryDirectory(prefix="covey-") as folder:
            command = [*cls(Path(folder)).command(), "-t"]
            tested = subprocess.run(command, capture_output=True, text=True, check=False)
        if not tested.returncode:
            return ""
        said = (tested.stdout + tested.stderr).strip()
        return f"{cls.program} does not take its configuration: expected a newer one (sync_interval): {said}"

    def command(self) -> Sequence[str]:
        file = self.folder / "nats.conf"
        file.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{store_dir: "{self.folder}", sync_interval: {self.sync_interval}}}\n'
        )
        return [self.program, "-c", str(file)]

    async def ready(self) -> None:
        from nats.js.api import RetentionPolicy, StorageType
        from nats.js.errors import NotFoundError

        async with self._connected() as connection:
            stream = connection.jetstream()
            try:
                await stream.stream_info("orders")
            except NotFoundError:
                options = {"storage": StorageType.FILE, "retention": RetentionPolicy.INTEREST}
                await stream.add_stream(name="orders", subjects=["order.*"], **options)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[None]:
        async with self._connected() as connection:
            self._stream = connection.jetstream(timeout=30)
            yield

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._stream.publish(_SUBJECT, body(number, sent_ns))

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        from nats.js.api import ConsumerConfig

        async def arrived(message: Any) -> None:
            take(*read_body(message.data))
            await message.ack()

        async with self._connected() as connection:
            await connection.jetstream().subscribe(
                _SUBJECT,
                durable="reader",
                stream="orders",
                cb=arrived,
                manual_ack=True,
                config=ConsumerConfig(max_ack_pending=4 * WINDOW, ack_wait=30),
            )
            yield


class JetStreamAlways(JetStream):
    """With a sync before each confirmation."""

    label = "NATS JetStream, synced"
    storing = "fsync of each event (sync_interval: always)"
    sync_interval = "always"


for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they log what they raise


class RabbitMq(System):
    """A quorum queue; classic queues sync at intervals."""

    label = "RabbitMQ"
    program = "rabbitmq-server"
    package = "aio_pika"
    storing = "fsync of the log, one for all events that have arrived (a quorum queue of one member)"

    def command(self) -> Sequence[str]:
        return [self.program]

    def environment(self) -> Mapping[str, str]:
        if not hasattr(self, "_ports"):
            self._ports = [address.rpartition(":")[2] for address in free_addresses(2)]
        folder = str(self.folder)
        (self.folder / "plugins").write_text("[].")
        return {
            "HOME": folder,
            "RABBITMQ_NODENAME": f"covey-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": self._ports[0],
            "ERL_EPMD_PORT": self._ports[1],
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
        }

    async def end(self, how: signal.Signals) -> None:
        await super().end(how)
        # The port mapper of Erlang has left the server's processes.
        environment = {**os.environ, **self.environment()}
        subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)

    async def _connect(self) -> Any:
        import aio_pika

        return await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self.port}/")

    async def ready(self) -> None:
        async with await self._connect() as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("orders", "topic", durable=True)
            queue = await channel.declare_queue("reader", durable=True, arguments={"x-queue-type": "quorum"})
            await queue.bind(exchange, _SUBJECT)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[None]:
        async with await self._connect() as connection:
            channel = await connection.channel(publisher_confirms=True)
            self._exchange = await channel.get_exchange("orders")
            yield

    async def publish(self, number: int, sent_ns: int) -> None:
        import aio_pika

        message = aio_pika.Message(body(number, sent_ns), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, _SUBJECT)

    @asynccontextmanager
    async def reader(self, take: Take) -> AsyncIterator[None]:
        async def arrived(message: Any) -> None:
            take(*read_body(message.body))
            await message.ack()

        async with await self._connect() as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=4 * WINDOW)
            await (await channel.get_queue("reader")).consume(arrived)
            yield


class Relay(asyncio.Protocol):
    """A connection of a process that copies every chunk to all other connections unread: the least cost of
    any broker in Python."""

    def __init__(self, others: set[Relay]) -> None:
        self._others = others
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._others.add(self)

    def data_received(self, data: bytes) -> None:
        for other in self._others:
            if other is not self:
                other.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._others.discard(self)


async def _relay(port: int) -> None:
    others: set[Relay] = set()
    server = await asyncio.get_running_loop().create_server(lambda: Relay(others), "127.0.0.1", port)
    await server.serve_forever()


class Sockets(System):
    label = "relay of bytes in Python"
    program = "covey"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.systems", str(self.port)]

    @asynccontextmanager
    async def publisher(self, take: Callable[[bytes], None] | None = None) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_connection(lambda: Messages(take), "127.0.0.1", self.port)
        yield
        await asyncio.sleep(0.1)
        self._connection.transport.close()

    async def publish(self, number: int, sent_ns: int) -> None:
        self._connection.write(body(number, sent_ns))

    def reader(self, take: Take) -> AbstractAsyncContextManager[None]:
        return self.publisher(lambda message: take(*read_body(message)))


DURABLE: tuple[type[System], ...] = (Covey, CoveyBatches, JetStream, JetStreamAlways, RabbitMq, Mosquitto)
FLEETING: dict[str, type[System]] = {
    "covey": FleetingCovey,
    "sockets": Sockets,
    "nats": FleetingNats,
    "mosquitto": FleetingMosquitto,
}
INSTALLED: Mapping[str, tuple[str, ...]] = {"installed": ()}
"""The word of an option for all systems that can run here."""

if __name__ == "__main__":
    run(_relay(int(sys.argv[1])))

"""NATS JetStream as `peers` runs it: a stream in files, a durable consumer, explicit acks.

The stream keeps events while a consumer wants them (retention by interest), as the others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.peer import WINDOW, Peer, Take, body, read_body

_SUBJECT = "order.IBM"


class JetStream(Peer):
    """With the default of the server."""

    label = "NATS JetStream"
    program = "nats-server"
    storing = "write; fsync every 2 minutes (sync_interval, the default)"
    sync_interval = "2m"

    def command(self) -> Sequence[str]:
        file = self.folder / "nats.conf"
        file.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{store_dir: "{self.folder}", sync_interval: {self.sync_interval}}}\n'
        )
        return [self.program, "-c", str(file)]

    async def _connect(self) -> Any:
        import nats

        async def quiet(_: Exception) -> None:
            """Exceptions are raised as well."""

        return await nats.connect(
            f"nats://127.0.0.1:{self.port}", allow_reconnect=False, error_cb=quiet
        )

    async def ready(self) -> None:
        from nats.js.api import RetentionPolicy, StorageType
        from nats.js.errors import NotFoundError

        connection = await self._connect()
        try:
            stream = connection.jetstream()
            try:
                await stream.stream_info("orders")
            except NotFoundError:
                await stream.add_stream(
                    name="orders",
                    subjects=["order.*"],
                    storage=StorageType.FILE,
                    retention=RetentionPolicy.INTEREST,
                )
        finally:
            await connection.close()

    async def open_publisher(self) -> None:
        self._publisher = await self._connect()
        self._stream = self._publisher.jetstream(timeout=30)

    async def publish(self, number: int, sent_ns: int) -> None:
        await self._stream.publish(_SUBJECT, body(number, sent_ns))

    async def close_publisher(self) -> None:
        await self._publisher.close()

    async def open_reader(self, take: Take) -> None:
        from nats.js.api import ConsumerConfig

        self._reader = await self._connect()

        async def arrived(message: Any) -> None:
            take(*read_body(message.data))
            await message.ack()

        await self._reader.jetstream().subscribe(
            _SUBJECT,
            durable="reader",
            stream="orders",
            cb=arrived,
            manual_ack=True,
            config=ConsumerConfig(max_ack_pending=4 * WINDOW, ack_wait=30),
        )

    async def close_reader(self) -> None:
        await self._reader.flush()
        await self._reader.close()


class JetStreamAlways(JetStream):
    """With a sync before each confirmation."""

    label = "NATS JetStream, synced"
    storing = "fsync of each event (sync_interval: always)"
    sync_interval = "always"

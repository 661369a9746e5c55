"""RabbitMQ as `peers` runs it: a quorum queue of one member, a topic, publisher confirms."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peer import WINDOW, Peer, Take, body, read_body
from covey.sim.experiments.local_overlay import free_addresses

_TOPIC = "order.IBM"
for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they log what they raise


class RabbitMq(Peer):
    """A quorum queue; classic queues sync at intervals."""

    label = "RabbitMQ"
    program = "rabbitmq-server"
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
        connection = await self._connect()
        channel = await connection.channel()
        exchange = await channel.declare_exchange("orders", "topic", durable=True)
        queue = await channel.declare_queue("reader", durable=True, arguments={"x-queue-type": "quorum"})
        await queue.bind(exchange, _TOPIC)
        await connection.close()

    async def open_publisher(self) -> None:
        self._publisher = await self._connect()
        channel = await self._publisher.channel(publisher_confirms=True)
        self._exchange = await channel.get_exchange("orders")

    async def publish(self, number: int, sent_ns: int) -> None:
        import aio_pika

        message = aio_pika.Message(body(number, sent_ns), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, _TOPIC)

    async def close_publisher(self) -> None:
        await self._publisher.close()

    async def open_reader(self, take: Take) -> None:
        self._reader = await self._connect()
        channel = await self._reader.channel()
        await channel.set_qos(prefetch_count=4 * WINDOW)

        async def arrived(message: Any) -> None:
            take(*read_body(message.body))
            await message.ack()

        await (await channel.get_queue("reader")).consume(arrived)

    async def close_reader(self) -> None:
        await self._reader.close()

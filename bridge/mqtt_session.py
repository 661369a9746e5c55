"""The bridge's session at an MQTT broker, over any number of connections. Invariants: unread messages are
bounded by `MOST_MESSAGES` and `MOST_BYTES`. Beyond that, messages of QoS 0 are dropped and counted; those of
QoS 1 stay unacknowledged, and come again with a new connection, which begins when the waiting ones have been
read. Some MQTT brokers exceed the receive maximum (mosquitto 2.0.11, after a reconnection). A message is
acknowledged on the connection that brought it, or never."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from aiomqtt import MqttError
from paho.mqtt.subscribeoptions import SubscribeOptions

from covey.bridge.mqtt_connection import Connection, Incoming, Outgoing
from covey.overlay import ConnectError
from covey.overlay.transport.event_loop import Backoff

log = logging.getLogger("covey.bridge")

MOST_MESSAGES = 10_000
MOST_BYTES = 16 << 20
CONNECT_S = 5.0
GRACE_S = 5.0
_BATCH = 1_000
_WINDOW = 100
"""Messages that one rule publishes at a time."""


@dataclass(slots=True)
class Counts:
    """Counters that only grow: first of messages from the other system, then of events for it."""

    received: int = 0  # messages that rules or variables are for
    published: int = 0  # events that Covey was given, and has not refused
    malformed: int = 0  # no events of the type of a rule, or no values of a variable: once for each
    ignored: int = 0  # messages of a bridge, or of topics that no rule is for
    dropped: int = 0  # messages of QoS 0 for which there was no room, since Covey was away or slow
    refusals: int = 0  # batches of which Covey has refused events
    delivered: int = 0  # events of Covey's subscriptions
    missed: int = 0  # events that Covey has dropped, since the other side was away or slow
    unfit: int = 0  # events with values that cannot be in a topic
    sent: int = 0  # messages that were acknowledged; of QoS 0, that were written
    rejected: int = 0  # messages that the other side has refused

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name):,}" for field in fields(self))


async def finished(work: Coroutine[None, None, None]) -> None:
    """Await work that has `GRACE_S` seconds to end when the bridge is cancelled."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({task}, timeout=GRACE_S)
        task.cancel()
        raise


class MqttSession:
    """An async context manager; its block begins when the MQTT broker has accepted the subscriptions.
    `ConnectError` if it has not in `CONNECT_S` seconds. `clean` drops an earlier session, with its
    subscriptions. `options` are those of aiomqtt's client."""

    def __init__(
        self,
        options: Mapping[str, Any],
        expiry_s: int,
        filters: Mapping[str, SubscribeOptions],
        counts: Counts,
        *,
        clean: bool = False,
    ) -> None:
        self._options = options
        self._expiry_s = expiry_s
        self._filters = filters
        self.counts = counts
        self._clean = clean
        self._backoff = Backoff()
        self._why = "no answer"
        self._connection: Connection | None = None
        self._is_open = asyncio.Event()
        self._inbox: deque[Incoming] = deque()
        self._bytes = 0
        self._arrival = asyncio.Event()
        self._unread: int | None = None
        """Set once a message of QoS 1 stays unacknowledged: the messages to read before the next
        connection."""
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await self._connect()
        except TimeoutError:
            where = f"{self._options['hostname']}:{self._options['port']}"
            raise ConnectError(f"no MQTT broker serves this bridge at {where}: {self._why}") from None
        self._keeper = asyncio.create_task(self._keep(connection), name="covey bridge mqtt")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.wait({self._keeper})
        if self._connection is not None:
            await self._connection.close()

    async def kept(self) -> None:
        """Never returns; raises unexpected errors."""
        assert self._keeper is not None
        await asyncio.shield(self._keeper)

    # --- connections ----------------------------------------------------------------------------------------

    async def _connect(self) -> Connection:
        while True:
            connection = Connection(
                self._options,
                self._expiry_s,
                clean=self._clean,
                arrived=self._arrived,
                published=self._published,
            )
            self._connection = connection  # messages come before the subscriptions are accepted
            try:
                await connection.open(self._filters)
            except MqttError as error:
                self._forget()
                if str(error) != self._why:
                    self._why = str(error)
                    log.warning("the MQTT broker: %s; retrying", self._why)
                await asyncio.sleep(self._backoff.pause_s())
            else:
                self._clean = False
                self._backoff.connected()
                self._is_open.set()
                self._arrival.set()
                return connection

    async def _keep(self, connection: Connection) -> None:
        while True:
            self._why = await connection.lost()
            self._is_open.clear()
            self._forget()
            log.warning("the connection to the MQTT broker is lost: %s; reconnecting", self._why)
            await connection.close()
            await asyncio.sleep(self._backoff.pause_s())
            connection = await self._connect()
            log.info("connected to the MQTT broker again")

    def _forget(self) -> None:
        self._connection, self._unread = None, None
        self._inbox = deque(message for message in self._inbox if not message.qos)
        self._bytes = sum(message.size for message in self._inbox)

    # --- messages -------------------------------------------------------------------------------------------

    def _arrived(self, message: Incoming) -> None:
        size = message.size
        is_full = len(self._inbox) >= MOST_MESSAGES or self._bytes + size > MOST_BYTES
        if message.qos and (is_full or self._unread is not None):
            self._unread = len(self._inbox) if self._unread is None else self._unread
            return
        if is_full:
            self.counts.dropped += 1
            log.warning("%s: a message of QoS 0 is dropped: Covey does not keep up", message.topic)
            return
        self._inbox.append(message)
        self._bytes += size
        self._arrival.set()

    async def received(self) -> list[Incoming]:
        """The next messages, in order of arrival."""
        while True:
            if self._unread is not None and self._unread <= 0 and self._is_open.is_set():
                assert self._connection is not None
                self._connection.abandon()
            if self._inbox:
                break
            self._arrival.clear()
            await self._arrival.wait()
        messages = [self._inbox.popleft() for _ in range(min(_BATCH, len(self._inbox)))]
        self._bytes -= sum(message.size for message in messages)
        if self._unread is not None:
            self._unread -= len(messages)
        return messages

    def acknowledge(self, messages: Sequence[Incoming]) -> None:
        """Acknowledge the messages of QoS 1 that this connection brought."""
        for message in messages:
            if message.qos and message.connection is self._connection:
                message.connection.acknowledge(message)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; returns once the MQTT broker has acknowledged them, over any number of
        connections."""
        for start in range(0, len(messages), _WINDOW):
            left = list(messages[start : start + _WINDOW])
            while left:
                await self._is_open.wait()
                assert self._connection is not None
                left = await self._connection.publish(left)

    def _published(self, message: Outgoing, refusal: str) -> None:
        if refusal:
            self.counts.rejected += 1
            log.warning("%s: the MQTT broker refuses a message: %s", message.topic, refusal)
        else:
            self.counts.sent += 1

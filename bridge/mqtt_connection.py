"""One connection to an MQTT broker. aiomqtt connects and subscribes, on asyncio; paho, which it wraps, is
used directly for acknowledgement by the application, for the answer to each message, and for publishing
without a task per message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import socket
from typing import Any
from zlib import crc32

from aiomqtt import Client, MqttError, ProtocolVersion
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

RECEIVE_MAXIMUM = 100
"""Unacknowledged messages of QoS 1 that the MQTT broker may send."""
MAX_PACKET_BYTES = 1 << 20
CLOSE_S = 1.0
_KEEPALIVE_S = 10
_OVERHEAD_BYTES = 300
"""The most bytes of a message besides topic and payload: header, id and mark."""
_MARK = "covey-bridge"
_IDENTIFIERS = (1 << 28) - 1
_BROKEN = "Unspecified error"  # what paho calls a connection that breaks
_QUIET = logging.getLogger("covey.bridge.library")
_QUIET.setLevel(logging.CRITICAL)  # the session logs what matters


@dataclass(frozen=True, slots=True)
class Outgoing:
    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that has arrived, without its properties, which may take a MiB. `is_marked`: a bridge
    published it. `filters` are the subscriptions that this copy is for; empty where the MQTT broker does not
    name them."""

    connection: Connection
    mid: int
    qos: int
    topic: str
    payload: bytes
    is_marked: bool
    filters: frozenset[str]

    @property
    def size(self) -> int:
        """Bytes of topic and payload."""
        return len(self.topic.encode()) + len(self.payload)


Arrived = Callable[[Incoming], None]
Published = Callable[[Outgoing, str], None]


def subscribed(topic_filter: str, qos: int, *, always: bool = False) -> SubscribeOptions:
    """Subscribe without this session's own messages, except to shared subscriptions, which do not allow that.
    With `always` the MQTT broker sends retained messages at each connection, else to a new session only."""
    is_shared = topic_filter.startswith("$share/")
    return SubscribeOptions(qos, noLocal=not is_shared, retainHandling=0 if always else 1)


def _identifier(topic_filter: str) -> int:
    """Equal under any mapping, since messages for an earlier one's subscriptions may still come."""
    return crc32(topic_filter.encode()) % _IDENTIFIERS + 1


class Connection:
    """Opens once. `arrived` gets each message, `published` each published one with the reason of its refusal,
    or "". `options` are those of aiomqtt's client."""

    def __init__(
        self,
        options: Mapping[str, Any],
        expiry_s: int,
        *,
        clean: bool,
        arrived: Arrived,
        published: Published,
    ) -> None:
        wanted = Properties(PacketTypes.CONNECT)
        wanted.SessionExpiryInterval = expiry_s
        wanted.ReceiveMaximum = RECEIVE_MAXIMUM
        wanted.MaximumPacketSize = MAX_PACKET_BYTES
        self._client = Client(
            **options,
            protocol=ProtocolVersion.V5,
            clean_start=clean,
            properties=wanted,
            keepalive=_KEEPALIVE_S,
            logger=_QUIET,
        )
        self._arrived = arrived
        self._published = published
        self._max_bytes = 1 << 28
        self._has_identifiers = True
        self._filters: dict[int, set[str]] = {}
        """By subscription identifier."""
        self._waiting: dict[int, tuple[dict[int, Outgoing], asyncio.Future[None]]] = {}
        """By message id, the unacknowledged messages of its `publish` call, and the future that ends the
        call."""
        self._marks = Properties(PacketTypes.PUBLISH)
        self._marks.UserProperty = (_MARK, options["identifier"])
        self._paho = paho = self._client._client
        paho.manual_ack_set(True)
        paho.on_message = self._on_message
        paho.on_publish = self._on_publish
        self._connected, paho.on_connect = paho.on_connect, self._on_connect
        self._loop = asyncio.get_running_loop()
        paho.on_socket_register_write = self._on_register_write

    async def open(self, filters: Mapping[str, SubscribeOptions]) -> None:
        """Connect and subscribe. `MqttError` where the MQTT broker refuses or does not answer."""
        for topic_filter in filters:  # messages for an earlier connection's come before these are accepted
            self._filters.setdefault(_identifier(topic_filter), set()).add(topic_filter)
        try:
            await self._client.__aenter__()
            await asyncio.gather(*(self._subscribe(*each) for each in filters.items()))
        except BaseException:
            self._paho.disconnect()
            raise

    async def _subscribe(self, topic_filter: str, options: SubscribeOptions) -> None:
        wanted = Properties(PacketTypes.SUBSCRIBE)
        if self._has_identifiers:
            wanted.SubscriptionIdentifier = _identifier(topic_filter)
        [code] = await self._client.subscribe(topic_filter, options=options, properties=wanted)
        if code.is_failure:
            raise MqttError(f"the subscription to {topic_filter!r} is refused: {code}")

    async def lost(self) -> str:
        """Return why the connection has ended, once it has."""
        try:
            async for _ in self._client.messages:
                pass
        except MqttError as error:
            why = str(error.__cause__ or "closed")
            return "broken" if _BROKEN in why else why
        finally:
            for _, done in self._waiting.values():
                if not done.done():
                    done.set_result(None)
            self._waiting.clear()
        return ""

    async def close(self) -> None:
        """End the connection, within `CLOSE_S` seconds where the peer does not read or answer."""
        with suppress(MqttError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._client.__aexit__(None, None, None)

    def abandon(self) -> None:
        """End the connection; `lost` then returns."""
        self._paho.disconnect()

    def acknowledge(self, message: Incoming) -> None:
        self._paho.ack(message.mid, message.qos)

    async def publish(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Publish messages. Returns once the MQTT broker has acknowledged all, or the connection has broken,
        with the unacknowledged ones."""
        left: dict[int, Outgoing] = {}
        done = asyncio.get_running_loop().create_future()
        for each in messages:
            if len(each.topic.encode()) + len(each.payload) + _OVERHEAD_BYTES > self._max_bytes:
                self._published(each, f"larger than {self._max_bytes} bytes")
                continue
            info = self._paho.publish(each.topic, each.payload, each.qos, each.retain, self._marks)
            left[info.mid] = each
            self._waiting[info.mid] = left, done
        if left:
            await done
        return list(left.values())

    # --- what paho calls ------------------------------------------------------------------------------------

    def _on_connect(self, *arguments: Any) -> None:
        self._max_bytes = getattr(arguments[-1], "MaximumPacketSize", self._max_bytes)
        self._has_identifiers = getattr(arguments[-1], "SubscriptionIdentifierAvailable", 1) == 1
        self._connected(*arguments)

    def _on_register_write(self, _client: object, _data: object, connected: socket) -> None:
        """As aiomqtt's, which raises in the loop if the socket has been closed meanwhile. Any thread may call
        it."""
        self._loop.call_soon_threadsafe(self._add_writer, connected)

    def _add_writer(self, connected: socket) -> None:
        if connected.fileno() >= 0:
            self._loop.add_writer(connected.fileno(), self._paho.loop_write)

    def _on_message(self, _client: object, _data: object, message: MQTTMessage) -> None:
        marked = any(name == _MARK for name, _ in getattr(message.properties, "UserProperty", ()))
        identifiers = getattr(message.properties, "SubscriptionIdentifier", ())
        filters = frozenset[str]().union(*(self._filters.get(each, ()) for each in identifiers))
        self._arrived(
            Incoming(self, message.mid, message.qos, message.topic, message.payload, marked, filters)
        )

    def _on_publish(self, _client: object, _data: object, mid: int, code: ReasonCode, _: object) -> None:
        waiting = self._waiting.pop(mid, None)
        if waiting is not None:
            left, done = waiting
            self._published(left.pop(mid), str(code) if code.is_failure else "")
            if not left and not done.done():
                done.set_result(None)

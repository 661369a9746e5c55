"""Events of Covey's subscriptions as messages of MQTT.

Invariant: a rule reads the next batch once the MQTT broker has acknowledged the messages of the last one. So
what waits while that is away waits in Covey: in the window of the client, and in the queue of its session at
the broker, which drops its oldest events when it is full (`slow_consumer`).
"""

from __future__ import annotations

import logging

import orjson

from covey.bridge.counts import Counts
from covey.bridge.finishing import finished
from covey.bridge.mapping import ToMqttSection
from covey.bridge.mqtt_connection import Outgoing
from covey.bridge.mqtt_session import MqttSession
from covey.bridge.topics import Template
from covey.matcher import EventBatch
from covey.overlay import Subscription

log = logging.getLogger("covey.bridge")


class ToMqtt:
    """One rule of `to_mqtt`. Events of the publisher `exclude` are left out."""

    def __init__(
        self,
        section: ToMqttSection,
        subscription: Subscription,
        session: MqttSession,
        counts: Counts,
        *,
        exclude: str | None,
    ) -> None:
        self._section = section
        self._template = Template(section.topic)
        self._attributes = section.attributes or subscription.event_type.names
        self._subscription = subscription
        self._session = session
        self._counts = counts
        self._exclude = exclude

    async def run(self) -> None:
        async for batch in self._subscription.batches():
            if batch.publisher != self._exclude:
                await finished(self._send(batch))

    async def _send(self, batch: EventBatch) -> None:
        self._counts.delivered += len(batch)
        qos, retain = self._section.qos, self._section.retain
        messages = []
        for event in batch.to_pylist():
            try:
                topic = self._template.topic(event)
            except ValueError as error:
                self._counts.unfit += 1
                log.warning("%s: an event has no topic: %s", self._template.text, error)
                continue
            payload = {name: event[name] for name in self._attributes if event[name] is not None}
            messages.append(Outgoing(topic, orjson.dumps(payload), qos, retain))
        await self._session.publish(messages)

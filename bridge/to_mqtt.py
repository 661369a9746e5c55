"""Events of Covey's subscriptions as messages of MQTT.

Invariant: a rule reads the next batch once the MQTT broker has acknowledged the messages of the last one. So
what waits while that is away waits in Covey: in the window of the client, and in the queue of its session at
the broker, which drops its oldest events when it is full (`slow_consumer`).
"""

from __future__ import annotations

import logging

import orjson

from covey.bridge.mapping import ToMqttSection
from covey.bridge.mqtt_connection import Outgoing
from covey.bridge.mqtt_session import MqttSession, finished
from covey.bridge.topics import Template
from covey.matcher import EventBatch
from covey.overlay import Subscription

log = logging.getLogger("covey.bridge")


async def to_mqtt(
    rule: ToMqttSection, subscription: Subscription, session: MqttSession, *, exclude: str | None
) -> None:
    """Publish the events of a rule's subscription, without those of the publisher `exclude`."""
    template = Template(rule.topic)
    attributes = rule.attributes or subscription.event_type.names

    def messages(batch: EventBatch) -> list[Outgoing]:
        found = []
        for event in batch.to_pylist():
            try:
                topic = template.topic(event)
            except ValueError as error:
                session.counts.unfit += 1
                log.warning("%s: an event has no topic: %s", rule.topic, error)
                continue
            payload = {name: event[name] for name in attributes if event[name] is not None}
            found.append(Outgoing(topic, orjson.dumps(payload), rule.qos, rule.retain))
        return found

    async for batch in subscription.batches():
        if batch.publisher != exclude:
            session.counts.delivered += len(batch)
            await finished(session.publish(messages(batch)))

"""The bridge between Covey and an MQTT broker, and events of subscriptions as messages. Invariant: a rule of
`to_mqtt` reads the next batch once the MQTT broker has acknowledged the last one's messages. So events wait
in Covey while it is away: in the client's window and in its session's queue at the broker, which drops the
oldest when full (`slow_consumer`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import orjson

from covey.bridge.mapping import MappingFile, ToMqttSection, load_mapping
from covey.bridge.mqtt_connection import Outgoing, subscribed
from covey.bridge.mqtt_session import CONNECT_S, Counts, MqttSession, finished
from covey.bridge.to_covey import Setting, ToCovey
from covey.bridge.topics import Template
from covey.matcher import EventBatch, parse
from covey.overlay import Client, Gap, RefusedError, Subscription
from covey.overlay.transport.credentials import Token, credentials
from covey.overlay.transport.tls import Tls

log = logging.getLogger("covey.bridge")

_GRACE_S = 1.0
"""For events without confirmation; batches that wait for theirs have ended by then."""
_LOOK_EVERY_S = 1.0
_LOG_EVERY = 60
"""Of `_LOOK_EVERY_S`, between two log lines with all counts."""


async def run_mqtt_bridge(
    file: Path,
    broker: str,
    *,
    tls: Tls | None = None,
    token: Token | None = None,
    clean: bool = False,
    counts: Counts | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Run the bridge of a mapping file until it is cancelled; work in progress then has five seconds to end.
    `ready` is called once both sides are connected, with their subscriptions.

    `InputError` for a mistake in the file; `ConnectError` where one side does not answer in five seconds or
    refuses the bridge, or Covey's broker ends its session later; `RefusedError` for event types that the
    overlay does not know, or declares otherwise.
    """
    mapping = load_mapping(file)
    counts = counts if counts is not None else Counts()
    owner = await credentials(tls, token).owner()
    options = mapping.mqtt.options(file.parent) | {"identifier": mapping.name}

    def on_gap(gap: Gap) -> None:
        counts.missed += gap.count
        log.warning("%s: %d events were dropped, since MQTT does not keep up", gap.type_name, gap.count)

    def on_state(connected: bool, reason: str) -> None:
        if connected:
            log.info("connected to Covey's broker, %s", reason)
        else:
            log.warning("the connection to Covey's broker is lost: %s; reconnecting", reason)

    client = Client(
        broker,
        f"{owner}/{mapping.name}" if owner else mapping.name,
        slow_consumer="drop_oldest",
        connect_timeout=CONNECT_S,
        on_state=on_state,
        on_gap=on_gap,
        tls=tls,
        token=token,
    )
    await client.open()
    try:
        await _serve(client, await _completed(mapping, file, client), options, counts, clean, ready)
    finally:
        await client.close(grace=_GRACE_S)


async def _completed(mapping: MappingFile, file: Path, client: Client) -> MappingFile:
    known = []
    for name in mapping.undeclared:
        try:
            known.append(await client.event_type(name))
        except RefusedError as error:
            raise RefusedError(error.status, f"{error}; {file} may declare it in event_types") from None
    return load_mapping(file, known) if known else mapping


async def _serve(
    client: Client,
    mapping: MappingFile,
    options: dict[str, Any],
    counts: Counts,
    clean: bool,
    ready: Callable[[], None],
) -> None:
    types = mapping.types
    for name in dict.fromkeys(rule.event_type for rule in mapping.to_covey):
        await client.advertise(types[name])
    inward = sorted(mapping.to_covey, key=lambda rule: rule.qos)  # of two with one topic, the higher
    filters = {rule.topic: subscribed(rule.topic, rule.qos) for rule in inward}
    settings: dict[str, list[Setting]] = {}
    subscriptions = []
    for outward in mapping.to_mqtt:
        event_type = types[outward.event_type]
        compiled = parse(outward.filter, event_type)
        subscription = await client.subscribe(event_type, compiled, values=outward.values)
        subscriptions.append(subscription)
        for variable, topic in outward.variables.items():
            filters[topic] = subscribed(topic, 1, always=True)
            settings.setdefault(topic, []).append(Setting(subscription, variable, outward.values[variable]))
    try:
        session = MqttSession(options, mapping.mqtt.session_expiry_s, filters, counts, clean=clean)
        async with session, asyncio.TaskGroup() as work:
            work.create_task(ToCovey(mapping, settings, client, session).run())
            for outward, subscription in zip(mapping.to_mqtt, subscriptions, strict=True):
                exclude = client.publisher if mapping.mirrors(outward) else None
                work.create_task(_to_mqtt(outward, subscription, session, exclude))
            work.create_task(session.kept())
            work.create_task(_watch(client, counts))
            ready()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        log.info("ends: %s", counts)


async def _to_mqtt(
    rule: ToMqttSection, subscription: Subscription, session: MqttSession, exclude: str | None
) -> None:
    """Publish the events of a rule's subscription, except those of the publisher `exclude`."""
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


async def _watch(client: Client, counts: Counts) -> NoReturn:
    """Log the counts; raise the error that ends the client."""
    logged = ""
    while True:
        for _ in range(_LOG_EVERY):
            if client.error is not None:
                raise client.error
            await asyncio.sleep(_LOOK_EVERY_S)
        if str(counts) != logged:
            logged = str(counts)
            log.info("%s", logged)

"""MQTT messages as events, and as values of variables. Invariants: a batch of messages sets its variables
first, then publishes its events, in order within a type. A message of QoS 1 is acknowledged once Covey has
accepted or refused all events of its batch. A message that is invalid for a rule or a variable is counted,
logged and acknowledged, since it would be invalid again; other rules and variables get it all the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from covey.bridge.mapping import MappingFile, ToCoveySection, source_of
from covey.bridge.mqtt_connection import Incoming
from covey.bridge.mqtt_session import MqttSession, finished
from covey.bridge.topics import levels_of, matches
from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError
from covey.matcher.events.event_type import Kind
from covey.overlay import Client, RefusedError, Subscription

log = logging.getLogger("covey.bridge")

_TOPICS = 4_096
_OF_LEVEL = {Kind.INT64: int, Kind.FLOAT64: float}

Row = dict[str, object]


class Setting(NamedTuple):
    """A variable that a topic's messages set; an empty one, which clears a retained message, sets it to
    `first`."""

    subscription: Subscription
    variable: str
    first: object


class InwardRule:
    def __init__(self, section: ToCoveySection, event_type: EventType) -> None:
        self.event_type = event_type
        self.filter = section.topic
        self.levels = levels_of(section.topic)
        texts = {name: f"payload.{name}" for name in event_type.names} | section.attributes
        sources = {name: source_of(text) for name, text in texts.items()}
        self._of_topic = {name: level for name, (level, _) in sources.items() if level}
        self._of_payload = {name: path for name, (level, path) in sources.items() if not level}
        self._reads_fields = any(self._of_payload.values())

    def row(self, topic: str, payload: bytes) -> Row:
        """The attributes of an event. `ValueError` for a level that is no number, or a payload that is no
        JSON."""
        levels, row = topic.split("/"), Row()
        for name, number in self._of_topic.items():
            if number <= len(levels):
                kind, level = self.event_type.attributes[name], levels[number - 1]
                try:
                    row[name] = _OF_LEVEL.get(kind, str)(level)
                except ValueError:
                    raise ValueError(f"level {number} is {level[:80]!r}: expected {kind}") from None
        if self._of_payload:
            document = orjson.loads(payload)
            if self._reads_fields and not isinstance(document, dict):
                raise ValueError("the payload is no JSON object")
            for name, path in self._of_payload.items():
                row[name] = _field(document, path)
        return row


def _field(document: Any, path: Sequence[str]) -> object:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


class ToCovey:
    """Brings a session's messages to a client as events, and to variables by topic."""

    def __init__(
        self,
        mapping: MappingFile,
        settings: Mapping[str, Sequence[Setting]],
        client: Client,
        session: MqttSession,
    ) -> None:
        self._rules = [InwardRule(each, mapping.types[each.event_type]) for each in mapping.to_covey]
        self._settings = settings
        self._client = client
        self._session = session
        self._counts = session.counts
        self._rules_of = lru_cache(_TOPICS)(self._find)

    async def run(self) -> None:
        while True:
            await finished(self._bring(await self._session.received()))

    async def _bring(self, messages: Sequence[Incoming]) -> None:
        rows: dict[EventType, list[tuple[str, Row]]] = {}
        for message in messages:
            self._read(message, rows)
        confirm = any(message.qos for message in messages)
        await asyncio.gather(*(self._publish(*each, confirm) for each in rows.items()))
        self._session.acknowledge(messages)

    def _find(self, topic: str) -> list[InwardRule]:
        levels = topic.split("/")
        return [rule for rule in self._rules if matches(rule.levels, levels)]

    def _read(self, message: Incoming, rows: dict[EventType, list[tuple[str, Row]]]) -> None:
        topic, payload = message.topic, message.payload
        rules, settings = self._rules_of(topic), self._settings.get(topic, ())
        if message.is_marked or not (rules or settings):
            self._counts.ignored += 1
            if not message.is_marked:
                log.warning("%s: no rule is for this topic; --clean ends the MQTT session that has it", topic)
            return
        self._counts.received += 1
        for setting in settings:
            try:
                value = orjson.loads(payload) if payload else setting.first
                setting.subscription.update_nowait(values={setting.variable: value})
            except ValueError as error:  # a VariableError, too
                self._malformed(topic, error)
        for rule in rules:
            if message.filters and rule.filter not in message.filters:
                continue
            try:
                rows.setdefault(rule.event_type, []).append((topic, rule.row(topic, payload)))
            except ValueError as error:
                self._malformed(topic, error)

    def _malformed(self, topic: str, error: Exception) -> None:
        self._counts.malformed += 1
        log.warning("%s: a malformed message: %s", topic, str(error).removeprefix("event 0 of "))

    async def _publish(self, event_type: EventType, found: Sequence[tuple[str, Row]], confirm: bool) -> None:
        try:
            batch = EventBatch.from_pylist(event_type, [row for _, row in found])
        except EventError:
            rows = [row for topic, row in found if self._is_event(event_type, topic, row)]
            batch = EventBatch.from_pylist(event_type, rows)
        try:
            if len(batch):
                await self._client.publish_batch(event_type.name, batch, confirm=confirm)
            self._counts.published += len(batch)
        except RefusedError as error:
            self._counts.refusals += 1
            log.warning("%s: Covey refuses events: %s", event_type.name, error)

    def _is_event(self, event_type: EventType, topic: str, row: Row) -> bool:
        try:
            EventBatch.from_pylist(event_type, [row])
        except EventError as error:
            self._malformed(topic, error)
            return False
        return True

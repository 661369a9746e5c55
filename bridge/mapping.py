"""Mapping files: which topics become events of which types, and which events go to which topics. Rules on
event types that only the overlay declares are checked once these have been looked up."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from covey.bridge.topics import Template, check_filter, check_topic, levels_of, matches
from covey.matcher import EventType, parse
from covey.matcher.errors import CoveyError, FilterSyntaxError, InputError, closest_of
from covey.matcher.events.event_type import Kind
from covey.overlay.documents import (
    EventTypes,
    Section,
    complaint,
    read_document,
    read_text,
    text_keys,
    validated,
)
from covey.overlay.transport.address import TcpAddress, parse_address
from covey.overlay.transport.tls import TlsError, load_files

_OF_LEVELS = (Kind.STRING, Kind.INT64, Kind.FLOAT64, Kind.TIMESTAMP)
_IN_TOPICS = (Kind.STRING, Kind.INT64, Kind.BOOL)
_MOST_RULES = 100


def _tcp_address(text: object) -> TcpAddress:
    address = parse_address(text) if isinstance(text, str) else None
    if not isinstance(address, TcpAddress):
        raise ValueError('expected "host:port"')
    return address


def _name(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isprintable():
        raise ValueError("expected 1 to 200 printable characters")
    return text


def source_of(text: str) -> tuple[int, Sequence[str]]:
    """The source of an attribute's value: the number of a topic's level, from 1 on, or 0 and a path of fields
    in the payload. `ValueError` for another text."""
    where, *path = text.split(".")
    if where == "topic" and len(path) == 1 and path[0].isdecimal() and int(path[0]):
        return int(path[0]), ()
    if where != "payload" or not all(path):
        raise ValueError("expected topic.N with the number of a level, payload or payload.FIELD")
    return 0, path


def _texts(check: Callable[[str], object]) -> BeforeValidator:
    def checked(value: object) -> object:
        for name, text in text_keys(value).items():
            try:
                check(text if isinstance(text, str) else "")
            except ValueError as error:
                raise complaint(f"is {text!r}: {error}", name) from None
        return value

    return BeforeValidator(checked)


def _known(name: str, event_type: EventType, *at: str | int) -> Kind:
    kind = event_type.attributes.get(name)
    if kind is None:
        raise complaint(f"is no attribute of {event_type.name}{closest_of(name, event_type.names)}", *at)
    return kind


class TlsSection(Section):
    """PEM files; without an authority, the system's."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.key is not None and self.certificate is None:
            raise complaint("needs certificate: expected it beside", "key")
        return self


class MqttSection(Section):
    """The MQTT broker, and how long it keeps the session of an absent bridge."""

    address: Annotated[Any, AfterValidator(_tcp_address)]
    username: str | None = None
    password_file: str | None = None
    tls: TlsSection | None = None
    session_expiry_s: Annotated[int, Field(ge=0, lt=1 << 32)] = 3_600

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.password_file is not None and self.username is None:
            raise complaint("needs username: expected it beside", "password_file")
        return self

    def options(self, folder: Path) -> dict[str, Any]:
        """Options of aiomqtt's client; relative paths start at `folder`. `InputError` for unusable files."""
        options = {"hostname": self.address.host, "port": self.address.port, "username": self.username}
        if self.password_file is not None:
            options["password"] = read_text(folder / self.password_file, InputError).strip()
        if self.tls is not None:
            options["tls_context"] = context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if self.tls.authority is None:
                context.load_default_certs()
            try:
                load_files(context, {field: folder / name for field, name in self.tls if name is not None})
            except TlsError as error:
                raise InputError(f"mqtt.{error}") from None
        return options


class RuleSection(Section, ABC):
    event_type: str
    qos: Annotated[int, Field(ge=0, le=1)] = 1

    @abstractmethod
    def check(self, event_type: EventType) -> None:
        """Raise a `complaint` about the first field that does not fit the event type."""


class ToCoveySection(RuleSection):
    """Other attributes than those in `attributes` are the payload's fields of their names."""

    topic: Annotated[str, AfterValidator(check_filter)]
    attributes: Annotated[dict[str, str], _texts(source_of)] = Field(default_factory=dict)

    def check(self, event_type: EventType) -> None:
        levels = levels_of(self.topic)
        for name, source in self.attributes.items():
            kind, (level, _) = _known(name, event_type, "attributes", name), source_of(source)
            if level and kind not in _OF_LEVELS:
                raise complaint(f"is {source!r}: expected a payload for a {kind}", "attributes", name)
            if level > len(levels) and levels[-1] != "#":
                expected = f"expected one of the {len(levels)} levels of {self.topic}"
                raise complaint(f"is {source!r}: {expected}", "attributes", name)


class ToMqttSection(RuleSection):
    """A subscription, and the topic of its events. Their payload has `attributes`, by default all.
    `variables` maps variables to topics, whose payload is the value."""

    filter: str = ""
    values: Annotated[dict[str, Any], BeforeValidator(text_keys)] = Field(default_factory=dict)
    variables: Annotated[dict[str, str], _texts(check_topic)] = Field(default_factory=dict)
    topic: Annotated[str, AfterValidator(lambda text: Template(text).text)]
    retain: bool = False
    attributes: Annotated[list[str], Field(min_length=1)] | None = None

    def check(self, event_type: EventType) -> None:
        try:
            compiled = parse(self.filter, event_type)
        except CoveyError as error:
            reason = error.message if isinstance(error, FilterSyntaxError) else error
            raise complaint(f"is {self.filter!r}: {reason}", "filter") from None
        try:
            compiled.check_values(self.values)
        except CoveyError as error:
            raise complaint(f"is {self.values!r}: {error}", "values") from None
        for name in self.variables:
            if name not in self.values:
                known = closest_of(name, self.values) if self.values else ": expected none"
                raise complaint(f"is no variable of the filter{known}", "variables", name)
        for name in Template(self.topic).names:
            if _known(name, event_type, "topic", f"{{{name}}}") not in _IN_TOPICS:
                expected = f"expected one of kind {', '.join(_IN_TOPICS)}"
                raise complaint(f"has {{{name}}}, of kind {event_type.attributes[name]}: {expected}", "topic")
        for place, name in enumerate(self.attributes or ()):
            _known(name, event_type, "attributes", place)


class MappingFile(Section):
    name: Annotated[str, AfterValidator(_name)]
    mqtt: MqttSection
    event_types: EventTypes = ()
    to_covey: Annotated[list[ToCoveySection], Field(max_length=_MOST_RULES)] = Field(default_factory=list)
    to_mqtt: Annotated[list[ToMqttSection], Field(max_length=_MOST_RULES)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if not self.to_covey and not self.to_mqtt:
            raise ValueError("expected rules in to_covey or to_mqtt")
        sections: dict[str, Sequence[RuleSection]] = {"to_covey": self.to_covey, "to_mqtt": self.to_mqtt}
        for where, rules in sections.items():
            for place, rule in enumerate(rules):
                if rule.event_type in self.types:
                    try:
                        rule.check(self.types[rule.event_type])
                    except PydanticCustomError as error:
                        context = error.context or {}
                        raise complaint(context["text"], where, place, *context["at"]) from None
        return self

    @property
    def types(self) -> dict[str, EventType]:
        return {event_type.name: event_type for event_type in self.event_types}

    @property
    def undeclared(self) -> list[str]:
        names = dict.fromkeys(rule.event_type for rule in (*self.to_covey, *self.to_mqtt))
        return [name for name in names if name not in self.types]

    def mirrors(self, rule: ToMqttSection) -> bool:
        """Whether a topic of the rule may be one from which events of its type come."""
        topic = Template(rule.topic).levels
        inward = [levels_of(each.topic) for each in self.to_covey if each.event_type == rule.event_type]
        return any(matches(levels, topic) for levels in inward)


def load_mapping(path: Path, known: Iterable[EventType] = ()) -> MappingFile:
    """Read a mapping file; its event types include `known`. `InputError`, one sentence with the file, the
    field, the value and what was expected, for the first mistake."""
    document = read_document(path, InputError)
    types = {each.name: {**each.attributes} | ({"key": each.key} if each.key else {}) for each in known}
    if types:
        document["event_types"] = types | (document.get("event_types") or {})
    return validated(MappingFile, document, path, InputError)

"""Event types: a name and ordered, typed, nullable attributes.

The schema of a type is its attribute list. Two `EventType` objects are equal if their names, keys and
attribute lists, order included, are. Schemas of one name *agree* if no attribute has two kinds in them: they
are views of one type, whose attributes are identified by name. An attribute that a schema lacks is absent in
its events. A declaration with more attributes *widens* the type; one that does not agree is an error. A type
may have a *key*, the attribute that identifies what an event is about, such as a vehicle's id. A declaration
without a key agrees with any; two different keys do not agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from covey.matcher.errors import EventTypeError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
RESERVED = frozenset(
    {"and", "or", "not", "in", "between", "prefix", "suffix", "contains", "exists", "true", "false"}
)  # words of the filter language, which no attribute may have as its name


class Kind(StrEnum):
    """The kind of an attribute's values. Timestamps are microseconds since the epoch, in UTC. Filters test
    the presence of a list, and named operators its contents."""

    INT64 = "int64"
    FLOAT64 = "float64"
    STRING = "string"
    BOOL = "bool"
    TIMESTAMP = "timestamp"
    STRINGS = "list<string>"

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self]


_ARROW = {
    Kind.INT64: pa.int64(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BOOL: pa.bool_(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.STRINGS: pa.list_(pa.string()),
}


KEY_KINDS = (Kind.INT64, Kind.STRING)
"""Of a key. Floats are rounded, and NaN equals nothing; lists, flags and times name nothing."""


class EventType:
    """A name, an ordered mapping from attribute names to kinds, and a key or None. Immutable and hashable.
    Raises `EventTypeError` for a name that is no identifier, a reserved word, an unknown kind, no attributes,
    or a key that is no attribute or neither an integer nor a string."""

    __slots__ = (
        "_hash",
        "_index",
        "arrow_schema",
        "attributes",
        "cache",
        "has_lists",
        "key",
        "kinds",
        "name",
        "names",
        "times",
    )

    def __init__(self, name: str, attributes: Mapping[str, str | Kind], key: str | None = None) -> None:
        if not isinstance(name, str) or not _NAME.match(name):
            raise EventTypeError(
                f"event type name {name!r}: expected letters, digits and _, not starting with a digit"
            )
        if not attributes:
            raise EventTypeError(f"event type {name!r}: expected at least one attribute")
        kinds: dict[str, Kind] = {}
        for attribute, kind in attributes.items():
            if not isinstance(attribute, str) or not _NAME.match(attribute) or attribute in RESERVED:
                raise EventTypeError(
                    f"event type {name!r}, attribute {attribute!r}: expected letters, digits and _, "
                    "not starting with a digit and no word of the filter language"
                )
            try:
                kinds[attribute] = Kind(kind)
            except ValueError:
                raise EventTypeError(
                    f"event type {name!r}, attribute {attribute!r}: kind {kind!r}, "
                    f"expected one of {', '.join(Kind)}"
                ) from None
        if key is not None:
            _check_key(name, kinds, key)
        self.name = name
        self.key = key
        self.attributes: Mapping[str, Kind] = MappingProxyType(kinds)
        self.names: tuple[str, ...] = tuple(kinds)
        self.kinds: tuple[Kind, ...] = tuple(kinds.values())
        self.has_lists = Kind.STRINGS in self.kinds  # its events are always in Arrow columns
        self.times = tuple(a for a, kind in kinds.items() if kind is Kind.TIMESTAMP)  # timestamps
        self.arrow_schema: pa.Schema = pa.schema([pa.field(a, k.arrow) for a, k in kinds.items()])
        self._index = {attribute: i for i, attribute in enumerate(kinds)}
        self._hash = hash((name, tuple(kinds.items()), key))
        self.cache: dict[object, Any] = {}  # computed once from this type, under keys of the users' own

    def includes(self, other: EventType) -> bool:
        """Whether this schema has every attribute of another one of the type, in any order, and its key."""
        if self is other:
            return True
        if other.key not in (None, self.key):
            return False
        mine = self.attributes
        return self.name == other.name and all(mine.get(a) is k for a, k in other.attributes.items())

    def agrees(self, other: EventType) -> bool:
        """Whether both are schemas of one type: one name, no attribute of two kinds, no two keys."""
        if self is other:
            return True
        if None not in (self.key, other.key) and self.key != other.key:
            return False
        mine = self.attributes
        return self.name == other.name and all(mine.get(a, k) is k for a, k in other.attributes.items())

    def union(self, other: EventType) -> EventType:
        """The attributes of both: those of this schema in order, then the others in theirs. The set of
        attributes does not depend on the order of unions. `EventTypeError` names the first attribute of two
        kinds, or both keys."""
        if self.name != other.name:
            raise EventTypeError(f"event type {other.name!r}: expected one of the name {self.name!r}")
        if self.includes(other):
            return self
        for attribute, kind in other.attributes.items():
            mine = self.attributes.get(attribute, kind)
            if mine is not kind:
                raise EventTypeError(
                    f"event type {self.name}, attribute {attribute!r}: kind {kind}, expected {mine}"
                )
        if None not in (self.key, other.key) and self.key != other.key:
            raise EventTypeError(f"event type {self.name}: key {other.key!r}, expected {self.key!r}")
        united = EventType(self.name, {**self.attributes, **other.attributes}, self.key or other.key)
        return other if united == other else united

    def index(self, attribute: str) -> int:
        """The position of an attribute; `KeyError` for an unknown name."""
        return self._index[attribute]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, EventType)
            and self.name == other.name
            and self.names == other.names
            and self.kinds == other.kinds
            and self.key == other.key
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[EventType], tuple[str, dict[str, str], str | None]]:
        return EventType, (self.name, {a: str(k) for a, k in self.attributes.items()}, self.key)

    def __repr__(self) -> str:
        listed = ", ".join(f"{a!r}: {str(k)!r}" for a, k in self.attributes.items())
        key = "" if self.key is None else f", key={self.key!r}"
        return f"EventType({self.name!r}, {{{listed}}}{key})"


def _check_key(name: str, kinds: Mapping[str, Kind], key: object) -> None:
    if not isinstance(key, str) or key not in kinds:
        raise EventTypeError(
            f"event type {name!r}, key {key!r}: expected one of its attributes, {', '.join(kinds)}"
        )
    if kinds[key] not in KEY_KINDS:
        raise EventTypeError(
            f"event type {name!r}, key {key!r}: kind {kinds[key]}, expected {' or '.join(KEY_KINDS)}"
        )


def check_event_type(event_type: object) -> None:
    """`EventTypeError` for an object that is no `EventType`."""
    if not isinstance(event_type, EventType):
        raise EventTypeError(f"event type {event_type!r}: expected an EventType")

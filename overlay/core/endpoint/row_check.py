"""Does an event fit its type? Answered for one event at a time, before it waits with others for its batch.

Values of exactly the type that an attribute has in Python, and far from the ends of its range, are accepted
by a look-up; for all others the batch of the one event is built, which has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType, Kind

_EXACT = 1 << 53
"""Integers up to here are exact in a float64, too."""
_TYPES: dict[Kind, frozenset[type]] = {
    Kind.INT64: frozenset({int, type(None)}),
    Kind.FLOAT64: frozenset({float, int, type(None)}),
    Kind.STRING: frozenset({str, type(None)}),
    Kind.BOOL: frozenset({bool, type(None)}),
    Kind.TIMESTAMP: frozenset({datetime, type(None)}),
    Kind.STRINGS: frozenset({type(None)}),
}


class RowCheck:
    """The check of one event type."""

    __slots__ = ("_empty_bytes", "_types", "event_type")

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self._types = {name: _TYPES[kind] for name, kind in event_type.attributes.items()}
        self._empty_bytes = int(EventBatch.from_pylist(event_type, [{}]).event_bytes()[0])

    def size(self, values: Mapping[str, object]) -> int:
        """The bytes of an event, as brokers count them; `EventError` if it does not fit."""
        types = self._types
        size = self._empty_bytes
        for name, value in values.items():
            kind = type(value)
            if name not in types or kind not in types[name]:
                return self._precise_size(values)
            if kind is str:
                try:
                    size += len(value.encode())  # type: ignore[attr-defined]
                except UnicodeEncodeError:
                    return self._precise_size(values)
            elif kind is int:
                if not -_EXACT <= value <= _EXACT:  # type: ignore[operator]
                    return self._precise_size(values)
            elif kind is datetime and value.tzinfo is not None and value.tzinfo is not UTC:  # type: ignore[attr-defined]
                return self._precise_size(values)
        return size

    def _precise_size(self, values: Mapping[str, object]) -> int:
        return int(EventBatch.from_pylist(self.event_type, [values]).event_bytes()[0])

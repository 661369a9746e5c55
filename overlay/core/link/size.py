"""The size of a message on a link, and in memory.

Invariants: both ends compute the same `size_of` a message with events, so the bytes counted against credit
are granted again. Bounds of memory count objects too (`held_by`; `python -m benchmarks bounds` measures
them)."""

from __future__ import annotations

from collections.abc import Iterable

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.overlay.core.messages import (
    Acknowledge,
    Deliver,
    Message,
    Notice,
    Publish,
    Refuse,
    SessionMove,
    Subscribe,
    Update,
)

FIXED_BYTES = 64
_VALUE_BYTES = 32
_ATTRIBUTE_BYTES = 8
_CONTEXT_BYTES = 80
MESSAGE_BYTES = 350
_BATCH_BYTES = 450
_ARROW_BYTES = 1000
_COLUMN_BYTES = 300
_EVENT_VALUE_BYTES = 64
"""Bytes of objects besides their contents: a message, a batch, a column, and of packed columns each value;
measured as the growth of the resident size by 20,000 messages of 1 to 10 attributes."""
_SCHEMA = "covey.overlay.core.link.size"


def size_of(message: Message) -> int:
    """Approximate bytes of a message in a frame; of a batch, the serialised form with its results, plus 4 per
    offset and id."""
    if message.__class__ is Acknowledge:
        return FIXED_BYTES
    if message.__class__ is Publish:
        return FIXED_BYTES + message.batch.nbytes
    if message.__class__ is Deliver:
        return FIXED_BYTES + message.batch.nbytes + 4 * (len(message.offsets) + len(message.ids))
    if message.__class__ is Update or message.__class__ is Subscribe:
        size = FIXED_BYTES + _VALUE_BYTES * len(message.values)
        for value in message.values.values():
            if isinstance(value, str):
                size += len(value)
        return size + len(message.traceparent if isinstance(message, Update) else str(message.filter))
    if message.__class__ is Refuse:
        return FIXED_BYTES + len(message.reason)
    if message.__class__ is Notice:
        return FIXED_BYTES + len(message.reason) + 4 * len(message.subscription_ids)
    if message.__class__ is SessionMove:
        carried: list[Message] = [*message.subscriptions, *message.records]
        return FIXED_BYTES + sum(size_of(each) for each in carried)
    return FIXED_BYTES


def header_bytes(event_type: EventType, publisher: str, contexts: int = 0) -> int:
    """Approximate bytes of names, schema and trace contexts in a frame; credit does not count them."""
    size = len(publisher) if publisher.isascii() else len(publisher.encode())
    schema_bytes: int | None = event_type.cache.get(_SCHEMA)
    if schema_bytes is None:
        schema_bytes = event_type.cache[_SCHEMA] = _schema_bytes(event_type)
    return size + schema_bytes + _CONTEXT_BYTES * contexts


def held_by(batch: EventBatch, nbytes: int | None = None) -> int:
    """Approximate bytes in memory of a batch of `nbytes` on the wire, results of matching included."""
    nbytes = batch.nbytes if nbytes is None else nbytes
    attributes = len(batch.event_type.kinds)
    if batch.columns is None:
        return nbytes + _ARROW_BYTES + _COLUMN_BYTES * attributes
    return nbytes + _BATCH_BYTES + attributes * (_COLUMN_BYTES + _EVENT_VALUE_BYTES * batch.count)


def _schema_bytes(event_type: EventType) -> int:
    key = () if event_type.key is None else (event_type.key,)
    names = (event_type.name, event_type.name, *event_type.attributes, *key)
    return sum(_ATTRIBUTE_BYTES + len(name.encode()) for name in names)


def events_in(message: Message) -> int:
    return message.batch.count if isinstance(message, (Publish, Deliver)) else 0


def count_within(most: int, weights: Iterable[int]) -> int:
    """The number of leading `weights` whose sum is at most `most`, at least 1."""
    count = total = 0
    for weight in weights:
        total += weight
        if count and total > most:
            break
        count += 1
    return count

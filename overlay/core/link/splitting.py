"""Splits a message with events into smaller ones; the inverse of `joining.py`.

Invariant: the same events, in the same order, for the same subscriptions. The last part alone has the offset
of a record, which is acknowledged as a whole.
"""

from __future__ import annotations

from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import PART, Deliver, Message, Publish


def part(message: Message, start: int, stop: int) -> Publish | Deliver:
    """The message with only its events from `start` to `stop`."""
    assert isinstance(message, Publish | Deliver)
    batch = message.batch.slice(start, stop - start)
    offset = PART if message.stored and stop < message.batch.count else message.offset
    if isinstance(message, Publish):
        return Publish(batch, message.replayed, offset, message.for_views, message.live)
    first, last = int(message.offsets[start]), int(message.offsets[stop])
    offsets = message.offsets[start : stop + 1] - first
    ids, replayed, for_views = message.ids[first:last], message.replayed, message.for_views
    return Deliver(batch, offsets, ids, message.epoch, replayed, offset, for_views, message.live)


def pieces(message: Message, max_bytes: int) -> list[Message]:
    """The message, halved until every piece fits into `max_bytes` or has one event."""
    events = events_in(message)
    if events < 2 or size_of(message) <= max_bytes:
        return [message]
    middle = events // 2
    return [*pieces(part(message, 0, middle), max_bytes), *pieces(part(message, middle, events), max_bytes)]

"""Joins batches that gathered while a link was busy, so that they are sent and matched as one, and splits
batches that are too large for a frame.

Invariant: the same events, in the same order, for the same subscriptions. Only the last part of a split
message has the record's offset, since a record is acknowledged as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.trace_contexts import MOST_CONTEXTS
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import PART, Deliver, Message, Publish

INGRESS_SPAN_NS = 10_000_000
"""The largest distance between ingress times of joined events; they share the earliest."""

_SPAN = 2**32 - 1


class _Run:
    __slots__ = ("contexts", "earliest_ns", "events", "high", "latest_ns", "low", "messages", "size")

    def __init__(self, message: Publish | Deliver) -> None:
        batch = message.batch
        self.messages = [message]
        self.events = len(batch)
        self.size = size_of(message)
        self.contexts = len(batch.contexts)
        self.low, self.high = batch.first_sequence, _last(batch)
        self.earliest_ns = self.latest_ns = batch.ingress_ns

    def take(self, message: Publish | Deliver, max_events: int, max_bytes: int) -> bool:
        """Add a message; False if it cannot be joined with the others."""
        first, batch = self.messages[0], message.batch
        events, size = self.events + batch.count, self.size + size_of(message)
        contexts = self.contexts + len(batch.contexts)
        if contexts > MOST_CONTEXTS or not _alike(first, message) or events > max_events or size > max_bytes:
            return False
        low, high = min(self.low, batch.first_sequence), max(self.high, _last(batch))
        earliest_ns = min(self.earliest_ns, batch.ingress_ns)
        latest_ns = max(self.latest_ns, batch.ingress_ns)
        if high - low > _SPAN or latest_ns - earliest_ns > INGRESS_SPAN_NS:
            return False
        self.messages.append(message)
        self.events, self.size, self.low, self.high = events, size, low, high
        self.contexts = contexts
        self.earliest_ns, self.latest_ns = earliest_ns, latest_ns
        return True


def join(messages: Sequence[Message], max_events: int, max_bytes: int) -> list[Message]:
    """Join successive messages of the same kind, event type and publisher (of a Deliver also the epoch),
    whose ingress times are at most `INGRESS_SPAN_NS` apart. O(1) for a single message."""
    if len(messages) < 2:
        return list(messages)
    joined: list[Message] = []
    run: _Run | None = None
    for message in messages:
        if not isinstance(message, Publish | Deliver) or not len(message.batch):
            _flush(run, joined)
            run = None
            joined.append(message)
        elif run is None or not run.take(message, max_events, max_bytes):
            _flush(run, joined)
            run = _Run(message)
    _flush(run, joined)
    return joined


def _last(batch: EventBatch) -> int:
    offsets = batch.sequence_offsets
    return batch.first_sequence + (batch.count - 1 if offsets is None else int(offsets.max()))


def _alike(a: Publish | Deliver, b: Publish | Deliver) -> bool:
    return (
        a.__class__ is b.__class__
        and a.replayed == b.replayed
        and a.for_views == b.for_views
        and a.live == b.live
        and a.stored == b.stored
        and a.batch.publisher == b.batch.publisher
        and (a.batch.event_type is b.batch.event_type or a.batch.event_type == b.batch.event_type)
        and (not isinstance(a, Deliver) or not isinstance(b, Deliver) or a.epoch == b.epoch)
    )


def _flush(run: _Run | None, joined: list[Message]) -> None:
    if run is None:
        return
    first = run.messages[0]
    if len(run.messages) == 1:
        joined.append(first)
        return
    batch = EventBatch.concat([message.batch for message in run.messages])
    deliveries = [message for message in run.messages if isinstance(message, Deliver)]
    if not deliveries:
        last = run.messages[-1]
        joined.append(Publish(batch, first.replayed, last.offset, first.for_views, first.live))
        return
    counts = np.concatenate([np.diff(deliver.offsets) for deliver in deliveries])
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    ids = np.concatenate([deliver.ids for deliver in deliveries])
    epoch, offset = deliveries[0].epoch, deliveries[-1].offset
    replayed, for_views = first.replayed, first.for_views
    joined.append(Deliver(batch, offsets, ids, epoch, replayed, offset, for_views, first.live))


def part(message: Message, start: int, stop: int) -> Publish | Deliver:
    """The message with only events `start` to `stop` (exclusive)."""
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
    """Halve the message until every piece fits into `max_bytes` or has one event."""
    events = events_in(message)
    if events < 2 or size_of(message) <= max_bytes:
        return [message]
    middle = events // 2
    return [*pieces(part(message, 0, middle), max_bytes), *pieces(part(message, middle, events), max_bytes)]

"""Joins batches of events that gathered while a link was busy, so that they are sent and matched as one.

Invariant: the same events, in the same order, for the same subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.matcher.events.batch import EventBatch
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Deliver, Message, Publish

INGRESS_SPAN_NS = 10_000_000
"""How far apart the ingress times of joined events may be; they share the earliest."""

_SPAN = 2**32 - 1
"""How far apart the sequence numbers of one batch may be."""


@dataclass(slots=True)
class _Run:
    """Messages to join, with their totals."""

    messages: list[Publish | Deliver]
    events: int
    size: int
    low: int
    high: int
    earliest_ns: int
    latest_ns: int


def join(messages: Sequence[Message], max_events: int, max_bytes: int) -> list[Message]:
    """The messages, with successive ones joined that have the same kind, event type and publisher, for a
    Deliver the same epoch, and about the same ingress time, up to `max_events` and `max_bytes`. O(1) for a
    single message.
    """
    if len(messages) < 2:
        return list(messages)
    joined: list[Message] = []
    run: _Run | None = None
    for message in messages:
        if not isinstance(message, Publish | Deliver) or not len(message.batch):
            _flush(run, joined)
            run = None
            joined.append(message)
            continue
        start = _run_of(message)
        if run is not None and _fits(run, start, max_events, max_bytes):
            run.messages.append(message)
            run.events += start.events
            run.size += start.size
            run.low, run.high = min(run.low, start.low), max(run.high, start.high)
            run.earliest_ns = min(run.earliest_ns, start.earliest_ns)
            run.latest_ns = max(run.latest_ns, start.latest_ns)
        else:
            _flush(run, joined)
            run = start
    _flush(run, joined)
    return joined


def _run_of(message: Publish | Deliver) -> _Run:
    batch = message.batch
    offsets = batch.sequence_offsets
    last = len(batch) - 1 if offsets is None else int(offsets.max())
    low = batch.first_sequence
    ingress_ns = batch.ingress_ns
    return _Run([message], len(batch), size_of(message), low, low + last, ingress_ns, ingress_ns)


def _fits(run: _Run, other: _Run, max_events: int, max_bytes: int) -> bool:
    a, b = run.messages[-1], other.messages[0]
    return (
        type(a) is type(b)
        and a.batch.publisher == b.batch.publisher
        and a.batch.event_type == b.batch.event_type
        and a.replayed == b.replayed
        and (not isinstance(a, Deliver) or not isinstance(b, Deliver) or a.epoch == b.epoch)
        and run.events + other.events <= max_events
        and run.size + other.size <= max_bytes
        and max(run.high, other.high) - min(run.low, other.low) <= _SPAN
        and max(run.latest_ns, other.latest_ns) - min(run.earliest_ns, other.earliest_ns) <= INGRESS_SPAN_NS
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
        joined.append(Publish(batch, first.replayed))
        return
    counts = np.concatenate([np.diff(deliver.offsets) for deliver in deliveries])
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    ids = np.concatenate([deliver.ids for deliver in deliveries])
    joined.append(Deliver(batch, offsets, ids, deliveries[0].epoch, first.replayed))

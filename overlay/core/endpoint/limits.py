"""Limits of a broker: sizes of events and frames, leases and queues of sessions, slow consumers; and the
admission of events by them.

Invariants: whatever a publisher or a slow consumer does, its memory in a broker is bounded, and every dropped
event is counted. Every event of a client's batch is admitted, or refused by a sentence with its size and the
limit; a refusal concerns no other event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from covey.matcher import EventBatch
from covey.matcher.errors import CoveyError
from covey.overlay.core.messages import Refuse


class RefusedError(CoveyError):
    """The broker refused a call, and nothing changed. `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class SlowConsumer(Enum):
    """What a broker does when a client does not keep up; `CONFLATE` keeps the last event of each key."""

    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    DISCONNECT = "disconnect"
    CONFLATE = "conflate"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a broker accepts: bytes of one event, events of one batch, bytes of one frame."""

    max_event_bytes: int = 65_536
    max_batch_events: int = 4_096
    max_frame_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Seconds that a disconnected session is kept, events and bytes that wait for it, and seconds for which
    one that takes nothing may hold publishers."""

    lease_s: float = 30.0
    queue_events: int = 65_536
    queue_bytes: int = 16 << 20
    stall_limit_s: float = 10.0


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Bytes of events that wait for a neighbour: of types that it takes, and of each type that it holds."""

    queue_bytes: int = 4 << 20
    held_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """`held_bytes` is for each type that the peer holds; `events` None for any number."""

    bytes: int
    held_bytes: int
    events: int | None = None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The result of `decode` for an invalid message: the refusal, and the size of its events."""

    refuse: Refuse
    size: int = 0


def admit(batch: EventBatch, limits: Limits) -> tuple[EventBatch | None, list[Refuse]]:
    """The admitted events of a client's batch, None for no event, and the refusals of the others."""
    name = batch.event_type.name
    if batch.count > limits.max_batch_events:
        reason = f"a batch of {len(batch)} events of {name}: expected at most {limits.max_batch_events}"
        return None, [_refuse(batch, 0, len(batch), reason)]
    refusals: list[Refuse] = []
    # No event is larger than the bytes of its batch.
    if batch.nbytes > limits.max_event_bytes:
        sizes = batch.event_bytes()
        large = sizes > limits.max_event_bytes
        for i in np.flatnonzero(large):
            reason = (
                f"event {int(batch.sequences()[i])} of {name} has {int(sizes[i])} bytes: "
                f"expected at most {limits.max_event_bytes}"
            )
            refusals.append(_refuse(batch, int(i), 1, reason))
        if refusals:
            batch = batch.filter(~large)
    if not batch.count:
        return None, refusals
    return batch, refusals


def refuse_held(batch: EventBatch) -> Refuse:
    """The refusal of a batch of a client that ignores a Hold."""
    name = batch.event_type.name
    return _refuse(batch, 0, len(batch), f"{len(batch)} events of {name}: expected none while it is held")


def _refuse(batch: EventBatch, start: int, count: int, reason: str) -> Refuse:
    first = int(batch.sequences()[start])
    return Refuse(0, "RESOURCE_EXHAUSTED", reason, 0, batch.event_type.name, first, count)

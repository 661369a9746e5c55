"""Limits of a broker: sizes of events and frames, leases and queues of sessions, slow consumers.

Invariant: whatever a publisher or a slow consumer does, its memory in a broker is bounded, and every dropped
event is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SlowConsumer(Enum):
    """What a broker does when a client does not keep up: block publishers, drop events, disconnect it, or
    keep the last event of each key alone.
    """

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
    """For disconnected or slow clients: seconds that a session is kept, events and bytes that wait for it,
    and seconds for which one that takes nothing may hold the publishers of the types it asked for.
    """

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
    """What may be pending in a queue: bytes, bytes of each type that its peer holds, and events (None: any
    number).
    """

    bytes: int
    held_bytes: int
    events: int | None = None

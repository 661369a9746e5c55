"""What a broker accepts and keeps: sizes of events and frames, lives and queues of sessions, slow consumers.

Invariant: whatever a publisher or a slow consumer does, what a broker holds for it is bounded, and what is
given up is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SlowConsumer(Enum):
    """What a broker does for a client that does not keep up: wait for it, or drop events, or the client."""

    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    DISCONNECT = "disconnect"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a broker accepts: bytes of one event, events of one batch, bytes of one frame."""

    max_event_bytes: int = 65_536
    max_batch_events: int = 4_096
    max_frame_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """For clients out of reach or slow: seconds that their session is kept, events that are kept for them."""

    lease_s: float = 30.0
    queue_events: int = 65_536

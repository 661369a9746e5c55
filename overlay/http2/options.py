"""Bounds and timers of an HTTP/2 connection."""

from __future__ import annotations

from dataclasses import dataclass

from covey.overlay.core.budget import PERMITS, PERMITS_PER_S


@dataclass(frozen=True, slots=True)
class Http2Options:
    """What a peer may send, and when it counts as dead.
    `permits` and `permits_per_s` are those of its budget (`core/budget.py`). `max_answer_bytes` bounds the
    answers that a peer does not read. A peer that sends no byte for `keepalive_ns` gets a PING, and is dead
    after `keepalive_timeout_ns` more. A connection must begin, and a begun header block end, within
    `begin_ns`.
    """

    max_streams: int = 100
    max_frame_bytes: int = 256 << 10
    max_header_bytes: int = 16 << 10
    max_continuations: int = 16
    stream_window: int = 4 << 20
    connection_window: int = 16 << 20
    permits: int = PERMITS
    permits_per_s: int = PERMITS_PER_S
    max_answer_bytes: int = 64 << 10
    keepalive_ns: int = 3_000_000_000
    keepalive_timeout_ns: int = 2_000_000_000
    begin_ns: int = 10_000_000_000

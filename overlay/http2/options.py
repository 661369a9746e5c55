"""Bounds and timers of an HTTP/2 connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Http2Options:
    """What a peer may send, and when it counts as dead.

    A frame that demands an answer or carries nothing (SETTINGS, PING, RST_STREAM, PRIORITY, an empty DATA …)
    takes one of `idle_frames`, refilled at `idle_frames_per_s`, and the RST_STREAM of an open stream ten.
    `max_answer_bytes` bounds the answers that a peer does not read. A peer that sends no byte for
    `keepalive_ns` gets a PING, and is dead after `keepalive_timeout_ns` more. A connection must begin, and a
    begun header block end, within `begin_ns`.
    """

    max_streams: int = 100
    max_frame_bytes: int = 256 << 10
    max_header_bytes: int = 16 << 10
    max_continuations: int = 16
    stream_window: int = 4 << 20
    connection_window: int = 16 << 20
    idle_frames: int = 1_000
    idle_frames_per_s: int = 500
    max_answer_bytes: int = 64 << 10
    keepalive_ns: int = 3_000_000_000
    keepalive_timeout_ns: int = 2_000_000_000
    begin_ns: int = 10_000_000_000

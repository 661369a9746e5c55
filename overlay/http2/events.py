"""What an HTTP/2 connection reports of its peer."""

from __future__ import annotations

from typing import NamedTuple

from covey.overlay.http2.frames import ErrorCode
from covey.overlay.http2.messages import MessagesReceived
from covey.overlay.http2.stream import Headers


class HeadersReceived(NamedTuple):
    """Headers of a request or response, or its trailers."""

    stream_id: int
    headers: Headers
    trailers: bool
    ended: bool


class DataReceived(NamedTuple):
    """`size` is what it takes of the windows: `data` and its padding."""

    stream_id: int
    data: bytes
    size: int
    ended: bool


class StreamReset(NamedTuple):
    """The peer has reset a stream, or broken a rule of it, or will not process it."""

    stream_id: int
    code: ErrorCode
    reason: str


class ConnectionClosed(NamedTuple):
    """The connection has ended, and all its streams with it. `ours`: the peer broke a rule, or is silent."""

    code: ErrorCode
    reason: str
    ours: bool


Event = HeadersReceived | DataReceived | MessagesReceived | StreamReset | ConnectionClosed

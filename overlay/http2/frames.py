"""Frames of HTTP/2 (RFC 9113, sections 4, 6 and 7): types, flags, settings, error codes, and the header.

0        3      4       5           9
| length | type | flags | stream id | payload …
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)

ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
LARGEST_FRAME_BYTES = (1 << 24) - 1
LARGEST_WINDOW = LARGEST_STREAM = (1 << 31) - 1

HEADER_BYTES = 9
HEADER = Struct(">HBBBL")
"""Length (its upper two bytes and its last one), type, flags, stream id."""
_SETTING = Struct(">HL")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def error_code(number: int) -> ErrorCode:
    """An unknown number is INTERNAL_ERROR (section 7)."""
    return ErrorCode(number) if number <= ErrorCode.HTTP_1_1_REQUIRED else ErrorCode.INTERNAL_ERROR


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frame_header(len(payload), kind, flags, stream_id) + payload


def settings_frame(settings: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """The settings of a payload whose length is a multiple of 6."""
    return _SETTING.iter_unpack(payload)


def number_frame(kind: int, stream_id: int, number: int) -> bytes:
    """A RST_STREAM or WINDOW_UPDATE."""
    return frame(kind, 0, stream_id, number.to_bytes(4, "big"))

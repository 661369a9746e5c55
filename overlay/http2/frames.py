"""HTTP/2 frames (RFC 9113, sections 4, 6, 7), header blocks (sections 4.3, 8), and the bounds on a peer.

0        3      4       5           9
| length | type | flags | stream id | payload …
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from hpack import Decoder, HPACKError
from hpack.exceptions import OversizedHeaderListError

from covey.overlay.core.budget import PERMITS, PERMITS_PER_S

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
"""Length (upper two bytes, last byte), type, flags, stream id."""
_SETTING = Struct(">HL")
Header = tuple[bytes, bytes]
Headers = list[Header]
_REQUEST = {b":method", b":scheme", b":path"}
_RESPONSE = {b":status"}
_OF_CONNECTIONS = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}


class ErrorCode(IntEnum):
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
    """INTERNAL_ERROR if unknown (section 7)."""
    return ErrorCode(number) if number <= ErrorCode.HTTP_1_1_REQUIRED else ErrorCode.INTERNAL_ERROR


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frame_header(len(payload), kind, flags, stream_id) + payload


def settings_frame(settings: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """`payload` is a multiple of 6 bytes."""
    return _SETTING.iter_unpack(payload)


def number_frame(kind: int, stream_id: int, number: int) -> bytes:
    return frame(kind, 0, stream_id, number.to_bytes(4, "big"))


class ConnectionRuleError(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamRuleError(Exception):
    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.stream_id = stream_id
        self.code = code


def require(holds: bool, code: ErrorCode, reason: str) -> None:
    if not holds:
        raise ConnectionRuleError(code, reason)


@dataclass(frozen=True, slots=True)
class Http2Options:
    """`permits` and `permits_per_s` set the peer's `Budget`; `max_answer_bytes` bounds answers that it does
    not read. It gets a PING after `keepalive_ns` of silence, and is dead `keepalive_timeout_ns` later. Its
    preface, and the end of a header block, must arrive within `begin_ns`."""

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


# hpack logs every header at DEBUG, tokens included.
logging.getLogger("hpack").setLevel(logging.INFO)


class HeaderReader:
    def __init__(self, options: Http2Options) -> None:
        self._options = options
        self._decoder = Decoder(max_header_list_size=options.max_header_bytes)
        self._fragments: list[bytes] = []
        self.open = False
        self.stream_id = 0
        self.ends_stream = False
        self.since_ns = 0

    def begin(self, stream_id: int, ends_stream: bool, now_ns: int) -> None:
        self.open = True
        self.stream_id = stream_id
        self.ends_stream = ends_stream
        self.since_ns = now_ns

    @property
    def pending_bytes(self) -> int:
        return sum(map(len, self._fragments))

    def add(self, fragment: bytes) -> None:
        """`ConnectionRuleError` for too many bytes or frames."""
        self._fragments.append(fragment)
        options = self._options
        small = self.pending_bytes <= options.max_header_bytes
        few = len(self._fragments) <= options.max_continuations + 1
        require(small and few, ErrorCode.ENHANCE_YOUR_CALM, "a header block of too many bytes or frames")

    def end(self) -> Headers:
        """`ConnectionRuleError` for a malformed or oversized block."""
        block = b"".join(self._fragments)
        self._fragments.clear()
        self.open = False
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            reason = f"a header list of more than {self._options.max_header_bytes} bytes"
            raise ConnectionRuleError(ErrorCode.ENHANCE_YOUR_CALM, reason) from None
        except (HPACKError, IndexError, TypeError, ValueError) as error:
            reason = f"a malformed header block: {error}"
            raise ConnectionRuleError(ErrorCode.COMPRESSION_ERROR, reason) from None


def is_informational(headers: Headers) -> bool:
    return any(name == b":status" and value.startswith(b"1") for name, value in headers)


def check_headers(stream_id: int, headers: Headers, *, trailers: bool, request: bool) -> None:
    """`StreamRuleError` for a malformed message (section 8)."""
    required = set() if trailers else _REQUEST if request else _RESPONSE
    known = required | {b":authority"} if request and not trailers else required
    pseudo: set[bytes] = set()
    regular = False
    for name, value in headers:
        if name.startswith(b":"):
            wrong = regular or name in pseudo or name not in known
            pseudo.add(name)
        else:
            regular = True
            wrong = not name or name != name.lower() or name in _OF_CONNECTIONS
        if wrong or any(byte in value for byte in b"\0\r\n"):
            raise StreamRuleError(stream_id, ErrorCode.PROTOCOL_ERROR, f"a malformed header {name[:40]!r}")
    if not required <= pseudo:
        missing = b", ".join(sorted(required - pseudo)).decode()
        raise StreamRuleError(stream_id, ErrorCode.PROTOCOL_ERROR, f"headers without {missing}")

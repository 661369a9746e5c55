"""gRPC on an HTTP/2 stream: length-prefixed messages, statuses, timeouts and percent-encoded texts.

0      1        5
| flag | length | message …
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from covey.overlay.http2.frames import ErrorCode

PREFIX = Struct(">BL")
_MOST_CHUNKS = 1_024
"""Chunks are joined at this number: each costs some 50 bytes, however small."""
PREFIX_BYTES = 5
_ANY_SIZE = 1 << 32
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_OF_HTTP = {
    b"400": "INTERNAL",
    b"401": "UNAUTHENTICATED",
    b"403": "PERMISSION_DENIED",
    b"404": "UNIMPLEMENTED",
} | dict.fromkeys((b"429", b"502", b"503", b"504"), "UNAVAILABLE")
_OF_RESET = {
    ErrorCode.REFUSED_STREAM: "UNAVAILABLE",
    ErrorCode.CANCEL: "CANCELLED",
    ErrorCode.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    ErrorCode.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}
_UNITS_NS = {"n": 1, "u": 1_000, "m": 10**6, "S": 10**9, "M": 60 * 10**9, "H": 3_600 * 10**9}
_LARGEST_TIMEOUT = 99_999_999


class MessageError(Exception):
    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def frame_message(message: bytes) -> bytes:
    return PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Cuts bytes into messages of at most `max_bytes` (None: any size). Whole ones count against the windows
    until processed; bytes of an incomplete one are granted at once, else none could exceed a window."""

    __slots__ = (
        "_chunks",
        "_data",
        "_need",
        "_position",
        "_small_chunks",
        "alone",
        "granted_bytes",
        "most",
        "size",
    )

    def __init__(self, max_bytes: int | None) -> None:
        self.most = _ANY_SIZE if max_bytes is None else max_bytes
        self._data = b""
        self._position = 0
        self._chunks: list[bytes] = []
        self._small_chunks: list[bytes] = []
        self._need = 0
        """Bytes of the first message and its prefix; 0 until the prefix is read."""
        self.alone: bytes | None = None
        """A whole message without its prefix, if nothing else waits; set together with `size`."""
        self.size = 0
        self.granted_bytes = 0
        """Bytes among `size` that were granted again."""

    @property
    def waiting(self) -> bool:
        return self.size >= (self._need or PREFIX_BYTES)

    def feed(self, data: bytes) -> int:
        """Returns the bytes to grant again. `MessageError` as in `cut`."""
        self._join_alone()
        self._small_chunks.append(data)
        if len(self._small_chunks) >= _MOST_CHUNKS:
            self._chunks.append(b"".join(self._small_chunks))
            self._small_chunks.clear()
        self.size += len(data)
        if not self._need and self.size >= PREFIX_BYTES:
            self._look()
        return self._grant()

    def cut(self, most: int) -> tuple[list[bytes], int]:
        """At most `most` messages, and the bytes to grant beside theirs, less what was granted before.
        `MessageError` if the first message is compressed or too large."""
        messages: list[bytes] = []
        self._join_alone()
        while self.waiting:
            if not self._need:
                try:
                    self._look()
                except MessageError:
                    if not messages:
                        raise
                    break
            if self.size < self._need or len(messages) >= most:
                break
            self._join(self._need)
            end = self._position + self._need
            messages.append(self._data[self._position + PREFIX_BYTES : end])
            self._position = end
            self.size -= self._need
            self._need = 0
        due = 0
        if messages:
            due = PREFIX_BYTES * len(messages) - self.granted_bytes
            self.granted_bytes = 0
        return messages, due + self._grant()

    def drop(self) -> int:
        """Drop all bytes; returns how many were not granted again."""
        dropped = self.size - self.granted_bytes
        self._data, self._position, self.size, self.granted_bytes, self._need = b"", 0, 0, 0, 0
        self.alone = None
        self._chunks.clear()
        self._small_chunks.clear()
        return dropped

    def _grant(self) -> int:
        if self.waiting:
            return 0
        granted, self.granted_bytes = self.size - self.granted_bytes, self.size
        return granted

    def _look(self) -> None:
        self._join(PREFIX_BYTES)
        flag, length = PREFIX.unpack_from(self._data, self._position)
        if flag:
            announced = "a compressed message, of no announced encoding"
            what = announced if flag == 1 else f"a message with flag {flag}"
            raise MessageError("INTERNAL", f"{what}: expected flag 0")
        if length > self.most:
            reason = f"a message of {length} bytes: expected at most {self.most}"
            raise MessageError("RESOURCE_EXHAUSTED", reason)
        self._need = PREFIX_BYTES + length

    def _join_alone(self) -> None:
        if self.alone is not None:
            self._data, self._position, self.alone = self.alone, -PREFIX_BYTES, None
            self._need = self.size

    def _join(self, size: int) -> None:
        if len(self._data) - self._position < size:
            rest = self._data[self._position :]
            self._data = b"".join((rest, *self._chunks, *self._small_chunks))
            self._position = 0
            self._chunks.clear()
            self._small_chunks.clear()


class MessagesReceived(NamedTuple):
    """For `RpcConnection.cut`, which works after the end of the call too."""

    call_id: int
    reader: MessageReader


def status_of_reset(code: ErrorCode) -> str:
    return _OF_RESET.get(code, "INTERNAL")


def status_of_http(status: bytes) -> str:
    return _OF_HTTP.get(status, "UNKNOWN")


def status_of_number(number: bytes) -> str:
    known = number.isdigit() and len(number) < 3 and int(number) < len(STATUSES)
    return STATUSES[int(number)] if known else "UNKNOWN"


def encode_text(text: str) -> bytes:
    return quote(text, safe=_PRINTABLE).encode()


def decode_text(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "replace")


def encode_timeout(timeout_ns: int) -> bytes:
    """In the finest unit that needs at most eight digits, rounded up."""
    for unit, unit_ns in _UNITS_NS.items():
        amount = -(-max(timeout_ns, 1) // unit_ns)
        if amount <= _LARGEST_TIMEOUT:
            return b"%d%s" % (amount, unit.encode())
    return b"%dH" % _LARGEST_TIMEOUT


def decode_timeout(value: bytes) -> int | None:
    """Nanoseconds; None if malformed."""
    amount, unit = value[:-1], value[-1:].decode("latin-1")
    if not amount.isdigit() or len(amount) > 8 or unit not in _UNITS_NS:
        return None
    return int(amount) * _UNITS_NS[unit]

"""What gRPC has on a stream of HTTP/2: messages, each a flag, a length of four bytes and its bytes; statuses;
header values, which are percent-encoded texts and timeouts.

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
"""More chunks of one message become one: each costs some 50 bytes beside its own, however small it is."""
PREFIX_BYTES = 5
_ANY_SIZE = 1 << 32
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""The names of the statuses, each at its number."""
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
    """The peer's messages cannot be read; `status` is the gRPC status that says so."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def frame_message(message: bytes) -> bytes:
    return PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Cuts a stream of bytes into messages of at most `max_bytes` (None: any size), when they are asked for.

    Whole messages count against the windows of the stream until they are processed. The bytes of one that is
    not whole are granted again at once, or none could be larger than a window (`granted_bytes`).
    """

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
        """How many bytes the first message has with its prefix, 0 while that has not been read."""
        self.alone: bytes | None = None
        """A whole message without its prefix, where nothing else waits: its owner may take it from here, and
        sets `size` with it."""
        self.size = 0
        """Bytes that have not been cut."""
        self.granted_bytes = 0
        """Those among them that were granted again."""

    @property
    def waiting(self) -> bool:
        """Whether `cut` returns a message, or raises."""
        return self.size >= (self._need or PREFIX_BYTES)

    def feed(self, data: bytes) -> int:
        """Take some bytes. Returns how many may be granted again. `MessageError` as `cut`."""
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
        """At most so many messages, and how many bytes beside theirs may be granted again, less those that
        were already. `MessageError` for a compressed or too large message, once it is the first.
        """
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
        """Drop all bytes; returns how many of them have not been granted again."""
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
        """Read the prefix of the first message."""
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
        """Have the first bytes in one piece."""
        if len(self._data) - self._position < size:
            rest = self._data[self._position :]
            self._data = b"".join((rest, *self._chunks, *self._small_chunks))
            self._position = 0
            self._chunks.clear()
            self._small_chunks.clear()


class MessagesReceived(NamedTuple):
    """`RpcConnection.cut` has some of `reader`, when they are wanted, after the end of the call as well."""

    call_id: int
    reader: MessageReader


def status_of_reset(code: ErrorCode) -> str:
    """The status of a call whose stream was reset."""
    return _OF_RESET.get(code, "INTERNAL")


def status_of_http(status: bytes) -> str:
    """The status of a call whose HTTP status is not 200."""
    return _OF_HTTP.get(status, "UNKNOWN")


def status_of_number(number: bytes) -> str:
    known = number.isdigit() and len(number) < 3 and int(number) < len(STATUSES)
    return STATUSES[int(number)] if known else "UNKNOWN"


def encode_text(text: str) -> bytes:
    """Percent-encoded UTF-8, as grpc-message has it."""
    return quote(text, safe=_PRINTABLE).encode()


def decode_text(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "replace")


def encode_timeout(timeout_ns: int) -> bytes:
    """A grpc-timeout, rounded up to its largest exact unit of at most eight digits."""
    for unit, unit_ns in _UNITS_NS.items():
        amount = -(-max(timeout_ns, 1) // unit_ns)
        if amount <= _LARGEST_TIMEOUT:
            return b"%d%s" % (amount, unit.encode())
    return b"%dH" % _LARGEST_TIMEOUT


def decode_timeout(value: bytes) -> int | None:
    """Nanoseconds; None for a malformed grpc-timeout."""
    amount, unit = value[:-1], value[-1:].decode("latin-1")
    if not amount.isdigit() or len(amount) > 8 or unit not in _UNITS_NS:
        return None
    return int(amount) * _UNITS_NS[unit]

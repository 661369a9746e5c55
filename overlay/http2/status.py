"""Statuses of gRPC calls, and header values of gRPC: percent-encoded texts, timeouts."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from covey.overlay.http2.frames import ErrorCode

STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""The names of the statuses, each at its number."""

_OF_HTTP = {
    400: "INTERNAL",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
} | dict.fromkeys((429, 502, 503, 504), "UNAVAILABLE")
_OF_RESET = {
    ErrorCode.REFUSED_STREAM: "UNAVAILABLE",
    ErrorCode.CANCEL: "CANCELLED",
    ErrorCode.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    ErrorCode.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}
_UNITS_NS = {"n": 1, "u": 1_000, "m": 10**6, "S": 10**9, "M": 60 * 10**9, "H": 3_600 * 10**9}
_LARGEST_TIMEOUT = 99_999_999


def status_of_reset(code: ErrorCode) -> str:
    """The status of a call whose stream was reset."""
    return _OF_RESET.get(code, "INTERNAL")


def status_of_http(status: bytes) -> str:
    """The status of a call whose HTTP status is not 200."""
    return _OF_HTTP.get(int(status), "UNKNOWN") if status.isdigit() else "UNKNOWN"


def status_of_number(number: bytes) -> str:
    known = number.isdigit() and len(number) < 3 and int(number) < len(STATUSES)
    return STATUSES[int(number)] if known else "UNKNOWN"


def encode_text(text: str) -> bytes:
    """Percent-encoded UTF-8, as grpc-message has it."""
    return b"".join(
        bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode()
    )


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

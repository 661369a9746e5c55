"""Rules of HTTP/2 that a peer broke."""

from __future__ import annotations

from covey.overlay.http2.frames import ErrorCode


class ConnectionRuleError(Exception):
    """The peer broke a rule that ends the connection."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamRuleError(Exception):
    """The peer broke a rule that ends one stream."""

    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.stream_id = stream_id
        self.code = code


def require(holds: bool, code: ErrorCode, reason: str) -> None:
    """`ConnectionRuleError` unless it holds."""
    if not holds:
        raise ConnectionRuleError(code, reason)

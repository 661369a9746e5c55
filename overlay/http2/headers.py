"""Header blocks of a peer (RFC 9113, sections 4.3 and 8): assembled, decoded and checked; bounded."""

from __future__ import annotations

import logging

from hpack import Decoder, HPACKError
from hpack.exceptions import OversizedHeaderListError

from covey.overlay.http2.errors import ConnectionRuleError, StreamRuleError, require
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.http2.options import Http2Options
from covey.overlay.http2.stream import Headers

# At DEBUG hpack writes every header to the log, tokens among them.
logging.getLogger("hpack").setLevel(logging.INFO)

_REQUEST = {b":method", b":scheme", b":path"}
_RESPONSE = {b":status"}
_OF_CONNECTIONS = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}


class HeaderReader:
    """Decodes the header blocks of one connection. A block that has begun is `open` since `since_ns`."""

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
        """`ConnectionRuleError` for a block of too many bytes or frames."""
        self._fragments.append(fragment)
        options = self._options
        small = self.pending_bytes <= options.max_header_bytes
        few = len(self._fragments) <= options.max_continuations + 1
        require(small and few, ErrorCode.ENHANCE_YOUR_CALM, "a header block of too many bytes or frames")

    def end(self) -> Headers:
        """The headers of the block. `ConnectionRuleError` if it is malformed, or has too many bytes."""
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

"""Messages of a gRPC call on its stream: a flag, a length of four bytes, and the message.

0      1        5
| flag | length | message …
"""

from __future__ import annotations

from struct import Struct

from covey.overlay.core.budget import BRINGS_BYTES

_PREFIX = Struct(">BL")
_MOST_SMALL = 1_000
"""Small messages in one chunk, of which the largest, 256 KiB, has room for 50,000: 20 ms to cut them."""
_MOST_CHUNKS = 1_024
"""More chunks of one message become one: each costs some 50 bytes beside its own, however small it is."""
PREFIX_BYTES = 5


class MessageError(Exception):
    """The peer's messages cannot be read; `status` is the gRPC status that says so."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def frame_message(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Cuts a stream of bytes into messages of at most `max_bytes` (None: any size)."""

    __slots__ = ("_blocks", "_chunks", "_max_bytes", "_missing", "partial_bytes", "small")

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._blocks: list[bytes] = []
        self._chunks: list[bytes] = []
        self._missing = 0
        self.partial_bytes = 0
        """Bytes of a message that has not arrived whole."""
        self.small = 0
        """How many of the messages that `read` has returned last are too small to bring something."""

    def read(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete. `MessageError` for a compressed or too large one, and for
        too many small ones.
        """
        self.small = 0
        if self.partial_bytes:
            self._chunks.append(data)
            self.partial_bytes += len(data)
            if self.partial_bytes < self._missing:
                if len(self._chunks) >= _MOST_CHUNKS:
                    self._blocks.append(b"".join(self._chunks))
                    self._chunks.clear()
                return []
            data = b"".join(self._blocks + self._chunks)
            self._blocks.clear()
            self._chunks.clear()
        messages = []
        position = 0
        self._missing = PREFIX_BYTES
        while len(data) - position >= PREFIX_BYTES:
            flag, length = _PREFIX.unpack_from(data, position)
            if flag:
                reason = (
                    "a compressed message, of no announced encoding"
                    if flag == 1
                    else f"a message with flag {flag}"
                )
                raise MessageError("INTERNAL", f"{reason}: expected flag 0")
            if self._max_bytes is not None and length > self._max_bytes:
                reason = f"a message of {length} bytes: expected at most {self._max_bytes}"
                raise MessageError("RESOURCE_EXHAUSTED", reason)
            if length < BRINGS_BYTES:
                self.small += 1
                if self.small > _MOST_SMALL:
                    raise MessageError("RESOURCE_EXHAUSTED", f"over {_MOST_SMALL} small messages at once")
            end = position + PREFIX_BYTES + length
            if end > len(data):
                self._missing = PREFIX_BYTES + length
                break
            messages.append(data[position + PREFIX_BYTES : end])
            position = end
        self.partial_bytes = len(data) - position
        if self.partial_bytes:
            self._chunks.append(data[position:] if position else data)
        return messages

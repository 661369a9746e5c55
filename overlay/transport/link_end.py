"""The end of a link, as a call sees it: what decodes its frames, and encodes those that it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Message
from covey.overlay.transport.address import CallError
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.packets import Goodbye, Greeting, decode_packet, encode_frame, encode_goodbye
from covey.overlay.transport.rpc_call import PeerClosedError, StreamClosedError
from covey.overlay.transport.wire_values import MalformedPacketError

_DECODED_BYTES = 32 << 10
"""Of frames, from which on no further frame is decoded before those are received."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The endpoint of an interface. Times are nanoseconds of the monotonic clock.

    `receive` gets frames and when they arrived, and returns how many it is done with: the others are to be
    received again. What it raises ends the connection. `next_frame` has the frame to send, if there is one;
    with `schemas` its subscriptions carry their event types. `delay_ns` is how long what has arrived by now
    has to wait, 0 if it may be received.
    """

    receive: Callable[[list[Frame[WireMessage]], int], int]
    next_frame: Callable[[], Frame[Message] | None]
    schemas: bool
    delay_ns: Callable[[int], int] | None = None

    def next_message(self) -> bytes | None:
        """The next frame, encoded."""
        frame = self.next_frame()
        return None if frame is None else encode_frame(frame, schemas=self.schemas)

    def decode(self, messages: list[bytes]) -> list[Frame[WireMessage]]:
        """The frames of the first messages. Raises for a message that ends the connection once it is the
        first: what comes before it counts.
        """
        frames: list[Frame[WireMessage]] = []
        size = 0
        for message in messages:
            try:
                packet = decode_packet(message)
                if not isinstance(packet, Frame):
                    raise _end_of(packet)
            except (CallError, MalformedPacketError):
                if not frames:
                    raise
                break
            frames.append(packet)
            size += len(message)
            if size >= _DECODED_BYTES:
                break
        return frames

    def goodbye(self, status: str, reason: str) -> bytes:
        """What tells the peer why the connection ends."""
        return encode_goodbye(Goodbye(status, reason))


def _end_of(packet: Greeting | Goodbye) -> StreamClosedError:
    """Why a packet that is no frame ends the connection."""
    if isinstance(packet, Goodbye):
        return PeerClosedError(packet.status, packet.reason)
    return StreamClosedError("INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame")

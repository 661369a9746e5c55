"""What one end of a connection sends: frames at once, DATA within the windows of the peer (section 5.2).

Invariant: the DATA of a stream leaves in the order in which it was queued, its end behind it; streams with
DATA take turns, one frame each.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from hpack import Encoder

from covey.overlay.http2 import frames
from covey.overlay.http2.errors import require
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.http2.messages import PREFIX_BYTES, frame_message
from covey.overlay.http2.stream import Headers, Stream

_OUTPUT_BYTES = 256 << 10
_UNQUEUED_BYTES = 64 << 10
"""DATA that goes to the output without its stream's turn, between two calls of `take`."""
_MESSAGE = Struct(">HBBBLBL")
"""The header of a DATA frame that is one message, and the prefix of the message."""


class Sender:
    """`window` are the bytes of DATA that the peer takes on the connection, `stream_window` those on a new
    stream; `max_answer_bytes` bounds the frames that the peer has caused and does not read.
    """

    def __init__(self, max_answer_bytes: int) -> None:
        self.window = frames.DEFAULT_WINDOW
        self.stream_window = frames.DEFAULT_WINDOW
        self.max_frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._max_answer_bytes = max_answer_bytes
        self._answer_bytes = self._header_bytes = 0
        # No table, hence none that the peer could resize. The few headers of a connection need none.
        self._encoder = Encoder()
        self._encoder.header_table_size = 0
        self.output: list[bytes | memoryview] = []
        self._unqueued = 0
        self.ready: deque[Stream] = deque()
        self._stalled: list[Stream] = []

    def write(self, frame: bytes) -> None:
        self.output.append(frame)

    def answer(self, frame: bytes) -> None:
        """Write a frame that the peer has caused. `ConnectionRuleError` if it causes many and reads none."""
        self._answer_bytes += len(frame)
        self._require_few(self._answer_bytes)
        self.output.append(frame)

    def _require_few(self, size: int) -> None:
        few = size <= self._max_answer_bytes
        require(few, ErrorCode.ENHANCE_YOUR_CALM, "too many answers that the peer does not read")

    def check_headers_are_read(self) -> None:
        """`ConnectionRuleError` if the peer opens and resets streams, and reads none of their headers."""
        self._require_few(self._header_bytes)

    def write_headers(self, stream_id: int, headers: Headers, flags: int = 0) -> None:
        block = self._encoder.encode(headers)
        self._header_bytes += len(block)
        kind, largest = frames.HEADERS, self.max_frame_bytes
        while len(block) > largest:
            self.output.append(frames.frame(kind, flags, stream_id, block[:largest]))
            kind, flags, block = frames.CONTINUATION, 0, block[largest:]
        self.output.append(frames.frame(kind, flags | frames.END_HEADERS, stream_id, block))

    def grant(self, size: int) -> None:
        """The peer takes more DATA on the connection."""
        self.window += size
        self.ready += self._stalled
        self._stalled.clear()

    def schedule(self, stream: Stream) -> None:
        """Call when a stream has got DATA, a window, or its end."""
        due = stream.send_window > 0 if stream.queue else stream.ending and not stream.end_sent
        if due and not stream.scheduled:
            stream.scheduled = True
            self.ready.append(stream)

    def send_message(self, stream: Stream, message: bytes) -> None:
        """Write a message of gRPC in a frame of its own, if all windows permit it and no stream waits for its
        turn, else queue it. Nothing happens on a stream that has ended; so below.
        """
        length = len(message)
        size = length + PREFIX_BYTES
        if stream.ending:
            return
        if stream.leading is not None:
            self.write_headers(stream.id, stream.leading)
            stream.leading = None
        if (
            self.ready
            or stream.queue
            or size > self.window
            or size > stream.send_window
            or size > self.max_frame_bytes
            or self._unqueued + size > _UNQUEUED_BYTES
        ):
            self.queue(stream, frame_message(message))
            return
        self.window -= size
        stream.send_window -= size
        self._unqueued += size
        header = _MESSAGE.pack(size >> 8, size & 0xFF, frames.DATA, 0, stream.id, 0, length)
        self.output += (header, message)

    def queue(self, stream: Stream, data: bytes) -> None:
        """Queue DATA."""
        if data and not stream.ending:
            stream.queue.append(data)
            stream.queued_bytes += len(data)
            self.schedule(stream)

    def forget(self, stream: Stream) -> None:
        """Send no more of a stream."""
        if stream.scheduled:
            (self.ready if stream in self.ready else self._stalled).remove(stream)
            stream.scheduled = False

    def discard(self) -> None:
        """Send no more DATA."""
        self.ready.clear()
        self._stalled.clear()

    def take(self, ended: list[Stream]) -> tuple[bytes, int]:
        """Bytes to transmit, about 256 KiB at most, and how many are DATA; `ended` gets the streams whose end
        is among them.
        """
        size, self._unqueued = self._unqueued, 0
        while self.ready and size < _OUTPUT_BYTES:
            stream = self.ready.popleft()
            if stream.queue:
                room = min(self.window, stream.send_window, self.max_frame_bytes)
                if room <= 0 < stream.send_window:
                    self._stalled.append(stream)
                    continue
                if room > 0:
                    size += self._write_data(stream, room)
                    if stream.queue:
                        self.ready.append(stream)
                        continue
            stream.scheduled = False
            if stream.ending and not stream.queue:
                self._write_end(stream)
                ended.append(stream)
        output, self.output = b"".join(self.output), []
        self._answer_bytes = self._header_bytes = 0
        return output, size

    def _write_data(self, stream: Stream, room: int) -> int:
        data = stream.take(room)
        size = len(data)
        stream.send_window -= size
        self.window -= size
        self.output += (frames.frame_header(size, frames.DATA, 0, stream.id), data)
        return size

    def _write_end(self, stream: Stream) -> None:
        stream.end_sent = True
        if stream.trailers is not None:
            self.write_headers(stream.id, stream.trailers, frames.END_STREAM)
        else:
            self.output.append(frames.frame(frames.DATA, frames.END_STREAM, stream.id))

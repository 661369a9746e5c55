"""Streams, and the sending half of a connection, within the peer's windows (RFC 9113, section 5.2).
Invariant: a stream's DATA leaves in order, before its end; streams take turns of one frame."""

from __future__ import annotations

from struct import Struct

from hpack import Encoder

from covey.overlay.http2 import frames
from covey.overlay.http2.frames import ErrorCode, Headers, require
from covey.overlay.http2.messages import PREFIX_BYTES, MessagesReceived, frame_message

_OUTPUT_BYTES = 256 << 10
_UNQUEUED_BYTES = 64 << 10
"""DATA that may bypass the queues until the output is taken."""
MESSAGE = Struct(">LBLBL")
"""A DATA frame's header, then a message's prefix. The first number is `size << 8`, since DATA is kind 0."""
# No dynamic table: nothing for a peer to resize, nothing to store. The few headers of a connection need none.
_ENCODER = Encoder()
_ENCODER.header_table_size = 0
_NO_TABLE = _ENCODER.encode([])


class Stream:
    """Windows are bytes of DATA that each side may still send; `consumed` bytes are not granted again yet."""

    __slots__ = (
        "consumed",
        "end_sent",
        "ended",
        "ending",
        "has_headers",
        "id",
        "leading",
        "messages",
        "queue",
        "queued_bytes",
        "receive_window",
        "scheduled",
        "send_window",
        "trailers",
    )

    def __init__(self, stream_id: int, send_window: int, receive_window: int) -> None:
        self.id = stream_id
        self.send_window = send_window
        self.receive_window = receive_window
        self.consumed = 0
        self.has_headers = False
        """Later headers are trailers."""
        self.ended = False
        self.ending = False
        """Whether this side has ended, or ends once its queue is sent, with `trailers` if any."""
        self.end_sent = False
        self.leading: Headers | None = None
        self.trailers: Headers | None = None
        self.messages: MessagesReceived | None = None
        """The event for DATA that is exactly one message; other DATA is a `DataReceived`."""
        self.queue: list[bytes | memoryview] = []
        self.queued_bytes = 0
        self.scheduled = False

    def take(self, size: int) -> bytes | memoryview:
        head = self.queue[0]
        if len(head) <= size:
            del self.queue[0]
        else:
            view = memoryview(head)
            self.queue[0] = view[size:]
            head = view[:size]
        self.queued_bytes -= len(head)
        return head


class Sender:
    """`window` and `stream_window` are bytes of DATA that the peer accepts, in all and on a new stream.
    `max_answer_bytes` bounds answers that it does not read."""

    __slots__ = (
        "_answer_bytes",
        "_header_bytes",
        "_max_answer_bytes",
        "_stalled",
        "_unqueued",
        "max_frame_bytes",
        "output",
        "ready",
        "stream_window",
        "window",
    )

    def __init__(self, max_answer_bytes: int) -> None:
        self.window = frames.DEFAULT_WINDOW
        self.stream_window = frames.DEFAULT_WINDOW
        self.max_frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._max_answer_bytes = max_answer_bytes
        self._answer_bytes = self._header_bytes = 0
        self.output: list[bytes | memoryview] = []
        self._unqueued = 0
        self.ready: list[Stream] = []
        self._stalled: list[Stream] = []

    def write(self, frame: bytes) -> None:
        self.output.append(frame)

    def answer(self, frame: bytes) -> None:
        """`ConnectionRuleError` over `max_answer_bytes`."""
        self._answer_bytes += len(frame)
        self._require_few(self._answer_bytes)
        self.output.append(frame)

    def _require_few(self, size: int) -> None:
        few = size <= self._max_answer_bytes
        require(few, ErrorCode.ENHANCE_YOUR_CALM, "too many answers that the peer does not read")

    def check_headers_are_read(self) -> None:
        """`ConnectionRuleError` if the peer opens and resets streams without reading their headers."""
        self._require_few(self._header_bytes)

    def write_headers(self, stream_id: int, headers: Headers, flags: int = 0) -> None:
        block = _NO_TABLE + _ENCODER.encode(headers)
        self._header_bytes += len(block)
        kind, largest = frames.HEADERS, self.max_frame_bytes
        while len(block) > largest:
            self.output.append(frames.frame(kind, flags, stream_id, block[:largest]))
            kind, flags, block = frames.CONTINUATION, 0, block[largest:]
        self.output.append(frames.frame(kind, flags | frames.END_HEADERS, stream_id, block))

    def grant(self, size: int) -> None:
        self.window += size
        self.ready += self._stalled
        self._stalled.clear()

    def schedule(self, stream: Stream) -> None:
        """To be called when a stream gets DATA, a window or its end."""
        due = stream.send_window > 0 if stream.queue else stream.ending and not stream.end_sent
        if due and not stream.scheduled:
            stream.scheduled = True
            self.ready.append(stream)

    def send_message(self, stream: Stream, message: bytes) -> None:
        """Send a message as one frame if the windows permit it and no stream waits, else queue it. No effect
        on a stream that has ended."""
        if stream.ending:
            return
        length = len(message)
        size = length + PREFIX_BYTES
        unqueued = self._unqueued + size
        if stream.leading is not None:
            self.write_headers(stream.id, stream.leading)
            stream.leading = None
        if (
            self.ready
            or stream.queue
            or size > self.window
            or size > stream.send_window
            or size > self.max_frame_bytes
            or unqueued > _UNQUEUED_BYTES
        ):
            self.queue(stream, frame_message(message))
            return
        self.window -= size
        stream.send_window -= size
        self._unqueued = unqueued
        self.output += (MESSAGE.pack(size << 8, 0, stream.id, 0, length), message)

    def queue(self, stream: Stream, data: bytes) -> None:
        if data and not stream.ending:
            stream.queue.append(data)
            stream.queued_bytes += len(data)
            self.schedule(stream)

    def forget(self, stream: Stream) -> None:
        if stream.scheduled:
            (self.ready if stream in self.ready else self._stalled).remove(stream)
            stream.scheduled = False

    def discard(self) -> None:
        self.ready.clear()
        self._stalled.clear()

    def _write_ready(self, size: int, ended: list[Stream]) -> int:
        """Write DATA in turn, behind `size` bytes; returns the new size. `ended` gets streams whose end was
        written."""
        while self.ready and size < _OUTPUT_BYTES:
            stream = self.ready.pop(0)
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
        return size

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

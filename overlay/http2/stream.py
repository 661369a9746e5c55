"""One stream of an HTTP/2 connection: what waits for its window, and which sides have ended it."""

from __future__ import annotations

from collections import deque

from covey.overlay.http2.messages import MessagesReceived

Header = tuple[bytes, bytes]
Headers = list[Header]


class Stream:
    """`send_window` and `receive_window` are bytes of DATA that each side may still send (section 5.2);
    `consumed` are bytes received that the peer has not been granted again.
    """

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
        """Whether the peer's headers have arrived: other headers are trailers."""
        self.ended = False
        """Whether the peer has ended its side."""
        self.ending = False
        """Whether this side ends once its queue is sent, with `trailers` if there are any, or has ended."""
        self.end_sent = False
        self.leading: Headers | None = None
        """What is sent before the first message."""
        self.trailers: Headers | None = None
        self.messages: MessagesReceived | None = None
        """What reports DATA that is one message to its reader; all else is a `DataReceived`."""
        self.queue: deque[bytes | memoryview] = deque()
        self.queued_bytes = 0
        self.scheduled = False

    def take(self, size: int) -> bytes | memoryview:
        """At most `size` bytes from the head of the queue."""
        head = self.queue[0]
        if len(head) <= size:
            self.queue.popleft()
        else:
            view = memoryview(head)
            self.queue[0] = view[size:]
            head = view[:size]
        self.queued_bytes -= len(head)
        return head

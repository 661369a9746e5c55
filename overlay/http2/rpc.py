"""gRPC calls on one HTTP/2 connection, without I/O (gRPC over HTTP/2, PROTOCOL-HTTP2.md).

Invariants: every call ends exactly once, with a status: by this end, the peer, its deadline or the
connection. Compressed messages are refused. Bytes of incomplete messages are bounded over all calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import NamedTuple

from covey.overlay.core.budget import BRINGS_BYTES, CALL
from covey.overlay.http2.connection import DataReceived, Event, HeadersReceived, Http2Connection, StreamReset
from covey.overlay.http2.frames import ErrorCode, Headers, Http2Options
from covey.overlay.http2.messages import (
    STATUSES,
    MessageError,
    MessageReader,
    MessagesReceived,
    decode_text,
    decode_timeout,
    encode_text,
    encode_timeout,
    status_of_http,
    status_of_number,
    status_of_reset,
)
from covey.overlay.http2.stream import Stream

_MOST_DETAILS = 1_000
"""Characters of an error's text, up to 12 bytes each: an oversized header block would end the connection."""
_LINGER_NS = 5_000_000_000
"""How long the end of a call waits for a peer that does not read the messages before it."""
_PARTIAL_BYTES = 16 << 20
_SMALL_PART = 256
"""Smaller parts of a message, except the last, take a permit."""
_LARGE_PART = 64 << 10
"""`_PARTIAL_BYTES` is checked from this part on: 100 calls with smaller ones stay below it."""
_WITHIN = "the stream ends within a message"
_CONTENT_TYPE = (b"content-type", b"application/grpc")
_IDENTITY = (b"grpc-accept-encoding", b"identity")


class Secret(bytes):
    def __repr__(self) -> str:
        return "Secret"

    __str__ = __repr__


NO_SECRET = Secret()


class CallStarted(NamedTuple):
    """`authorization` is the header's value, empty without one."""

    call_id: int
    path: str
    authorization: Secret = NO_SECRET


class RequestEnded(NamedTuple):
    """The client sends no more messages; earlier ones may not have been cut yet."""

    call_id: int


class CallEnded(NamedTuple):
    call_id: int
    status: str
    details: str


RpcEvent = CallStarted | MessagesReceived | RequestEnded | CallEnded


class _Call:
    __slots__ = ("deadline_ns", "ended", "finished", "messages", "reader", "stream")

    def __init__(self, call_id: int, reader: MessageReader, stream: Stream | None) -> None:
        self.reader = reader
        self.messages = MessagesReceived(call_id, reader)
        self.stream = stream
        self.deadline_ns: int | None = None
        self.ended = False
        self.finished = False


class RpcConnection:
    """A server passes the `paths` that it serves; a client passes None."""

    def __init__(
        self,
        paths: Container[str] | None = None,
        *,
        now_ns: int,
        max_message_bytes: int | None = None,
        authority: str = "",
        scheme: str = "http",
        options: Http2Options | None = None,
        faults: Counter[ErrorCode] | None = None,
    ) -> None:
        self.http2 = Http2Connection(client=paths is None, now_ns=now_ns, options=options, faults=faults)
        self._paths = paths
        self._max_message_bytes = max_message_bytes
        self._authority = authority.encode()
        self._scheme = scheme.encode()
        self._calls: dict[int, _Call] = {}
        self._events: list[RpcEvent] = []
        self._charged: list[Event] = []

    @property
    def is_client(self) -> bool:
        return self._paths is None

    # --- from the peer --------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ns: int) -> list[RpcEvent]:
        return self.handle(self.http2.receive(data, now_ns))

    def charge(self, permits: float, now_ns: int) -> list[RpcEvent]:
        return self.handle(self.http2.charge(permits, now_ns))

    def lost(self, reason: str) -> list[RpcEvent]:
        return self.handle(self.http2.lost(reason))

    def next_timer(self) -> int | None:
        due = [call.deadline_ns for call in self._calls.values() if call.deadline_ns is not None]
        of_connection = self.http2.next_timer()
        return min(due if of_connection is None else [*due, of_connection], default=None)

    def handle_timer(self, now_ns: int) -> list[RpcEvent]:
        self.http2.now_ns = now_ns
        for call_id, call in list(self._calls.items()):
            if call.deadline_ns is not None and now_ns >= call.deadline_ns:
                if call.finished:
                    self.http2.reset_stream(call_id, ErrorCode.CANCEL)
                    self._calls.pop(call_id, None)
                else:
                    self._refuse(call_id, "DEADLINE_EXCEEDED", "the call was not answered in time")
        return self.handle(self.http2.handle_timer(now_ns))

    def handle(self, events: list[Event]) -> list[RpcEvent]:
        for event in events:
            if isinstance(event, MessagesReceived):
                self._events.append(event)
            elif isinstance(event, DataReceived):
                self._read(event)
                part = self._calls.get(event.stream_id)
                small = BRINGS_BYTES <= len(event.data) < _SMALL_PART  # the connection has charged less
                if small and part is not None and not part.reader.waiting:
                    events += self.http2.charge(1.0, self.http2.now_ns)
            elif isinstance(event, HeadersReceived):
                if self._paths is None:
                    self._read_response(event)
                elif not event.trailers:
                    self._start(event)
                else:
                    self._end_request(event.stream_id)
            elif isinstance(event, StreamReset):
                self._end(event.stream_id, status_of_reset(event.code), event.reason)
            else:
                for call_id in list(self._calls):
                    self._end(call_id, "UNAVAILABLE", event.reason)
        taken, self._events = self._events, []
        return taken

    def _read(self, event: DataReceived) -> None:
        call_id = event.stream_id
        call = self._calls.get(call_id)
        if call is None or call.finished:
            self.http2.consume(call_id, event.size)
            return
        reader = call.reader
        try:
            granted = reader.feed(event.data)
            if reader.granted_bytes >= _LARGE_PART:
                self._check_parts(reader)
        except MessageError as error:
            self.http2.consume(call_id, event.size - len(event.data) + reader.drop())
            self._refuse(call_id, error.status, str(error))
            return
        self.http2.consume(call_id, event.size - len(event.data) + granted)
        if reader.waiting and self._events[-1:] != [call.messages]:
            self._events.append(call.messages)
        if event.ended:
            call.ended = True
            if not reader.waiting and reader.size:
                self._refuse(call_id, "INTERNAL", _WITHIN)
            elif self._paths is None:
                self.http2.reset_stream(call_id, ErrorCode.NO_ERROR)
                self._end(call_id, "INTERNAL", "the answer ends without a status")
            else:
                self._end_request(call_id)

    def cut(self, call_id: int, reader: MessageReader, most: int, now_ns: int) -> list[bytes]:
        """Messages count against the windows until `consume`. `take_events` has what this causes."""
        self.http2.now_ns = now_ns
        call = self._calls.get(call_id)
        lives = call is not None and not call.finished
        try:
            messages, granted = reader.cut(most)
        except MessageError as error:
            self.http2.consume(call_id, reader.drop())
            if lives:
                self._refuse(call_id, error.status, str(error))
            return []
        self.http2.consume(call_id, granted)
        if len(messages) > 1:
            small = sum(len(message) < BRINGS_BYTES for message in messages)
            if small > 1:  # the DATA of one was charged
                self._charged += self.http2.charge(small - 1, now_ns)
        if lives and call is not None and call.ended and not reader.waiting and reader.size:
            self._refuse(call_id, "INTERNAL", _WITHIN)
        return messages

    def take_events(self) -> list[RpcEvent]:
        if not (self._charged or self._events):
            return []
        charged, self._charged = self._charged, []
        return self.handle(charged)

    def _end_request(self, call_id: int) -> None:
        call = self._calls.get(call_id)
        if call is not None and not call.finished:
            self._events.append(RequestEnded(call_id))

    def _check_parts(self, reader: MessageReader) -> None:
        parts = [call.reader.granted_bytes for call in self._calls.values()]
        if sum(parts) > _PARTIAL_BYTES and reader.granted_bytes < sum(parts):
            raise MessageError("RESOURCE_EXHAUSTED", "too many messages that have not arrived whole")

    def _refuse(self, call_id: int, status: str, reason: str) -> None:
        self._events.append(CallEnded(call_id, status, reason))
        if self._paths is None:
            self.cancel(call_id)
        else:
            self.finish(call_id, status, reason)

    def _end(self, call_id: int, status: str, details: str) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None and not call.finished:
            self._events.append(CallEnded(call_id, status, details))

    def _new_call(self, call_id: int) -> _Call:
        stream = self.http2.stream(call_id)
        call = self._calls[call_id] = _Call(call_id, MessageReader(self._max_message_bytes), stream)
        if stream is not None:
            stream.messages = call.messages
            stream.leading = None if self._paths is None else [(b":status", b"200"), _CONTENT_TYPE]
        return call

    # --- a server -------------------------------------------------------------------------------------------

    def _start(self, event: HeadersReceived) -> None:
        call_id = event.stream_id
        headers = dict(event.headers)
        path = headers[b":path"].decode("latin-1")
        assert self._paths is not None
        if headers[b":method"] != b"POST":
            self._reject(call_id, b"405")
            return
        content_type = headers.get(b"content-type", b"")
        if not content_type.startswith(b"application/grpc") or content_type[16:17] not in (b"", b"+", b";"):
            self._reject(call_id, b"415")
            return
        call = self._new_call(call_id)
        encoding = headers.get(b"grpc-encoding", b"identity")
        timeout = headers.get(b"grpc-timeout")
        if encoding != b"identity":
            self._refuse(call_id, "UNIMPLEMENTED", f"grpc-encoding {_shown(encoding)}: expected identity")
        elif path not in self._paths:
            self._refuse(call_id, "UNIMPLEMENTED", f"no method {path[:200]}")
        elif timeout is not None:
            timeout_ns = decode_timeout(timeout)
            if timeout_ns is None:
                self._refuse(
                    call_id, "INTERNAL", f"grpc-timeout {_shown(timeout)}: expected digits and a unit"
                )
            else:
                call.deadline_ns = self.http2.now_ns + timeout_ns
        if call_id in self._calls:
            authorization = headers.get(b"authorization")
            secret = NO_SECRET if authorization is None else Secret(authorization)
            self._events.append(CallStarted(call_id, path, secret))
            if event.ended:
                self._end_request(call_id)

    def _reject(self, call_id: int, http_status: bytes) -> None:
        self.http2.end_stream(call_id, [(b":status", http_status)])

    def finish(self, call_id: int, status: str, details: str) -> None:
        call = self._calls.get(call_id)
        if call is None or call.finished:
            return
        stream = call.stream
        trailers: Headers = [(b"grpc-status", b"%d" % STATUSES.index(status))]
        if details:
            trailers.append((b"grpc-message", encode_text(details[:_MOST_DETAILS])))
        if stream is not None and stream.leading is not None:
            trailers = [(b":status", b"200"), _CONTENT_TYPE, _IDENTITY, *trailers]
        self.http2.end_stream(call_id, trailers)
        if stream is not None:
            stream.messages = None
        call.finished = True
        if status == "OK":
            self.http2.budget.left += CALL
        call.deadline_ns = self.http2.now_ns + _LINGER_NS
        if stream is None or not stream.queued_bytes:
            self._calls.pop(call_id, None)

    # --- a client -------------------------------------------------------------------------------------------

    def start(
        self, path: str, *, timeout_ns: int | None = None, authorization: bytes = b"", now_ns: int
    ) -> int | None:
        """None if the connection takes no more calls."""
        headers = [
            *((b":method", b"POST"), (b":scheme", self._scheme), (b":path", path.encode())),
            *((b":authority", self._authority), (b"te", b"trailers"), _CONTENT_TYPE, _IDENTITY),
        ]
        if timeout_ns is not None:
            headers.append((b"grpc-timeout", encode_timeout(timeout_ns)))
        if authorization:
            headers.append((b"authorization", authorization))
        call_id = self.http2.open_stream(headers)
        if call_id is not None:
            call = self._new_call(call_id)
            call.deadline_ns = None if timeout_ns is None else now_ns + timeout_ns
            self.http2.budget.left += CALL
        return call_id

    def cancel(self, call_id: int) -> None:
        self.http2.reset_stream(call_id, ErrorCode.CANCEL)
        self._calls.pop(call_id, None)

    def _read_response(self, event: HeadersReceived) -> None:
        call_id, headers = event.stream_id, dict(event.headers)
        if not event.trailers:
            http_status = headers[b":status"]
            content_type = headers.get(b"content-type", b"")
            if http_status != b"200":
                self._refuse(
                    call_id, status_of_http(http_status), f"the HTTP status is {_shown(http_status)}"
                )
                return
            if not content_type.startswith(b"application/grpc"):
                self._refuse(
                    call_id, "UNKNOWN", f"the answer is {_shown(content_type)}: expected application/grpc"
                )
                return
            if headers.get(b"grpc-encoding", b"identity") != b"identity":
                self._refuse(call_id, "INTERNAL", "the answer is compressed: expected identity")
                return
        if event.ended:
            self.http2.reset_stream(call_id, ErrorCode.NO_ERROR)
            number = headers.get(b"grpc-status")
            if number is None:
                self._end(call_id, "INTERNAL", "the answer ends without a status")
            else:
                self._end(call_id, status_of_number(number), decode_text(headers.get(b"grpc-message", b"")))


def _shown(value: bytes) -> str:
    return value[:40].decode("latin-1")

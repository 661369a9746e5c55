"""One end of an HTTP/2 connection (RFC 9113) without I/O: bytes and times in, events and bytes out.

Invariant: memory and work are bounded whatever the peer sends (`Http2Options`, `Budget`). A broken rule ends
its stream (RST_STREAM) or the connection (GOAWAY), without an exception. Unknown frames are ignored.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from covey.overlay.core.budget import BRINGS_BYTES, Budget
from covey.overlay.http2 import frames
from covey.overlay.http2.frames import (
    ConnectionRuleError,
    ErrorCode,
    HeaderReader,
    Headers,
    Http2Options,
    StreamRuleError,
    check_headers,
    is_informational,
    require,
)
from covey.overlay.http2.messages import PREFIX_BYTES, MessagesReceived
from covey.overlay.http2.stream import MESSAGE, Sender, Stream

_REMEMBERED_RESETS = 128
_RESET_PERMITS = 9.0
"""Charged for the reset of an open stream, beside its frame: a call was begun and ended for nothing."""
_BYTES_OF_PERMIT = 256
"""Bytes of a frame other than DATA that cost one more permit: header blocks are decoded byte by byte."""
_TURN_PERMITS = 32.0
"""About 50 us. The rest of what has arrived waits for the next turn."""
_DATA_PERMITS = 0.1
"""Counted per DATA frame in its turn only; else a turn of the smallest frames took 20 ms."""
_PROTOCOL = ErrorCode.PROTOCOL_ERROR
_FRAME_SIZE = ErrorCode.FRAME_SIZE_ERROR
_FLOW = ErrorCode.FLOW_CONTROL_ERROR
_NOT_HTTP2 = "the peer does not speak HTTP/2"


class HeadersReceived(NamedTuple):
    stream_id: int
    headers: Headers
    trailers: bool
    ended: bool


class DataReceived(NamedTuple):
    """`size` is `data` with padding, which counts against the windows."""

    stream_id: int
    data: bytes
    size: int
    ended: bool


class StreamReset(NamedTuple):
    """The peer reset the stream, refused it, or broke one of its rules."""

    stream_id: int
    code: ErrorCode
    reason: str


class ConnectionClosed(NamedTuple):
    """All streams end with it. `ours`: this end closed it, since the peer broke a rule or was silent."""

    code: ErrorCode
    reason: str
    ours: bool


Event = HeadersReceived | DataReceived | MessagesReceived | StreamReset | ConnectionClosed


class Http2Connection(Sender):
    """`receive` takes bytes of the peer, `take_output` returns bytes for it. Any method may cause output and
    change `next_timer`. `faults` counts rules that the peer broke."""

    __slots__ = """
        _begun_ns _buffer _client _consumed _events _headers _heard_ns _keepalive_ns _last_stream
        _next_stream _options _peer_max_streams _ping_due_ns _preface _receive_window _resets _streams
        _turn_permits begun budget closed closing faults now_ns unread
    """.split()

    def __init__(
        self,
        *,
        client: bool,
        now_ns: int,
        options: Http2Options | None = None,
        faults: Counter[ErrorCode] | None = None,
    ) -> None:
        options = options or Http2Options()
        super().__init__(options.max_answer_bytes)
        self._client = client
        self.now_ns = now_ns
        self._options = options
        self._headers = HeaderReader(options)
        self._buffer = b""
        self._preface = b"" if client else frames.PREFACE
        self.begun = False
        self._events: list[Event] = []
        self._streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._next_stream = 1
        self._resets: list[int] = []
        self._peer_max_streams = frames.LARGEST_STREAM
        self._receive_window = max(options.connection_window, frames.DEFAULT_WINDOW)
        self._consumed = 0
        # The client first, so that one PING answers both ends of an idle connection.
        self._keepalive_ns = options.keepalive_ns * 7 // 8 if client else options.keepalive_ns
        self._begun_ns = self._heard_ns = now_ns
        self._ping_due_ns: int | None = None
        # A server that a client has chosen to connect to needs to prove nothing more.
        self.budget = Budget(now_ns, trusted=client, permits=options.permits, per_s=options.permits_per_s)
        self._turn_permits = 0.0
        self.unread = False
        """Whether whole frames are left from this turn: call `receive` again, even without data."""
        self.closing = False
        self.closed: ConnectionClosed | None = None
        self.faults: Counter[ErrorCode] = Counter() if faults is None else faults
        settings = {
            frames.INITIAL_WINDOW_SIZE: options.stream_window,
            frames.MAX_FRAME_SIZE: options.max_frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: options.max_header_bytes,
        }
        if client:
            self.write(frames.PREFACE)
        settings |= (
            {frames.ENABLE_PUSH: 0} if client else {frames.MAX_CONCURRENT_STREAMS: options.max_streams}
        )
        self.write(frames.settings_frame(settings))
        if self._receive_window > frames.DEFAULT_WINDOW:
            grant = self._receive_window - frames.DEFAULT_WINDOW
            self.write(frames.number_frame(frames.WINDOW_UPDATE, 0, grant))

    # --- receiving ------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ns: int) -> list[Event]:
        self.now_ns = self._heard_ns = now_ns
        self._ping_due_ns, self.unread = None, False
        buffer = self._buffer + data if self._buffer else data
        position, end = 0, len(buffer)
        size = end - frames.HEADER_BYTES
        # The usual case: one DATA frame that is one message, breaks no rule, and meets an empty reader.
        if size >= PREFIX_BYTES:
            kind_and_size, flags, stream_id, compressed, length = MESSAGE.unpack_from(buffer)
            stream = self._streams.get(stream_id)
            if (
                kind_and_size == size << 8
                and length == size - PREFIX_BYTES
                and not (flags or compressed or self._headers.open)
                and stream is not None
                and (messages := stream.messages) is not None
                and stream.has_headers
                and not stream.ended
                and size <= stream.receive_window
                and size <= self._receive_window
                and size <= self._options.max_frame_bytes
                and not (reader := messages.reader).size
                and length <= reader.most
                and (size >= BRINGS_BYTES or self.budget.take(1.0, now_ns))
            ):
                self._receive_window -= size
                stream.receive_window -= size
                reader.alone = buffer[MESSAGE.size :]
                reader.size = size
                self._buffer = b""
                return [messages]
        if self.closed is not None:
            return []
        self._turn_permits = _TURN_PERMITS
        unpack, header_bytes = frames.HEADER.unpack_from, frames.HEADER_BYTES
        try:
            if self._preface:
                position = self._read_preface(buffer)
                end = end if position else 0
            while end - position >= header_bytes:
                upper, lower, kind, flags, stream_id = unpack(buffer, position)
                size = upper << 8 | lower
                if size > self._options.max_frame_bytes:
                    what = f"a frame of {size} bytes" if self.begun else _NOT_HTTP2
                    raise ConnectionRuleError(_FRAME_SIZE, what)
                start = position + header_bytes
                if end < start + size:
                    break
                if self._turn_permits <= 0:
                    self.unread = True
                    break
                position = start + size
                stream_id &= 0x7FFFFFFF
                payload = buffer[start:position]
                try:
                    self._read_frame(kind, flags, stream_id, payload, now_ns)
                except StreamRuleError as error:
                    self._fail_stream(error, now_ns)
                if self.closed is not None:
                    position = end
            self._buffer = buffer[position:]
        except ConnectionRuleError as error:
            self._fail(error.code, str(error))
        events, self._events = self._events, []
        return events

    def _read_preface(self, buffer: bytes) -> int:
        size = len(self._preface)
        begins = buffer[:size] == self._preface[: len(buffer)]
        require(begins, _PROTOCOL, _NOT_HTTP2)
        if len(buffer) < size:
            return 0
        self._preface = b""
        return size

    def _read_frame(self, kind: int, flags: int, stream_id: int, payload: bytes, now_ns: int) -> None:
        if not self.begun:
            settings = kind == frames.SETTINGS and not flags & frames.ACK
            require(settings, _PROTOCOL, _NOT_HTTP2)
            self.begun = True
        if self._headers.open:
            continues = kind == frames.CONTINUATION and stream_id == self._headers.stream_id
            require(continues, _PROTOCOL, "a frame inside a header block")
        if kind == frames.DATA:
            self._read_data(flags, stream_id, payload, now_ns)
            return
        self._charge(1.0 + len(payload) / _BYTES_OF_PERMIT, now_ns)
        if kind == frames.WINDOW_UPDATE:
            self._read_window_update(stream_id, payload)
        elif kind == frames.HEADERS:
            self._read_headers(flags, stream_id, payload, now_ns)
        elif kind == frames.CONTINUATION:
            require(self._headers.open, _PROTOCOL, "CONTINUATION without HEADERS")
            self._add_fragment(flags, payload)
        elif kind == frames.SETTINGS:
            self._read_settings(flags, stream_id, payload)
        elif kind == frames.PING:
            self._read_ping(flags, stream_id, payload)
        elif kind == frames.RST_STREAM:
            self._read_reset(stream_id, payload, now_ns)
        elif kind == frames.GOAWAY:
            self._read_goaway(stream_id, payload)
        elif kind == frames.PRIORITY:
            require(stream_id > 0, _PROTOCOL, "PRIORITY on stream 0")
            if len(payload) != 5:
                raise StreamRuleError(stream_id, _FRAME_SIZE, "PRIORITY: expected 5 bytes")
        else:
            require(kind != frames.PUSH_PROMISE, _PROTOCOL, "PUSH_PROMISE: expected no push")

    def charge(self, permits: float, now_ns: int) -> list[Event]:
        self.now_ns = now_ns
        if self.closed is None:
            try:
                self._charge(permits, now_ns)
            except ConnectionRuleError as error:
                self._fail(error.code, str(error))
        return self._take_events()

    def _charge(self, permits: float, now_ns: int) -> None:
        self._turn_permits -= permits
        if not self.budget.take(permits, now_ns):
            raise ConnectionRuleError(ErrorCode.ENHANCE_YOUR_CALM, "too much that brings nothing")

    def _require_begun(self, stream_id: int, what: str) -> None:
        last = self._next_stream - 1 if self._client else self._last_stream
        require(stream_id % 2 == 1 and stream_id <= last, _PROTOCOL, f"{what} on a stream that is not open")

    def _live(self, stream_id: int, what: str) -> Stream | None:
        """A stream that the peer has not ended; None if this end has just reset it."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.ended:
            return stream
        self._require_begun(stream_id, what)
        if stream is None and stream_id in self._resets:
            return None
        raise StreamRuleError(stream_id, ErrorCode.STREAM_CLOSED, f"{what} on a stream that has ended")

    def _read_data(self, flags: int, stream_id: int, payload: bytes, now_ns: int) -> None:
        size = len(payload)
        require(size <= self._receive_window, _FLOW, "DATA beyond the window of the connection")
        self._receive_window -= size
        data = _unpadded(payload) if flags & frames.PADDED else payload
        self._turn_permits -= _DATA_PERMITS
        if len(data) < BRINGS_BYTES:
            self._charge(1.0, now_ns)
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.ended and stream.has_headers and size <= stream.receive_window:
            stream.receive_window -= size
            ended = flags & frames.END_STREAM != 0
            self._events.append(DataReceived(stream_id, data, size, ended))
            if ended:
                self._peer_ended(stream)
            return
        self.consume(0, size)
        self._charge(1.0, now_ns)
        stream = self._live(stream_id, "DATA")
        if stream is not None:
            code, reason = (
                (_FLOW, "beyond the window") if stream.has_headers else (_PROTOCOL, "before headers")
            )
            raise StreamRuleError(stream_id, code, f"DATA {reason}")

    def _read_headers(self, flags: int, stream_id: int, payload: bytes, now_ns: int) -> None:
        fragment = _unpadded(payload) if flags & frames.PADDED else payload
        if flags & frames.WITH_PRIORITY:
            require(len(fragment) >= 5, _FRAME_SIZE, "HEADERS with a priority of less than 5 bytes")
            fragment = fragment[5:]
        self._headers.begin(stream_id, flags & frames.END_STREAM != 0, now_ns)
        self._add_fragment(flags, fragment)

    def _add_fragment(self, flags: int, fragment: bytes) -> None:
        self._headers.add(fragment)
        if not flags & frames.END_HEADERS:
            return
        stream_id, ended = self._headers.stream_id, self._headers.ends_stream
        headers = self._headers.end()
        opens = not self._client and stream_id > self._last_stream and stream_id % 2 == 1
        stream = self._accept(stream_id) if opens else self._live(stream_id, "HEADERS")
        if stream is None:
            return
        trailers = stream.has_headers
        check_headers(stream_id, headers, trailers=trailers, request=not self._client)
        informational = self._client and not trailers and is_informational(headers)
        if (trailers and not ended) or (informational and ended):
            raise StreamRuleError(stream_id, _PROTOCOL, "headers that end the stream too early or too late")
        if informational:
            return
        stream.has_headers = True
        self._events.append(HeadersReceived(stream_id, headers, trailers, ended))
        if ended:
            self._peer_ended(stream)

    def _accept(self, stream_id: int) -> Stream:
        self._last_stream = stream_id
        self.check_headers_are_read()
        if self.closing or len(self._streams) >= self._options.max_streams:
            raise StreamRuleError(stream_id, ErrorCode.REFUSED_STREAM, "no more streams")
        return self._add_stream(stream_id)

    def _add_stream(self, stream_id: int) -> Stream:
        stream = Stream(stream_id, self.stream_window, self._options.stream_window)
        self._streams[stream_id] = stream
        return stream

    def _read_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        require(stream_id == 0, _PROTOCOL, "SETTINGS of a stream")
        acknowledges = flags & frames.ACK
        require(
            not len(payload) % 6 and not (acknowledges and payload), _FRAME_SIZE, "SETTINGS of a wrong size"
        )
        if not acknowledges:
            # Only a setting's last value, else one frame could change all streams' windows 40,000 times.
            for setting, value in dict(frames.read_settings(payload)).items():
                self._apply_setting(setting, value)
            self.answer(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _apply_setting(self, setting: int, value: int) -> None:
        if setting == frames.INITIAL_WINDOW_SIZE:
            require(value <= frames.LARGEST_WINDOW, _FLOW, f"INITIAL_WINDOW_SIZE is {value}")
            change, self.stream_window = value - self.stream_window, value
            for stream in self._streams.values():
                stream.send_window += change
                require(
                    stream.send_window <= frames.LARGEST_WINDOW, _FLOW, "a window of more than 2^31 - 1 bytes"
                )
                self.schedule(stream)
        elif setting == frames.MAX_FRAME_SIZE:
            fits = frames.DEFAULT_FRAME_BYTES <= value <= frames.LARGEST_FRAME_BYTES
            require(fits, _PROTOCOL, f"MAX_FRAME_SIZE is {value}")
            self.max_frame_bytes = value
        elif setting == frames.MAX_CONCURRENT_STREAMS:
            self._peer_max_streams = value
        elif setting == frames.ENABLE_PUSH:
            require(value <= (0 if self._client else 1), _PROTOCOL, f"ENABLE_PUSH is {value}")

    def _read_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        require(stream_id == 0, _PROTOCOL, "PING of a stream")
        require(len(payload) == 8, _FRAME_SIZE, f"PING of {len(payload)} bytes: expected 8")
        if not flags & frames.ACK:
            self.answer(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _read_reset(self, stream_id: int, payload: bytes, now_ns: int) -> None:
        require(len(payload) == 4, _FRAME_SIZE, f"RST_STREAM of {len(payload)} bytes: expected 4")
        self._require_begun(stream_id, "RST_STREAM")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._charge(_RESET_PERMITS, now_ns)
            self._remove(stream)
            code = frames.error_code(int.from_bytes(payload, "big"))
            self._events.append(StreamReset(stream_id, code, f"the peer reset the stream: {code.name}"))

    def _read_goaway(self, stream_id: int, payload: bytes) -> None:
        require(stream_id == 0, _PROTOCOL, "GOAWAY of a stream")
        require(len(payload) >= 8, _FRAME_SIZE, f"GOAWAY of {len(payload)} bytes: expected at least 8")
        last = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        code = frames.error_code(int.from_bytes(payload[4:8], "big"))
        if code is not ErrorCode.NO_ERROR:
            reason = payload[8:208].decode("utf-8", "replace") or code.name
            self._end(ConnectionClosed(code, f"the peer closed the connection: {reason}", ours=False))
        elif self._client:
            self.closing = True
            for stream in [stream for stream in self._streams.values() if stream.id > last]:
                self._remove(stream)
                reset = StreamReset(stream.id, ErrorCode.REFUSED_STREAM, "the peer is shutting down")
                self._events.append(reset)

    def _read_window_update(self, stream_id: int, payload: bytes) -> None:
        require(len(payload) == 4, _FRAME_SIZE, f"WINDOW_UPDATE of {len(payload)} bytes: expected 4")
        grant = int.from_bytes(payload, "big") & 0x7FFFFFFF
        stream = self._streams.get(stream_id)
        if stream_id and stream is None:
            self._require_begun(stream_id, "WINDOW_UPDATE")
            return
        window = self.window if stream is None else stream.send_window
        code = _FLOW if window + grant > frames.LARGEST_WINDOW else _PROTOCOL if not grant else None
        if stream is None:
            require(code is None, code or _FLOW, f"WINDOW_UPDATE by {grant}")
            self.grant(grant)
        elif code is not None:
            raise StreamRuleError(stream_id, code, f"WINDOW_UPDATE by {grant}")
        else:
            stream.send_window += grant
            self.schedule(stream)

    def consume(self, stream_id: int, size: int) -> None:
        """Grant the peer `size` bytes of processed DATA again."""
        if self.closed is not None or not size:
            return
        self._consumed += size
        if 2 * self._consumed >= self._options.connection_window:
            self.write(frames.number_frame(frames.WINDOW_UPDATE, 0, self._consumed))
            self._receive_window += self._consumed
            self._consumed = 0
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.ended:
            stream.consumed += size
            if 2 * stream.consumed >= self._options.stream_window:
                self.write(frames.number_frame(frames.WINDOW_UPDATE, stream_id, stream.consumed))
                stream.receive_window += stream.consumed
                stream.consumed = 0

    # --- sending --------------------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        return len(self._buffer) + self._headers.pending_bytes

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def open_stream(self, headers: Headers) -> int | None:
        """None if the server takes no more streams on this connection."""
        full = len(self._streams) >= self._peer_max_streams or self._next_stream > frames.LARGEST_STREAM
        if full or self.closing or self.closed is not None:
            return None
        stream = self._add_stream(self._next_stream)
        self._next_stream += 2
        self.write_headers(stream.id, headers)
        return stream.id

    def end_stream(self, stream_id: int, trailers: Headers | None = None) -> None:
        """End this side behind queued DATA."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.ending:
            stream.ending = True
            stream.trailers = trailers
            self.schedule(stream)

    def reset_stream(self, stream_id: int, code: ErrorCode) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._remove(stream)
            self.write(self._reset_frame(stream_id, code))

    def stream(self, stream_id: int) -> Stream | None:
        return self._streams.get(stream_id)

    @property
    def over(self) -> bool:
        return bool(self.closed or (self.closing and not self._streams))

    def take_output(self) -> bytes:
        """About 256 KiB at most."""
        ended: list[Stream] = []
        if self.ready:
            self._unqueued = self._write_ready(self._unqueued, ended)
        output = b"".join(self.output)
        self.output.clear()
        self.budget.left += self._unqueued / BRINGS_BYTES
        self._unqueued = self._answer_bytes = self._header_bytes = 0
        for stream in ended:
            if stream.ended:
                self._remove(stream)
            elif not self._client:
                self.reset_stream(stream.id, ErrorCode.NO_ERROR)  # Its rest is not needed (section 8.1).
        return output

    # --- time -----------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        if self.closed is not None:
            return None
        options = self._options
        due_ns = self._ping_due_ns or self._heard_ns + self._keepalive_ns
        if not self.begun:
            due_ns = min(due_ns, self._begun_ns + options.begin_ns)
        if self._headers.open:
            due_ns = min(due_ns, self._headers.since_ns + options.begin_ns)
        return due_ns

    def handle_timer(self, now_ns: int) -> list[Event]:
        """Send a PING to a silent peer; close if it stays silent, or if a preface or header block is late."""
        options, self.now_ns = self._options, now_ns
        if self.closed is not None:
            return []
        if not self.begun and now_ns >= self._begun_ns + options.begin_ns:
            self._fail(ErrorCode.SETTINGS_TIMEOUT, f"no HTTP/2 preface within {options.begin_ns / 1e9:g} s")
        elif self._headers.open and now_ns >= self._headers.since_ns + options.begin_ns:
            self._fail(ErrorCode.ENHANCE_YOUR_CALM, f"half a header block for {options.begin_ns / 1e9:g} s")
        elif self._ping_due_ns is None:
            if now_ns >= self._heard_ns + self._keepalive_ns:
                self._ping(now_ns)
        elif now_ns >= self._ping_due_ns + options.keepalive_timeout_ns:
            self._ping(now_ns)  # This process did not run, so the answer may be on its way.
        elif now_ns >= self._ping_due_ns:
            silent_s = (options.keepalive_ns + options.keepalive_timeout_ns) / 1e9
            self._end(
                ConnectionClosed(ErrorCode.NO_ERROR, f"the peer was silent for {silent_s:g} s", ours=True)
            )
        return self._take_events()

    def _ping(self, now_ns: int) -> None:
        self.write(frames.frame(frames.PING, 0, 0, bytes(8)))
        self._ping_due_ns = now_ns + self._options.keepalive_timeout_ns

    # --- ends -----------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Accept no new streams; open ones continue."""
        if not self.closing and self.closed is None:
            self.closing = True
            self._write_goaway(ErrorCode.NO_ERROR, "")

    def lost(self, reason: str) -> list[Event]:
        if self.closed is None:
            self._end(ConnectionClosed(ErrorCode.NO_ERROR, reason, ours=False))
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _write_goaway(self, code: ErrorCode, reason: str) -> None:
        payload = self._last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + reason.encode()
        self.write(frames.frame(frames.GOAWAY, 0, 0, payload))

    def _fail(self, code: ErrorCode, reason: str) -> None:
        self.faults[code] += 1
        self._write_goaway(code, reason)
        self._end(ConnectionClosed(code, reason, ours=True))

    def _end(self, closed: ConnectionClosed) -> None:
        self.closed = closed
        for stream in self._streams.values():
            stream.ending = True
        self._streams.clear()
        self.discard()
        self._buffer, self.unread = b"", False
        self._events.append(closed)

    def _fail_stream(self, error: StreamRuleError, now_ns: int) -> None:
        self.faults[error.code] += 1
        stream = self._streams.get(error.stream_id)
        if stream is not None:
            self._remove(stream)
            self._events.append(StreamReset(error.stream_id, error.code, str(error)))
        self.answer(self._reset_frame(error.stream_id, error.code))
        self._charge(1.0, now_ns)

    def _reset_frame(self, stream_id: int, code: ErrorCode) -> bytes:
        self._resets = [*self._resets[1 - _REMEMBERED_RESETS :], stream_id]
        return frames.number_frame(frames.RST_STREAM, stream_id, code)

    def _peer_ended(self, stream: Stream) -> None:
        stream.ended = True
        if stream.end_sent:
            self._remove(stream)

    def _remove(self, stream: Stream) -> None:
        del self._streams[stream.id]
        stream.ending = True
        self.forget(stream)
        stream.queue.clear()
        stream.queued_bytes = 0


def _unpadded(payload: bytes) -> bytes:
    require(bool(payload) and payload[0] < len(payload), _PROTOCOL, "a frame of nothing but padding")
    return payload[1 : len(payload) - payload[0]]

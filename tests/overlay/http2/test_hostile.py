"""Peers that break the rules of HTTP/2, or abuse them: bounded, refused with the right code, and counted."""

import gc
from collections.abc import Callable, Iterable

import pytest
from hpack import Encoder
from whole_connection import WholeConnection

from covey.overlay.http2 import frames
from covey.overlay.http2.connection import (
    ConnectionClosed,
    DataReceived,
    Event,
    HeadersReceived,
    Http2Connection,
    StreamReset,
)
from covey.overlay.http2.frames import (
    ErrorCode,
    Http2Options,
    frame,
    frame_header,
    number_frame,
    settings_frame,
)
from covey.overlay.http2.stream import Sender, Stream

SECOND = 1_000_000_000
REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/x")]
OPTIONS = Http2Options(max_frame_bytes=16_384, stream_window=100_000, connection_window=200_000)


def headers_frame(stream_id: int, headers: Iterable[tuple[str, str]] = REQUEST, flags: int = 0) -> bytes:
    block = Encoder().encode(list(headers))
    return frame(frames.HEADERS, flags | frames.END_HEADERS, stream_id, block)


def server(options: Http2Options = OPTIONS) -> Http2Connection:
    connection = WholeConnection(client=False, now_ns=0, options=options)
    connection.receive(frames.PREFACE + settings_frame({}), 0)
    connection.take_output()
    return connection


def client(options: Http2Options = OPTIONS) -> Http2Connection:
    connection = WholeConnection(client=True, now_ns=0, options=options)
    connection.receive(settings_frame({}), 0)
    assert connection.open_stream([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x")]) == 1
    connection.take_output()
    return connection


def split(output: bytes) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of each frame."""
    found = []
    while output:
        length, kind, flags = int.from_bytes(output[:3], "big"), output[3], output[4]
        stream_id = int.from_bytes(output[5:9], "big")
        found.append((kind, flags, stream_id, output[9 : 9 + length]))
        output = output[9 + length :]
    return found


def resets(output: bytes) -> dict[int, ErrorCode]:
    return {
        stream_id: ErrorCode(int.from_bytes(payload, "big"))
        for kind, _, stream_id, payload in split(output)
        if kind == frames.RST_STREAM
    }


def goaway(output: bytes) -> ErrorCode:
    kind, _, stream_id, payload = split(output)[-1]
    assert (kind, stream_id) == (frames.GOAWAY, 0)
    return ErrorCode(int.from_bytes(payload[4:8], "big"))


HEADERS = headers_frame(1)
DATA = frame(frames.DATA, 0, 1, b"x")
HALF_HEADERS = frame(frames.HEADERS, 0, 1, Encoder().encode(REQUEST))
P, F, S = ErrorCode.PROTOCOL_ERROR, ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.FRAME_SIZE_ERROR
CLOSED, CALM = ErrorCode.STREAM_CLOSED, ErrorCode.ENHANCE_YOUR_CALM

CONNECTION_ENDS: dict[str, tuple[bytes, ErrorCode]] = {
    "data before its stream": (DATA, P),
    "data on stream 0": (frame(frames.DATA, 0, 0, b"x"), P),
    "data of an even stream": (frame(frames.DATA, 0, 2, b"x"), P),
    "headers on stream 0": (headers_frame(0), P),
    "headers of an even stream": (headers_frame(2), P),
    "headers with a short priority": (
        frame(frames.HEADERS, frames.END_HEADERS | frames.WITH_PRIORITY, 1, b"xxx"),
        S,
    ),
    "headers of padding": (frame(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, b"\xff\x00"), P),
    "headers that are none": (frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff"), 9),
    "data in a header block": (HALF_HEADERS + DATA, P),
    "a ping in a header block": (HALF_HEADERS + frame(frames.PING, 0, 0, bytes(8)), P),
    "a continuation of another stream": (
        HALF_HEADERS + frame(frames.CONTINUATION, frames.END_HEADERS, 3, b""),
        P,
    ),
    "a continuation of nothing": (frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""), P),
    "a header bomb": (headers_frame(1, [*REQUEST, ("x", "y" * 16_380)]), CALM),
    "a compressed header bomb": (
        frame(
            frames.HEADERS,
            frames.END_HEADERS,
            1,
            Encoder().encode([*REQUEST, ("x", "y" * 4_000)]) + b"\xbe" * 10_000,
        ),
        CALM,
    ),
    "a flood of continuations": (HALF_HEADERS + frame(frames.CONTINUATION, 0, 1, b"") * 20, CALM),
    "long continuations": (HALF_HEADERS + frame(frames.CONTINUATION, 0, 1, bytes(10_000)) * 2, CALM),
    "settings of a stream": (frame(frames.SETTINGS, 0, 1), P),
    "settings of 5 bytes": (frame(frames.SETTINGS, 0, 0, b"12345"), S),
    "an acknowledgement with settings": (frame(frames.SETTINGS, frames.ACK, 0, b"123456"), S),
    "a window of 2^31": (settings_frame({frames.INITIAL_WINDOW_SIZE: 1 << 31}), F),
    "a frame size of 0": (settings_frame({frames.MAX_FRAME_SIZE: 0}), P),
    "a frame size of 2^24": (settings_frame({frames.MAX_FRAME_SIZE: 1 << 24}), P),
    "a push setting of 2": (settings_frame({frames.ENABLE_PUSH: 2}), P),
    "a ping of 7 bytes": (frame(frames.PING, 0, 0, bytes(7)), S),
    "a ping of a stream": (frame(frames.PING, 0, 1, bytes(8)), P),
    "a reset of 3 bytes": (HEADERS + frame(frames.RST_STREAM, 0, 1, bytes(3)), S),
    "a reset before its stream": (number_frame(frames.RST_STREAM, 1, 8), P),
    "a reset of stream 0": (number_frame(frames.RST_STREAM, 0, 8), P),
    "a push": (frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(4)), P),
    "a priority of stream 0": (frame(frames.PRIORITY, 0, 0, bytes(5)), P),
    "a goodbye of 7 bytes": (frame(frames.GOAWAY, 0, 0, bytes(7)), S),
    "a goodbye of a stream": (frame(frames.GOAWAY, 0, 1, bytes(8)), P),
    "a window update of 3 bytes": (frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), S),
    "a window update by 0": (number_frame(frames.WINDOW_UPDATE, 0, 0), P),
    "a window beyond 2^31": (number_frame(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW), F),
    "a window update before its stream": (number_frame(frames.WINDOW_UPDATE, 1, 1), P),
    "windows beyond 2^31 by settings": (
        HEADERS
        + number_frame(frames.WINDOW_UPDATE, 1, 1 << 30)
        + settings_frame({frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW}),
        F,
    ),
    "a frame of 16,385 bytes": (frame_header(16_385, 99, 0, 0), S),
    "data beyond the connection's window": (
        b"".join(headers_frame(i) + frame(frames.DATA, 0, i, bytes(16_000)) * 6 for i in (1, 3, 5)),
        F,
    ),
    "data of padding": (HEADERS + frame(frames.DATA, frames.PADDED, 1, b"\x01"), P),
    "data of no padding": (HEADERS + frame(frames.DATA, frames.PADDED, 1), P),
    "a flood of settings": (settings_frame({}) * 1_001, CALM),
    "a flood of pings": (frame(frames.PING, 0, 0, bytes(8)) * 1_001, CALM),
    "a flood of answered pings": (frame(frames.PING, frames.ACK, 0, bytes(8)) * 1_001, CALM),
    "a flood of priorities": (frame(frames.PRIORITY, 0, 1, bytes(5)) * 1_001, CALM),
    "a flood of unknown frames": (frame(99, 0, 0) * 1_001, CALM),
    "a flood of empty data": (HEADERS + frame(frames.DATA, 0, 1) * 1_001, CALM),
    "a flood of resets": (
        b"".join(
            headers_frame(2 * i + 1) + number_frame(frames.RST_STREAM, 2 * i + 1, 8) for i in range(101)
        ),
        CALM,
    ),
    "a flood of streams": (b"".join(headers_frame(2 * i + 1) for i in range(1_200)), CALM),
    "a flood of windows of an ended stream": (
        HEADERS + number_frame(frames.RST_STREAM, 1, 8) + number_frame(frames.WINDOW_UPDATE, 1, 1) * 1_001,
        CALM,
    ),
}


@pytest.mark.parametrize(("sent", "code"), CONNECTION_ENDS.values(), ids=list(CONNECTION_ENDS))
@pytest.mark.parametrize("size", [1_000_000, 7])
def test_rules_that_end_the_connection(sent: bytes, code: int, size: int) -> None:
    connection = server()
    events: list[Event] = []
    for start in range(0, len(sent), size):
        events += connection.receive(sent[start : start + size], 1)
    assert isinstance(events[-1], ConnectionClosed)
    assert (events[-1].code, events[-1].ours) == (code, True)
    assert goaway(connection.take_output()) == code
    assert connection.faults[ErrorCode(code)] == 1
    assert connection.receive(HEADERS, 2) == []
    assert connection.take_output() == b""
    assert connection.next_timer() is None


STREAM_ENDS: dict[str, tuple[bytes, ErrorCode]] = {
    "data beyond the stream's window": (HEADERS + frame(frames.DATA, 0, 1, bytes(16_384)) * 7, F),
    "data behind the end": (headers_frame(1, flags=frames.END_STREAM) + DATA, CLOSED),
    "headers behind the end": (headers_frame(1, flags=frames.END_STREAM) + HEADERS, CLOSED),
    "data of a stream that was reset": (HEADERS + number_frame(frames.RST_STREAM, 1, 8) + DATA, CLOSED),
    "trailers that do not end": (HEADERS + headers_frame(1, [("x", "y")]), P),
    "trailers with a path": (HEADERS + headers_frame(1, [(":path", "/x")], frames.END_STREAM), P),
    "no path": (headers_frame(1, REQUEST[:2]), P),
    "two paths": (headers_frame(1, [*REQUEST, (":path", "/y")]), P),
    "a path behind a header": (headers_frame(1, [("x", "y"), *REQUEST]), P),
    "a status": (headers_frame(1, [*REQUEST, (":status", "200")]), P),
    "an upper-case name": (headers_frame(1, [*REQUEST, ("X", "y")]), P),
    "an empty name": (headers_frame(1, [*REQUEST, ("", "y")]), P),
    "a header of the connection": (headers_frame(1, [*REQUEST, ("connection", "close")]), P),
    "a line feed": (headers_frame(1, [*REQUEST, ("x", "a\nb")]), P),
    "a window update by 0": (HEADERS + number_frame(frames.WINDOW_UPDATE, 1, 0), P),
    "a window beyond 2^31": (HEADERS + number_frame(frames.WINDOW_UPDATE, 1, frames.LARGEST_WINDOW), F),
    "a priority of 4 bytes": (HEADERS + frame(frames.PRIORITY, 0, 1, bytes(4)), S),
}


@pytest.mark.parametrize(("sent", "code"), STREAM_ENDS.values(), ids=list(STREAM_ENDS))
def test_rules_that_end_one_stream(sent: bytes, code: ErrorCode) -> None:
    connection = server()
    connection.receive(sent, 1)
    assert resets(connection.take_output()) == {1: code}
    assert connection.faults == {code: 1}
    events = connection.receive(headers_frame(3), 2)
    assert [type(event) for event in events] == [HeadersReceived]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (headers_frame(2, [(":status", "200")]), P),
        (headers_frame(3, [(":status", "200")]), P),
        (frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(4)), P),
        (settings_frame({frames.ENABLE_PUSH: 1}), P),
        (number_frame(frames.RST_STREAM, 3, 8), P),
        (number_frame(frames.WINDOW_UPDATE, 3, 8), P),
    ],
)
def test_servers_that_break_rules_of_the_connection(sent: bytes, code: ErrorCode) -> None:
    connection = client()
    connection.receive(sent, 1)
    assert goaway(connection.take_output()) is code


@pytest.mark.parametrize(
    "sent",
    [
        DATA,
        headers_frame(1, [("x", "y")]),
        headers_frame(1, [(":status", "100")], frames.END_STREAM),
        headers_frame(1, [(":status", "200"), (":path", "/x")]),
    ],
)
def test_servers_that_break_rules_of_a_stream(sent: bytes) -> None:
    connection = client()
    events = connection.receive(sent, 1)
    assert [type(event) for event in events] == [StreamReset]
    assert resets(connection.take_output()) == {1: P}


def test_informational_answers_are_skipped() -> None:
    connection = client()
    assert connection.receive(headers_frame(1, [(":status", "103")]), 1) == []
    (event,) = connection.receive(headers_frame(1, [(":status", "200")]), 1)
    assert isinstance(event, HeadersReceived)


@pytest.mark.parametrize(
    "begin", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", frames.PREFACE + HEADERS, frames.PREFACE[:-1] + b"x"]
)
def test_a_peer_that_does_not_begin_as_http2_does(begin: bytes) -> None:
    connection = Http2Connection(client=False, now_ns=0)
    connection.receive(begin, 0)
    assert goaway(connection.take_output()) is P


def test_streams_beyond_the_limit_are_refused() -> None:
    connection = server()
    connection.receive(b"".join(headers_frame(2 * i + 1) for i in range(103)), 1)
    assert resets(connection.take_output()) == dict.fromkeys((201, 203, 205), ErrorCode.REFUSED_STREAM)
    assert connection.open_streams == 100


def test_ignored_frames() -> None:
    connection = server()
    sent = (
        frame(99, 255, 0, b"unknown"),
        frame(frames.PRIORITY, 0, 1, bytes(5)),
        settings_frame({99: 5, frames.MAX_HEADER_LIST_SIZE: 1}),
        HEADERS,
        number_frame(frames.RST_STREAM, 1, 77),
        number_frame(frames.RST_STREAM, 1, 8),
        number_frame(frames.WINDOW_UPDATE, 1, 8),
        frame(frames.PRIORITY, 0, 1, bytes(5)),
    )
    events = connection.receive(b"".join(sent), 1)
    assert [type(event) for event in events] == [HeadersReceived, StreamReset]
    assert events[1] == StreamReset(1, ErrorCode.INTERNAL_ERROR, "the peer reset the stream: INTERNAL_ERROR")
    assert split(connection.take_output()) == [(frames.SETTINGS, frames.ACK, 0, b"")]


def test_idle_frames_refill_with_time() -> None:
    connection = server()
    ping = frame(frames.PING, 0, 0, bytes(8))
    for second in range(1, 20):
        assert connection.receive(ping * 500, second * SECOND) == []
        connection.take_output()
    assert connection.closed is None


def test_a_peer_that_reads_no_answers_is_refused() -> None:
    connection = server(Http2Options(permits=1_000_000))
    ping = frame(frames.PING, 0, 0, bytes(8))
    for _ in range(10):
        connection.receive(ping * 1_000, 1)
    assert connection.closed.reason == "too many answers that the peer does not read"
    assert len(connection.take_output()) < 70_000


def test_streams_that_are_reset_while_nothing_is_read_leave_nothing() -> None:
    """The peer opens streams, resets them, and neither reads nor grants their answers."""
    connection = server(Http2Options(permits=1_000_000))
    opened = 0
    while connection.closed is None:
        stream_id = 2 * opened + 1
        connection.receive(headers_frame(stream_id), 1)
        if (stream := connection.stream(stream_id)) is not None:
            connection.write_headers(stream_id, [(b":status", b"200")] * 10)
            connection.queue(stream, bytes(100))
        connection.receive(number_frame(frames.RST_STREAM, stream_id, 8), 1)
        opened += 1
        assert opened < 100_000
    assert connection.closed.reason == "too many answers that the peer does not read"
    assert len(connection.take_output()) < 200_000


def test_a_stream_that_is_reset_while_the_connection_has_no_window_leaves_nothing() -> None:
    connection = server(Http2Options(permits=1_000_000))
    connection.receive(settings_frame({frames.INITIAL_WINDOW_SIZE: 1 << 20}), 1)
    for stream_id in range(1, 2_001, 2):
        connection.receive(headers_frame(stream_id), 1)
        connection.queue(connection.stream(stream_id), bytes(70_000))
        connection.take_output()
        connection.receive(number_frame(frames.RST_STREAM, stream_id, 8), 1)
    assert connection.closed is None
    gc.collect()
    assert sum(isinstance(each, Stream) for each in gc.get_objects()) < 100
    connection.receive(headers_frame(2_001) + number_frame(frames.WINDOW_UPDATE, 0, 1_000), 1)
    connection.queue(connection.stream(2_001), bytes(100))
    assert split(connection.take_output())[-1] == (frames.DATA, 0, 2_001, bytes(100))


def test_a_frame_of_settings_changes_the_windows_of_streams_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = server()
    connection.receive(b"".join(headers_frame(i) for i in range(1, 200, 2)), 1)
    calls: list[Stream] = []
    monkeypatch.setattr(Sender, "schedule", lambda _, stream: calls.append(stream))
    setting = settings_frame({frames.INITIAL_WINDOW_SIZE: 1_000})[9:]
    connection.receive(frame(frames.SETTINGS, 0, 0, setting * 2_000), 1)
    assert connection.closed is None
    assert len(calls) == 100


def test_a_stream_that_was_reset_here_may_still_receive() -> None:
    connection = server()
    connection.receive(HEADERS, 1)
    connection.reset_stream(1, ErrorCode.CANCEL)
    assert connection.receive(DATA + headers_frame(1, [("x", "y")], frames.END_STREAM), 1) == []
    assert resets(connection.take_output()) == {1: ErrorCode.CANCEL}
    assert not connection.faults


def test_a_slow_reader_gets_no_more_than_its_windows() -> None:
    connection = server()
    connection.receive(settings_frame({frames.INITIAL_WINDOW_SIZE: 10}) + HEADERS + headers_frame(3), 1)
    for stream_id in (1, 3):
        connection.queue(connection.stream(stream_id), bytes(100_000))
        connection.end_stream(stream_id, [(b"x", b"y")])

    def sizes() -> list[int]:
        return [
            len(payload) for kind, _, _, payload in split(connection.take_output()) if kind == frames.DATA
        ]

    assert sizes() == [10, 10]
    connection.receive(number_frame(frames.WINDOW_UPDATE, 0, 1 << 20), 1)
    assert sizes() == []
    connection.receive(number_frame(frames.WINDOW_UPDATE, 1, 16_390), 1)
    assert sizes() == [16_384, 6]
    connection.receive(settings_frame({frames.INITIAL_WINDOW_SIZE: 0}), 1)
    connection.receive(number_frame(frames.WINDOW_UPDATE, 3, 20), 1)
    assert sizes() == [10]
    assert [connection.stream(number).queued_bytes for number in (1, 3)] == [83_600, 99_980]
    connection.receive(settings_frame({frames.INITIAL_WINDOW_SIZE: 100_000}), 1)
    assert sum(sizes()) == 183_580
    assert connection.open_streams == 0


def test_streams_take_turns() -> None:
    connection = server()
    connection.receive(HEADERS + headers_frame(3), 1)
    connection.queue(connection.stream(1), bytes(40_000))
    connection.queue(connection.stream(3), bytes(10))
    order = [stream_id for kind, _, stream_id, _ in split(connection.take_output()) if kind == frames.DATA]
    assert order == [1, 3, 1, 1]


def test_a_slow_writer_is_not_granted_more_than_its_windows() -> None:
    connection = server()
    (_, first, *_) = connection.receive(
        HEADERS + frame(frames.DATA, frames.PADDED, 1, b"\x05hello" + bytes(5)), 1
    )
    assert first == DataReceived(1, b"hello", 11, False)
    connection.receive(frame(frames.DATA, 0, 1, bytes(16_000)) * 6, 1)
    assert connection.take_output() == b""
    connection.consume(1, 11)
    assert connection.take_output() == b""
    connection.consume(1, 96_000)
    assert split(connection.take_output()) == [(frames.WINDOW_UPDATE, 0, 1, (96_011).to_bytes(4, "big"))]
    connection.receive(frame(frames.DATA, 0, 1, bytes(16_000)), 1)
    connection.consume(1, 16_000)
    assert split(connection.take_output()) == [(frames.WINDOW_UPDATE, 0, 0, (112_011).to_bytes(4, "big"))]


def test_a_silent_peer_is_pinged_and_then_given_up_within_five_seconds() -> None:
    connection = server()
    assert connection.next_timer() == 3 * SECOND
    assert connection.handle_timer(3 * SECOND) == []
    assert split(connection.take_output()) == [(frames.PING, 0, 0, bytes(8))]
    assert connection.next_timer() == 5 * SECOND
    connection.receive(frame(frames.PING, frames.ACK, 0, bytes(8)), 4 * SECOND)
    assert connection.next_timer() == 7 * SECOND
    connection.handle_timer(7 * SECOND)
    (event,) = connection.handle_timer(9 * SECOND)
    assert event == ConnectionClosed(ErrorCode.NO_ERROR, "the peer was silent for 5 s", ours=True)


def test_a_process_that_did_not_run_asks_again_before_it_gives_up() -> None:
    connection = server()
    connection.handle_timer(3 * SECOND)
    assert connection.handle_timer(60 * SECOND) == []
    assert connection.next_timer() == 62 * SECOND
    assert len(connection.handle_timer(62 * SECOND)) == 1


@pytest.mark.parametrize(
    ("begin", "code"),
    [(lambda: Http2Connection(client=False, now_ns=0), ErrorCode.SETTINGS_TIMEOUT), (server, CALM)],
    ids=["preface", "header block"],
)
def test_a_peer_that_begins_and_does_not_go_on(begin: Callable[[], Http2Connection], code: ErrorCode) -> None:
    connection = begin()
    connection.receive(frames.PREFACE[:10] if not connection.begun else HALF_HEADERS, 0)
    for second in range(1, 11):
        connection.receive(b"", second * SECOND)  # a byte now and then keeps it alive
        connection.handle_timer(second * SECOND)
    assert goaway(connection.take_output()) is code


def test_an_orderly_end() -> None:
    connection = server()
    connection.receive(HEADERS, 1)
    connection.shut_down()
    connection.shut_down()
    assert goaway(connection.take_output()) is ErrorCode.NO_ERROR
    connection.receive(headers_frame(3), 1)
    assert resets(connection.take_output()) == {3: ErrorCode.REFUSED_STREAM}
    (event,) = connection.receive(frame(frames.DATA, frames.END_STREAM, 1, b"x"), 1)
    assert event == DataReceived(1, b"x", 1, True)
    connection.end_stream(1, [(b"x", b"y")])
    assert split(connection.take_output())[0][:3] == (
        frames.HEADERS,
        frames.END_HEADERS | frames.END_STREAM,
        1,
    )
    assert connection.open_streams == 0


def test_a_client_whose_server_shuts_down() -> None:
    connection = client()
    assert connection.open_stream([]) == 3
    events = connection.receive(frame(frames.GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4)), 1)
    assert events == [StreamReset(3, ErrorCode.REFUSED_STREAM, "the peer is shutting down")]
    assert connection.open_stream([]) is None
    (event,) = connection.receive(headers_frame(1, [(":status", "200")]), 1)
    assert isinstance(event, HeadersReceived)
    code = (1).to_bytes(4, "big") + (11).to_bytes(4, "big")
    (event,) = connection.receive(frame(frames.GOAWAY, 0, 0, code + b"calm"), 1)
    assert event == ConnectionClosed(CALM, "the peer closed the connection: calm", ours=False)


def test_a_server_that_ends_a_stream_first_asks_for_no_more() -> None:
    connection = server()
    connection.receive(HEADERS, 1)
    connection.end_stream(1, [(b"x", b"y")])
    (trailers,) = split(connection.take_output())
    assert trailers[:3] == (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1)
    assert resets(connection.take_output()) == {1: ErrorCode.NO_ERROR}
    assert connection.open_streams == 0
    assert connection.receive(DATA, 1) == []


def test_an_end_is_sent_once() -> None:
    connection = client()
    connection.end_stream(1)
    assert split(connection.take_output()) == [(frames.DATA, frames.END_STREAM, 1, b"")]
    connection.receive(number_frame(frames.WINDOW_UPDATE, 1, 5), 1)
    connection.receive(settings_frame({frames.INITIAL_WINDOW_SIZE: 5}), 1)
    connection.end_stream(1)
    connection.queue(connection.stream(1), b"x")
    assert split(connection.take_output()) == [(frames.SETTINGS, frames.ACK, 0, b"")]

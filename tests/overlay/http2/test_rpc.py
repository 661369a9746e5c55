"""gRPC on a connection: framing, statuses, deadlines and metadata, against handwritten frames."""

import random

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from covey.overlay.http2 import frames
from covey.overlay.http2.frames import ErrorCode, Http2Options, frame, number_frame, settings_frame
from covey.overlay.http2.messages import (
    STATUSES,
    MessageError,
    MessageReader,
    MessagesReceived,
    decode_text,
    decode_timeout,
    encode_text,
    encode_timeout,
    frame_message,
    status_of_http,
    status_of_number,
    status_of_reset,
)
from covey.overlay.http2.rpc import CallEnded, CallStarted, RequestEnded, RpcConnection, RpcEvent

SECOND = 1_000_000_000
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/t/a"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
RESPONSE = [(":status", "200"), ("content-type", "application/grpc+proto")]


def headers_frame(headers: list[tuple[str, str]], stream_id: int = 1, *, end: bool = False) -> bytes:
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frame(frames.HEADERS, flags, stream_id, Encoder().encode(headers))


def server(options: Http2Options | None = None) -> RpcConnection:
    rpc = RpcConnection(("/t/a",), now_ns=0, max_message_bytes=1_000, options=options)
    rpc.receive(frames.PREFACE + settings_frame({}), 0)
    rpc.http2.take_output()
    return rpc


def client(timeout_ns: int | None = None) -> RpcConnection:
    rpc = RpcConnection(now_ns=0, authority="a")
    rpc.receive(settings_frame({}), 0)
    assert rpc.start("/t/a", timeout_ns=timeout_ns, now_ns=0) == 1
    rpc.http2.take_output()
    return rpc


def answers(rpc: RpcConnection) -> list[tuple[int, dict[str, str] | bytes]]:
    """Frames of the output: type, and headers or payload."""
    output, found = b"", []
    while taken := rpc.http2.take_output():
        output += taken
    decoder = Decoder()
    while output:
        length, kind = int.from_bytes(output[:3], "big"), output[3]
        payload = output[9 : 9 + length]
        found.append((kind, dict(decoder.decode(payload)) if kind == frames.HEADERS else payload))
        output = output[9 + length :]
    return found


def cut(rpc: RpcConnection, event: RpcEvent) -> list[bytes]:
    """The arrived messages."""
    return rpc.cut(event.call_id, event.reader, 1_000, 1)


def data(payload: bytes, stream_id: int = 1, *, end: bool = False) -> bytes:
    return frame(frames.DATA, frames.END_STREAM if end else 0, stream_id, payload)


def test_a_call_of_a_client() -> None:
    rpc = server()
    assert rpc.receive(headers_frame([*REQUEST, ("user-agent", "x")]), 1) == [CallStarted(1, "/t/a")]
    message = frame_message(b"hello") + frame_message(b"") + frame_message(b"world")
    (received,) = rpc.receive(data(message[:3]) + data(message[3:17], end=False), 1)
    assert cut(rpc, received) == [b"hello", b""]
    received, ended = rpc.receive(data(message[17:], end=True), 1)
    assert (cut(rpc, received), ended) == ([b"world"], RequestEnded(1))
    stream = rpc.http2.stream(1)
    rpc.http2.send_message(stream, b"reply")
    rpc.finish(1, "OK", "")
    rpc.finish(1, "ABORTED", "too late")
    rpc.http2.send_message(stream, b"too late")
    assert answers(rpc) == [
        (frames.HEADERS, {":status": "200", "content-type": "application/grpc"}),
        (frames.DATA, frame_message(b"reply")),
        (frames.HEADERS, {"grpc-status": "0"}),
    ]
    assert rpc.http2.open_streams == 0


def test_an_error_is_cut_to_what_a_header_block_may_hold() -> None:
    rpc, peer = server(), client()
    rpc.receive(headers_frame([*REQUEST]), 1)
    rpc.finish(1, "NOT_FOUND", "\U0001f5fa" * 60_000)
    assert peer.receive(rpc.http2.take_output(), 1) == [CallEnded(1, "NOT_FOUND", "\U0001f5fa" * 1_000)]


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({":method": "GET"}, {":status": "405"}),
        ({"content-type": "text/html"}, {":status": "415"}),
        ({"content-type": "application/grpcx"}, {":status": "415"}),
        ({":path": "/t/b c"}, {"grpc-status": "12", "grpc-message": "no method /t/b c"}),
        (
            {"grpc-encoding": "gzip"},
            {
                "grpc-status": "12",
                "grpc-message": "grpc-encoding gzip: expected identity",
                "grpc-accept-encoding": "identity",
            },
        ),
        (
            {"grpc-timeout": "5"},
            {"grpc-status": "13", "grpc-message": "grpc-timeout 5: expected digits and a unit"},
        ),
    ],
)
def test_requests_that_are_refused(changes: dict[str, str], answer: dict[str, str]) -> None:
    rpc = server()
    headers = dict(REQUEST) | changes
    assert not [e for e in rpc.receive(headers_frame(list(headers.items())), 1) if isinstance(e, CallStarted)]
    (kind, found), *rest = answers(rpc)
    assert kind == frames.HEADERS
    assert answer.items() <= found.items()
    assert rest == [(frames.RST_STREAM, bytes(4))], "the rest of the request is not needed"
    assert rpc.receive(data(frame_message(b"x")), 2) == []


@pytest.mark.parametrize(
    ("sent", "status", "details"),
    [
        (
            b"\x01\x00\x00\x00\x00",
            "INTERNAL",
            "a compressed message, of no announced encoding: expected flag 0",
        ),
        (b"\x07\x00\x00\x00\x00", "INTERNAL", "a message with flag 7: expected flag 0"),
        (b"\x00\x00\x00\x03\xe9", "RESOURCE_EXHAUSTED", "a message of 1001 bytes: expected at most 1000"),
    ],
)
def test_messages_that_are_refused(sent: bytes, status: str, details: str) -> None:
    rpc = server()
    rpc.receive(headers_frame(REQUEST), 1)
    assert rpc.receive(data(sent[:2]) + data(sent[2:]), 1) == [CallEnded(1, status, details)]
    assert answers(rpc)[0][1] == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity",
        "grpc-status": str(STATUSES.index(status)),
        "grpc-message": details,
    }


def test_a_request_that_ends_within_a_message() -> None:
    rpc = server()
    rpc.receive(headers_frame(REQUEST), 1)
    assert rpc.receive(data(b"\x00\x00", end=True), 1) == [
        CallEnded(1, "INTERNAL", "the stream ends within a message")
    ]


def test_a_deadline_at_the_server() -> None:
    rpc = server()
    rpc.receive(headers_frame([*REQUEST, ("grpc-timeout", "2S")]), SECOND)
    assert rpc.next_timer() == 3 * SECOND
    ended = CallEnded(1, "DEADLINE_EXCEEDED", "the call was not answered in time")
    assert rpc.handle_timer(3 * SECOND) == [ended]
    (_, trailers), *_ = answers(rpc)
    assert trailers["grpc-status"] == "4"


def test_a_deadline_at_the_client() -> None:
    rpc = client(timeout_ns=2 * SECOND)
    assert rpc.next_timer() == 2 * SECOND
    assert [type(event) for event in rpc.handle_timer(2 * SECOND)] == [CallEnded]
    assert answers(rpc) == [(frames.RST_STREAM, b"\x00\x00\x00\x08")]


def test_the_end_of_a_call_waits_for_a_slow_reader_but_not_for_ever() -> None:
    rpc = server()
    rpc.receive(settings_frame({frames.INITIAL_WINDOW_SIZE: 10}) + headers_frame(REQUEST), 1)
    rpc.http2.send_message(rpc.http2.stream(1), bytes(100))
    rpc.finish(1, "OK", "")
    assert rpc.http2.stream(1).queued_bytes == 105
    answers(rpc)
    rpc.receive(frame(frames.PING, frames.ACK, 0, bytes(8)), 4 * SECOND)
    assert rpc.next_timer() == 5 * SECOND + 1
    assert rpc.handle_timer(5 * SECOND + 1) == []
    assert answers(rpc) == [(frames.RST_STREAM, b"\x00\x00\x00\x08")]
    assert rpc.http2.open_streams == 0


@pytest.mark.parametrize(
    ("sent", "status", "details"),
    [
        (
            headers_frame([*RESPONSE, ("grpc-status", "5"), ("grpc-message", "no%0a")], end=True),
            "NOT_FOUND",
            "no\n",
        ),
        (headers_frame(RESPONSE) + headers_frame([("grpc-status", "0")], end=True), "OK", ""),
        (headers_frame(RESPONSE) + headers_frame([("grpc-status", "99")], end=True), "UNKNOWN", ""),
        (headers_frame(RESPONSE, end=True), "INTERNAL", "the answer ends without a status"),
        (headers_frame(RESPONSE) + data(b"", end=True), "INTERNAL", "the answer ends without a status"),
        (headers_frame([(":status", "503")], end=True), "UNAVAILABLE", "the HTTP status is 503"),
        (
            headers_frame([(":status", "200"), ("content-type", "text/html")]),
            "UNKNOWN",
            "the answer is text/html: expected application/grpc",
        ),
        (
            headers_frame([*RESPONSE, ("grpc-encoding", "gzip")]),
            "INTERNAL",
            "the answer is compressed: expected identity",
        ),
        (number_frame(frames.RST_STREAM, 1, 7), "UNAVAILABLE", "the peer reset the stream: REFUSED_STREAM"),
        (number_frame(frames.RST_STREAM, 1, 8), "CANCELLED", "the peer reset the stream: CANCEL"),
        (number_frame(frames.RST_STREAM, 1, 2), "INTERNAL", "the peer reset the stream: INTERNAL_ERROR"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNAVAILABLE", "a frame of 4740180 bytes"),
    ],
)
def test_how_calls_of_a_client_end(sent: bytes, status: str, details: str) -> None:
    rpc = client()
    events = rpc.receive(sent, 1)
    assert events == [CallEnded(1, status, details)]
    assert rpc.lost("later") == []


def test_a_connection_that_is_lost_ends_its_calls() -> None:
    rpc = client()
    assert rpc.lost("the cable") == [CallEnded(1, "UNAVAILABLE", "the cable")]
    assert rpc.start("/t/a", now_ns=0) is None


def test_partial_messages_are_bounded_over_all_calls() -> None:
    rpc = RpcConnection(("/t/a",), now_ns=0, max_message_bytes=8 << 20)
    rpc.http2.budget.trust()
    rpc.receive(frames.PREFACE + settings_frame({}), 0)
    ended = []
    for stream_id in range(1, 21, 2):
        rpc.receive(headers_frame(REQUEST, stream_id), 1)
        prefix = b"\x00" + (8 << 20).to_bytes(4, "big")
        for chunk in (prefix, *(bytes(200_000) for _ in range(20))):
            ended += [e for e in rpc.receive(data(chunk, stream_id), 1) if isinstance(e, CallEnded)]
            rpc.http2.take_output()
    assert len(ended) == 6, "16 MiB are 4 messages of 4 MB"
    assert {event.status for event in ended} == {"RESOURCE_EXHAUSTED"}


def test_unread_messages_close_the_window_however_large_they_are() -> None:
    rpc = server(Http2Options(stream_window=65_535, connection_window=65_535))
    rpc.receive(headers_frame(REQUEST), 1)
    message = frame_message(bytes(995))
    received = 0
    while rpc.http2.closed is None:
        for event in rpc.receive(data(message[:500]) + data(message[500:]), 1):
            received += len(cut(rpc, event)) if isinstance(event, MessagesReceived) else 0
        if rpc.http2.faults:
            break
        rpc.http2.take_output()
    assert 60 <= received <= 66
    again = server(Http2Options(stream_window=65_535, connection_window=65_535))
    again.receive(headers_frame(REQUEST), 1)
    for _ in range(1_000):
        for event in again.receive(data(message[:500]) + data(message[500:]), 1):
            for each in cut(again, event):
                again.http2.consume(1, len(each))
        again.http2.take_output()
    assert not again.http2.faults


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(1, 400)))
def test_messages_arrive_as_they_were_sent_however_they_are_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    sent = b"".join(map(frame_message, messages))
    total, granted = len(sent), 0
    reader, got = MessageReader(None), list[bytes]()
    for size in (*cuts, len(sent)):
        granted += reader.feed(sent[:size])
        sent = sent[size:]
        while reader.waiting:
            more, owed = reader.cut(2)
            got += more
            granted += owed + sum(map(len, more))
    assert got == messages
    assert (granted, reader.size, reader.granted_bytes) == (total, 0, 0)


def test_a_reader_says_what_is_wrong() -> None:
    with pytest.raises(MessageError, match="a message of 5 bytes: expected at most 4"):
        MessageReader(4).feed(frame_message(b"12345"))
    reader = MessageReader(4)
    reader.feed(frame_message(b"1") + frame_message(b"12345"))
    assert reader.cut(10)[0] == [b"1"]
    with pytest.raises(MessageError, match="a message of 5 bytes: expected at most 4"):
        reader.cut(10)


@given(st.text())
def test_texts_of_statuses_are_percent_encoded(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    encoded = encode_text(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert decode_text(encoded) == text


@given(st.integers(1, 10**17))
def test_timeouts_are_rounded_up(timeout_ns: int) -> None:
    encoded = encode_timeout(timeout_ns)
    decoded = decode_timeout(encoded)
    assert decoded is not None
    assert len(encoded) <= 9
    assert timeout_ns <= decoded <= timeout_ns * (1 + 1e-4) + 10**9


def test_timeouts_and_statuses_that_are_none() -> None:
    assert encode_timeout(-5) == b"1n"
    for wrong in (b"", b"5", b"S", b"123456789S", b"-1S", b"1s", "\u0661S".encode()):
        assert decode_timeout(wrong) is None
    assert [status_of_http(s) for s in (b"404", b"429", b"600", b"x", b"9" * 5_000)] == [
        *("UNIMPLEMENTED", "UNAVAILABLE", "UNKNOWN", "UNKNOWN", "UNKNOWN")
    ]
    assert [status_of_number(n) for n in (b"5", b"17", b"-1", b"", b"000000005")] == [
        *("NOT_FOUND", "UNKNOWN", "UNKNOWN", "UNKNOWN", "UNKNOWN")
    ]
    assert status_of_reset(ErrorCode.ENHANCE_YOUR_CALM) == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("seed", range(20))
def test_messages_keep_their_order_however_frames_and_reads_divide_them(seed: int) -> None:
    draw, rpc = random.Random(seed), server()
    rpc.receive(headers_frame([*REQUEST]), 1)
    messages = [bytes([number]) * draw.randrange(1, 90) for number in range(60)]
    sent = b""
    for message in messages:
        framed = frame_message(message)
        at = draw.randrange(len(framed)) if draw.random() < 0.4 else 0
        sent += b"".join(data(part) for part in (framed[:at], framed[at:]) if part)
    got: list[bytes] = []
    while sent:
        size = draw.randrange(1, 400)
        for event in rpc.receive(sent[:size], 1):
            if draw.random() < 0.7:
                got += cut(rpc, event)
                last = event
        sent = sent[size:]
    assert got + cut(rpc, last) == messages


def whole(rpc: RpcConnection, sent: bytes) -> tuple[list[RpcEvent], int]:
    """The events in some bytes, and the number of turns to read them."""
    events, turns = rpc.receive(sent, 1), 1
    while rpc.http2.unread:
        events, turns = events + rpc.receive(b"", 1), turns + 1
    return events, turns


def begun() -> RpcConnection:
    rpc = server()
    rpc.http2.budget.trust()
    rpc.receive(headers_frame(REQUEST), 1)
    return rpc


def test_a_message_in_small_pieces_spends_the_budget() -> None:
    rpc = RpcConnection(("/t/a",), now_ns=0)
    rpc.receive(frames.PREFACE + settings_frame({}) + headers_frame(REQUEST), 1)
    rpc.http2.budget.trust()
    (ended,), turns = whole(rpc, data(b"\0" + (1 << 20).to_bytes(4, "big")) + data(bytes(32)) * 2_000)
    assert "brings nothing" in ended.details
    assert turns == 2  # of half the permits
    assert rpc.http2.faults == {ErrorCode.ENHANCE_YOUR_CALM: 1}


def test_messages_in_data_of_their_own_take_no_permit_and_are_read_in_turns() -> None:
    rpc = server()
    rpc.receive(headers_frame(REQUEST), 1)
    received, turns = whole(rpc, data(frame_message(bytes(40))) * 2_000)
    assert turns == 7
    (event, *_) = received
    assert len(rpc.cut(event.call_id, event.reader, 2_000, 1)) == 2_000
    assert rpc.http2.closed is None


def test_an_answer_that_ends_without_trailers_leaves_no_stream() -> None:
    rpc = client()
    data = frame(frames.DATA, frames.END_STREAM, 1, frame_message(b"x" * 40))
    events = rpc.receive(headers_frame(RESPONSE) + data, 0)
    assert CallEnded(1, "INTERNAL", "the answer ends without a status") in events
    assert rpc.http2.open_streams == 0

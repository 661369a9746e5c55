"""`h2` as the oracle: random conversations with Covey's connection as client and as server. A stream's bytes
arrive in order and whole, and neither side breaks a rule in the other's eyes."""

import random
from collections import defaultdict
from collections.abc import Callable

import pytest
from draws import each_seed
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived as H2Data
from h2.events import PingAckReceived, RequestReceived, ResponseReceived, StreamEnded, TrailersReceived
from h2.events import StreamReset as H2Reset
from h2.settings import SettingCodes
from whole_connection import WholeConnection

from covey.overlay.http2.connection import DataReceived, HeadersReceived, StreamReset
from covey.overlay.http2.frames import ErrorCode, Http2Options

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"a")]
RESPONSE = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0")]


class Side:
    """The sent and received bytes, by stream."""

    def __init__(self) -> None:
        self.sent: dict[int, bytes] = defaultdict(bytes)
        self.got: dict[int, bytes] = defaultdict(bytes)
        self.open: set[int] = set()
        """Streams that may still carry its data."""
        self.ended: set[int] = set()
        self.peer_ended: set[int] = set()
        self.reset: set[int] = set()


class Conversation:
    """Random steps of both sides; bytes travel in random pieces."""

    def __init__(self, seed: int, client: bool) -> None:
        draw = self.draw = random.Random(seed)
        self.client = client
        self.ours, self.theirs = Side(), Side()
        options = Http2Options(
            max_frame_bytes=draw.choice((16_384, 60_000)),
            stream_window=draw.choice((65_535, 300_000)),
            connection_window=draw.choice((65_535, 400_000)),
            permits=10_000,
        )
        self.connection = WholeConnection(client=client, now_ns=0, options=options)
        self.h2 = H2Connection(H2Configuration(client_side=not client, header_encoding=None))
        self.h2.initiate_connection()
        self.to_ours = self.to_theirs = b""
        self.unconsumed: list[tuple[int, int]] = []
        self.h2_unacknowledged: list[tuple[int, int]] = []
        self.pings = self.pongs = 0
        self.window, self.frame_bytes = 65_535, 16_384
        self.cut: set[int] = set()
        """Streams that Covey's server ended first: further data of the client is dropped."""

    def play(self) -> None:
        steps: list[Callable[[], None]] = [
            self._open,
            self._our_data,
            self._our_data,
            self._their_data,
            self._their_data,
            self._our_end,
            self._their_end,
            self._reset,
            self._consume,
            self._their_settings,
            self._ping,
            self._carry,
            self._carry,
            self._carry,
        ]
        for _ in range(self.draw.randint(20, 200)):
            self.draw.choice(steps)()
        self._settle()
        for stream_id in sorted(self.ours.open):
            self._end_ours(stream_id)
        self._settle()
        for stream_id in sorted(self.theirs.open):
            self._end_theirs(stream_id)
        self._settle()
        self._judge()

    def _settle(self) -> None:
        while self._carry() or self._consume():
            pass

    def _judge(self) -> None:
        assert not self.connection.faults
        assert self.connection.closed is None
        assert self.pongs == self.pings
        reset = self.ours.reset | self.theirs.reset
        for sender, receiver, lossy in (
            (self.ours, self.theirs, reset),
            (self.theirs, self.ours, reset | self.cut),
        ):
            for stream_id, data in sender.sent.items():
                got = receiver.got[stream_id]
                assert data.startswith(got)
                if stream_id not in lossy:
                    assert got == data
                    assert stream_id in sender.ended
                    assert stream_id in receiver.peer_ended
        assert self.connection.open_streams == 0

    def _end_ours(self, stream_id: int) -> None:
        self.connection.end_stream(stream_id, None if self.client else TRAILERS)
        self.ours.open.discard(stream_id)
        self.ours.ended.add(stream_id)
        if not self.client and stream_id not in self.ours.peer_ended:
            self.cut.add(stream_id)

    def _end_theirs(self, stream_id: int) -> None:
        if self.client:
            self.h2.send_headers(stream_id, TRAILERS, end_stream=True)
        else:
            self.h2.end_stream(stream_id)
        self.theirs.open.discard(stream_id)
        self.theirs.ended.add(stream_id)

    def _some(self, streams: set[int]) -> int | None:
        return self.draw.choice(sorted(streams)) if streams else None

    # --- steps ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.client:
            stream_id = self.connection.open_stream(REQUEST)
            if stream_id is not None:
                self.ours.open.add(stream_id)
        elif self.h2.open_outbound_streams < 90:
            stream_id = self.h2.get_next_available_stream_id()
            self.h2.send_headers(stream_id, REQUEST, priority_weight=self.draw.choice((None, 5)))
            self.theirs.open.add(stream_id)

    def _our_data(self) -> None:
        stream_id = self._some(self.ours.open)
        if stream_id is not None:
            data = self.draw.randbytes(self.draw.choice((0, 1, 100, 20_000, 100_000)))
            self.connection.queue(self.connection.stream(stream_id), data)
            self.ours.sent[stream_id] += data

    def _their_data(self) -> None:
        stream_id = self._some(self.theirs.open)
        if stream_id is None:
            return
        padding = self.draw.choice((None, 0, 200))
        overhead = 0 if padding is None else padding + 1
        room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size) - overhead
        if room > 0:
            data = self.draw.randbytes(min(room, self.draw.choice((0, 1, 100, 20_000, 60_000))))
            self.h2.send_data(stream_id, data, pad_length=padding)
            self.theirs.sent[stream_id] += data

    def _our_end(self) -> None:
        stream_id = self._some(self.ours.open)
        if stream_id is not None and self.draw.random() < 0.3:
            self._end_ours(stream_id)

    def _their_end(self) -> None:
        stream_id = self._some(self.theirs.open)
        if stream_id is not None and self.draw.random() < 0.3:
            self._end_theirs(stream_id)

    def _reset(self) -> None:
        if self.draw.random() < 0.2:
            stream_id = self._some(self.ours.open)
            if stream_id is not None:
                self.connection.reset_stream(stream_id, ErrorCode.CANCEL)
                self.ours.open.discard(stream_id)
                self.ours.reset.add(stream_id)
            stream_id = self._some(self.theirs.open)
            if stream_id is not None:
                self.h2.reset_stream(stream_id, 8)
                self.theirs.open.discard(stream_id)
                self.theirs.reset.add(stream_id)

    def _consume(self) -> bool:
        waiting = bool(self.unconsumed or self.h2_unacknowledged)
        for stream_id, size in self.unconsumed:
            self.connection.consume(stream_id, size)
        self.unconsumed.clear()
        for stream_id, size in self.h2_unacknowledged:
            self.h2.acknowledge_received_data(size, stream_id)
        self.h2_unacknowledged.clear()
        return waiting

    def _their_settings(self) -> None:
        if self.draw.random() < 0.3:
            # Only larger ones: h2 takes no empty DATA once its window has shrunk below 0, which is allowed,
            # and applies settings with the acknowledgement of those before.
            self.window += self.draw.choice((0, 10, 100_000))
            self.frame_bytes += self.draw.choice((0, 0, 10_000))
            self.h2.update_settings(
                {
                    SettingCodes.INITIAL_WINDOW_SIZE: self.window,
                    SettingCodes.MAX_FRAME_SIZE: self.frame_bytes,
                    SettingCodes.HEADER_TABLE_SIZE: self.draw.choice((0, 100, 4_096, 60_000)),
                }
            )

    def _ping(self) -> None:
        self.h2.ping(self.draw.randbytes(8))
        self.pings += 1

    # --- the way of the bytes -------------------------------------------------------------------------------

    def _carry(self) -> bool:
        """Carry some of the waiting bytes in each direction; whether there were any."""
        while output := self.connection.take_output():
            self.to_theirs += output
        self.to_ours += self.h2.data_to_send()
        waiting = bool(self.to_ours or self.to_theirs)
        # Frame by frame: h2 applies a new frame size with its next call.
        for _ in range(self.draw.randint(0, 5)):
            size = 24 if self.to_theirs.startswith(b"PRI") else 9 + int.from_bytes(self.to_theirs[:3], "big")
            piece, self.to_theirs = self.to_theirs[:size], self.to_theirs[size:]
            self._theirs_receive(piece)
        piece, self.to_ours = self._piece(self.to_ours)
        self._ours_receive(piece)
        return waiting

    def _piece(self, data: bytes) -> tuple[bytes, bytes]:
        size = self.draw.choice((len(data), self.draw.randint(0, len(data)), 1))
        return data[:size], data[size:]

    def _ours_receive(self, data: bytes) -> None:
        for event in self.connection.receive(data, 1):
            if isinstance(event, DataReceived):
                self.ours.got[event.stream_id] += event.data
                self.unconsumed.append((event.stream_id, event.size))
            elif isinstance(event, HeadersReceived):
                if not event.trailers and not self.client:
                    if self.connection.stream(event.stream_id) is not None:
                        self.connection.write_headers(event.stream_id, RESPONSE)
                    self.ours.open.add(event.stream_id)
            elif isinstance(event, StreamReset):
                assert event.code in (ErrorCode.CANCEL, ErrorCode.NO_ERROR)
                self.ours.open.discard(event.stream_id)
                self.ours.reset.add(event.stream_id)
            else:
                pytest.fail(event.reason)
            if isinstance(event, DataReceived | HeadersReceived) and event.ended:
                self.ours.peer_ended.add(event.stream_id)

    def _theirs_receive(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, H2Data):
                self.theirs.got[event.stream_id] += event.data
                self.h2_unacknowledged.append((event.stream_id, event.flow_controlled_length))
            elif isinstance(event, RequestReceived):
                self.h2.send_headers(event.stream_id, RESPONSE)
                self.theirs.open.add(event.stream_id)
            elif isinstance(event, ResponseReceived | TrailersReceived):
                pass
            elif isinstance(event, StreamEnded):
                self.theirs.peer_ended.add(event.stream_id)
            elif isinstance(event, H2Reset):
                self.theirs.open.discard(event.stream_id)
                if event.error_code != ErrorCode.NO_ERROR:
                    self.theirs.reset.add(event.stream_id)
            elif isinstance(event, PingAckReceived):
                self.pongs += 1


@each_seed("conversations with h2")
@pytest.mark.parametrize("client", [True, False], ids=["client", "server"])
def test_conversations_with_h2(client: bool, seed: int) -> None:
    Conversation(seed, client).play()

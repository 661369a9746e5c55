"""Random HTTP/2 frames of a hostile peer against one end of a connection with gRPC calls. The peer mostly
keeps to the protocol, so that its breaches reach every state. The judge: nothing is raised, memory is
bounded, output consists of whole frames, a breach ends with GOAWAY or RST_STREAM, and every call begins and
ends once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hpack import Encoder

from covey.overlay.http2 import frames
from covey.overlay.http2.frames import ErrorCode, Http2Options
from covey.overlay.http2.messages import MessageReader, MessagesReceived
from covey.overlay.http2.rpc import CallEnded, CallStarted, RpcConnection, RpcEvent

_OPTIONS = Http2Options(
    max_streams=20, max_frame_bytes=16_384, stream_window=65_535, connection_window=200_000
)
_MESSAGE_BYTES = 100_000
_PATHS = ("/t/a", "/t/b")
_ODD_HEADERS = (
    *(("grpc-timeout", "1m"), ("grpc-timeout", "x"), ("grpc-encoding", "gzip")),
    *((":method", "GET"), ("X", "y"), ("", "")),
)
_LARGEST_PIECE = 300_000
_TURN_EVENTS = 150
FLOOD = 1_100
"""More frames of any type except DATA than a budget has permits for."""
_CALLS = 60


@dataclass(slots=True)
class FrameFuzzResult:
    """`violations` name the seed of their connection."""

    frames: int = 0
    connections: int = 0
    calls: int = 0
    messages: int = 0
    closed: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    """Breaches of streams and of connections, by code."""
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ended = ", ".join(f"{number:,} {code}" for code, number in sorted(self.closed.items()))
        return (
            f"{self.frames:,} frames on {self.connections:,} connections, {self.calls:,} calls, "
            f"{self.messages:,} messages; connections ended: {ended or 'none'}"
        )


class HostilePeer:
    def __init__(self, draw: random.Random, of_client: bool) -> None:
        self._draw = draw
        self._of_client = of_client
        self._encoder = Encoder()
        self._next_stream = 1
        self.streams: list[int] = []

    def begin(self) -> bytes:
        return (frames.PREFACE if self._of_client else b"") + frames.settings_frame({})

    def some_frames(self) -> tuple[bytes, int]:
        draw = self._draw
        if not self.streams and draw.random() < 0.99:
            return (self._open() if self._of_client else frames.frame(frames.PING, 0, 0, bytes(8))), 1
        sent = draw.choices(
            (
                self._open,
                self._message,
                self._window,
                self._settings,
                self._other,
                self._end,
                self._continued,
            ),
            (4, 8, 3, 1, 2, 2, 1),
        )[0]()
        chance = draw.random()
        if chance < 0.03:
            return self._mutated(sent), 1
        if chance < 0.06:
            return self._random(), 1
        if chance < 0.07:
            times = draw.choice((5, 30, FLOOD))
            return sent * times, times
        return sent, 1

    def _stream(self) -> int:
        draw = self._draw
        if not self.streams or draw.random() < 0.005:
            return draw.choice((0, 1, 2, self._next_stream + 100, frames.LARGEST_STREAM))
        return draw.choice(self.streams[-4:])

    def _open(self) -> bytes:
        draw = self._draw
        if not self._of_client:
            return self._headers(
                draw.choice(([(":status", "200"), ("content-type", "application/grpc")], [])), 0
            )
        self.streams.append(self._next_stream)
        self._next_stream += 2
        path = draw.choice((*_PATHS, *_PATHS, "/t/c"))
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path)]
        headers += [("content-type", "application/grpc"), ("te", "trailers")]
        if draw.random() < 0.1:
            headers.append(draw.choice((*_ODD_HEADERS, ("x", "y" * draw.choice((10, 20_000))))))
        block = self._encoder.encode(headers)
        flags = frames.END_HEADERS | (frames.END_STREAM if draw.random() < 0.1 else 0)
        return frames.frame(frames.HEADERS, flags, self._next_stream - 2, block)

    def _headers(self, headers: list[tuple[str, str]], flags: int) -> bytes:
        block = self._encoder.encode(headers)
        return frames.frame(frames.HEADERS, frames.END_HEADERS | flags, self._stream(), block)

    def _message(self) -> bytes:
        draw = self._draw
        size = draw.choice((0, 1, 100, 16_000, 16_379))
        flag = 0 if draw.random() < 0.98 else draw.choice((1, 2, 255))
        length = size if draw.random() < 0.9 else draw.choice((size + 5_000, 90_000, 1 << 31))
        payload = bytes((flag,)) + length.to_bytes(4, "big") + bytes(size)
        flags = 0
        if draw.random() < 0.1 and size < 10_000:
            padding = draw.randrange(256)
            payload, flags = bytes((padding,)) + payload + bytes(padding), frames.PADDED
        return frames.frame(frames.DATA, flags, self._stream(), payload)

    def _end(self) -> bytes:
        draw = self._draw
        if draw.random() < 0.3:
            return frames.number_frame(frames.RST_STREAM, self._stream(), draw.randrange(20))
        if self._of_client and draw.random() < 0.7:
            return frames.frame(frames.DATA, frames.END_STREAM, self._stream())
        if self._of_client:
            return self._headers([("x", "y")], frames.END_STREAM)
        return self._headers([("grpc-status", draw.choice(("0", "5", "x")))], frames.END_STREAM)

    def _window(self) -> bytes:
        grant = self._draw.choice(
            (0, 1, 1_000, 100_000, frames.LARGEST_WINDOW) if self._rarely() else (1, 50_000)
        )
        return frames.number_frame(frames.WINDOW_UPDATE, self._draw.choice((0, self._stream())), grant)

    def _settings(self) -> bytes:
        draw = self._draw
        if self._rarely():
            return frames.settings_frame({draw.randrange(10): draw.choice((0, 1, 16_384, 1 << 20, 1 << 31))})
        sizes = {frames.INITIAL_WINDOW_SIZE: draw.choice((0, 100, 65_535, 1 << 20))}
        return frames.settings_frame(sizes | {frames.MAX_FRAME_SIZE: draw.choice((16_384, 1 << 20))})

    def _other(self) -> bytes:
        draw = self._draw
        kind = draw.choice((frames.PING, frames.PRIORITY, frames.PUSH_PROMISE, frames.GOAWAY, 50))
        if kind == frames.GOAWAY or kind == frames.PUSH_PROMISE:
            kind = kind if self._rarely() else frames.PING
        size = {frames.PING: 8, frames.PRIORITY: 5}.get(kind, draw.randrange(30))
        stream_id = 0 if kind in (frames.PING, frames.GOAWAY) else self._stream()
        return frames.frame(kind, draw.choice((0, 0, frames.ACK)), stream_id, draw.randbytes(size))

    def _continued(self) -> bytes:
        opened = self._open()
        block, stream_id = opened[frames.HEADER_BYTES :], int.from_bytes(opened[5:9], "big")
        filling = self._draw.choice((b"", b"", bytes(15_000)))
        pieces = [block[:3], *([filling] * self._draw.choice((0, 0, 3, 40))), block[3:]]
        sent = frames.frame(frames.HEADERS, 0, stream_id, pieces[0])
        for piece in pieces[1:-1]:
            sent += frames.frame(frames.CONTINUATION, 0, stream_id, piece)
        return sent + frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream_id, pieces[-1])

    def _mutated(self, sent: bytes) -> bytes:
        where = self._draw.randrange(len(sent))
        return sent[:where] + self._draw.randbytes(1) + sent[where + 1 :]

    def _random(self) -> bytes:
        draw = self._draw
        kind, flags, size = draw.randrange(12), draw.randrange(256), draw.choice((0, 4, 5, 8, 100, 16_385))
        return frames.frame(kind, flags, self._stream(), draw.randbytes(size))

    def _rarely(self) -> bool:
        return self._draw.random() < 0.05


class FuzzedConnection:
    """One connection, from its seed; server and client alternate."""

    def __init__(self, seed: int, result: FrameFuzzResult) -> None:
        self._seed = seed
        self._result = result
        draw = self._draw = random.Random(seed)
        self._is_server = seed % 2 == 0
        self._peer = HostilePeer(draw, self._is_server)
        self._trusted = not self._is_server or draw.random() < 0.9
        self._now_ns = 0
        self._rpc = RpcConnection(
            _PATHS if self._is_server else None,
            now_ns=0,
            max_message_bytes=_MESSAGE_BYTES,
            options=_OPTIONS,
        )
        if self._trusted:
            self._rpc.http2.budget.trust()
        self._reads = draw.random() < 0.9
        self._calls: set[int] = set()
        self._ended: set[int] = set()
        self._readers: dict[int, MessageReader] = {}
        """By call, the readers with messages that have not been cut."""
        self._output = b""

    def play(self) -> None:
        result = self._result
        result.connections += 1
        try:
            self._receive(self._peer.begin())
            for _ in range(self._draw.choice((10, _CALLS, 10 * _CALLS))):
                sent, count = self._peer.some_frames()
                result.frames += count
                for piece in self._pieces(sent):
                    self._receive(piece)
                if count == FLOOD and sent[3] != frames.DATA and self._rpc.http2.closed is None:
                    self._violation(f"{FLOOD} frames of type {sent[3]} cost nothing")
                self._act()
                if self._rpc.http2.closed is not None:
                    break
            self._finish()
        except Exception as error:
            self._violation(f"{type(error).__name__}: {error}")

    def _pieces(self, sent: bytes) -> Iterator[bytes]:
        size = self._draw.choice((_LARGEST_PIECE, _LARGEST_PIECE, 1 + len(sent) // 3))
        for start in range(0, len(sent), size):
            yield sent[start : start + size]

    def _receive(self, data: bytes) -> None:
        http2 = self._rpc.http2
        self._turn(data)
        while http2.unread:
            self._turn(b"")
        if http2.open_streams > _OPTIONS.max_streams:
            self._violation(f"{http2.open_streams} streams are open")
        bound = _OPTIONS.max_frame_bytes + _OPTIONS.max_header_bytes + frames.HEADER_BYTES
        if http2.pending_bytes > bound:
            self._violation(f"{http2.pending_bytes} bytes of the peer are pending")
        held = sum(reader.size for reader in self._readers.values())
        if held > _OPTIONS.connection_window + len(self._calls) * _MESSAGE_BYTES:
            self._violation(f"{held} bytes of messages are unread")

    def _turn(self, data: bytes) -> None:
        http2 = self._rpc.http2
        faults = sum(http2.faults.values())
        events = self._rpc.receive(data, self._now_ns)
        self._handle(events)
        if len(events) + sum(http2.faults.values()) - faults > _TURN_EVENTS:
            self._violation(f"{len(events)} events and {http2.faults} of one turn")

    def _handle(self, events: list[RpcEvent]) -> None:
        for event in events:
            call_id = event.call_id
            if isinstance(event, CallStarted):
                self._result.calls += 1
                if call_id in self._calls or event.path not in _PATHS:
                    self._violation(f"call {call_id} of {event.path} has started")
                self._calls.add(call_id)
            elif call_id in self._ended:
                self._violation(f"{type(event).__name__} of a call that has ended")
            elif isinstance(event, MessagesReceived):
                self._readers[call_id] = event.reader
            elif isinstance(event, CallEnded):
                self._ended.add(call_id)

    def _read(self, most: int) -> None:
        for call_id, reader in list(self._readers.items()):
            messages = self._rpc.cut(call_id, reader, most, self._now_ns)
            self._handle(self._rpc.take_events())
            self._result.messages += len(messages)
            for message in messages:
                if len(message) > _MESSAGE_BYTES:
                    self._violation(f"a message of {len(message)} bytes")
                self._rpc.http2.consume(call_id, len(message))
            if not reader.waiting:
                self._readers.pop(call_id, None)

    def _act(self) -> None:
        draw, rpc = self._draw, self._rpc
        chance = draw.random()
        live = sorted(self._calls - self._ended)
        if chance < 0.2:
            self._read(draw.choice((1, 100, 100_000)))
        elif chance < 0.4 and live:
            stream, message = rpc.http2.stream(draw.choice(live)), bytes(draw.choice((0, 10, 70_000)))
            if stream is not None:
                rpc.http2.send_message(stream, message)
        elif chance < 0.45 and live:
            call_id = draw.choice(live)
            if self._is_server:
                rpc.finish(call_id, "OK", "")
            else:
                rpc.cancel(call_id)
            self._ended.add(call_id)
        elif chance < 0.5:
            self._now_ns += draw.choice((10**6, 10**9, 4 * 10**9))
            self._handle(rpc.handle_timer(self._now_ns))
        elif chance < 0.7 and not self._is_server and len(live) < 10:
            new = rpc.start("/t/a", timeout_ns=draw.choice((None, 10**9)), now_ns=self._now_ns)
            if new is not None:
                self._calls.add(new)
                self._peer.streams.append(new)
        if self._reads and draw.random() < 0.7:
            self._take()

    def _take(self) -> None:
        while output := self._rpc.http2.take_output():
            self._output += output

    def _finish(self) -> None:
        http2 = self._rpc.http2
        self._take()
        last = self._check_output()
        closed = http2.closed
        if closed is not None and closed.ours and closed.code is not ErrorCode.NO_ERROR:
            self._result.closed[closed.code.name] += 1
            if last != (frames.GOAWAY, closed.code):
                self._violation(f"{closed.code.name} ends with {last}")
        for code, count in http2.faults.items():
            self._result.faults[code.name] += count
        self._handle(self._rpc.lost("the end"))
        silent = self._calls - self._ended
        if silent:
            self._violation(f"calls {sorted(silent)} have not ended")

    def _check_output(self) -> tuple[int, int]:
        """The type of the last frame of the output, and the code in it."""
        output = self._output.removeprefix(frames.PREFACE)
        position, kind, payload = 0, 0, b""
        while position < len(output):
            upper, lower, kind, _, _ = frames.HEADER.unpack_from(output, position)
            start = position + frames.HEADER_BYTES
            position = start + (upper << 8 | lower)
            payload = output[start:position]
        if position != len(output):
            self._violation("the output ends within a frame")
        return kind, int.from_bytes(payload[4:8], "big")

    def _violation(self, what: str) -> None:
        side = "server" if self._is_server else "client"
        self._result.violations.append(f"seed {self._seed} ({side}): {what}")


def fuzz_frames(seed: int, count: int) -> Iterator[FrameFuzzResult]:
    """Connections from `seed` on until they got `count` frames; yields the accumulated result after each."""
    result = FrameFuzzResult()
    while result.frames < count:
        FuzzedConnection(seed, result).play()
        seed += 1
        yield result

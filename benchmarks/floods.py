"""Floods of useless frames, sent by plain sockets as fast as they take them. A flood's connections are
concurrent, each from its own loopback address if the broker is there, and reconnect at once. Frames are built
before, since building takes longer than a broker's reading."""

from __future__ import annotations

import itertools
import secrets
import selectors
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from hpack import Encoder

from covey.overlay.core.link.link import Hello
from covey.overlay.http2 import frames
from covey.overlay.http2.frames import ErrorCode, frame, number_frame, settings_frame
from covey.overlay.http2.messages import frame_message
from covey.overlay.transport.packets import CONNECT, DESCRIBE, Greeting, Role, encode_greeting
from covey.proto import broker_pb2 as pb

FLOODS = {
    "window_update": "grants the connection one byte at a time",
    "window_update_closed": "grants windows of a stream that has ended",
    "priority": "sets priorities",
    "unknown": "sends frames of an unknown type",
    "ping": "pings",
    "settings": "sets its settings again and again",
    "data_0": "sends DATA of no bytes",
    "data_1": "sends DATA of one byte",
    "data_32": "sends a message of 8 MB in DATA of 32 bytes",
    "trailers": "begins calls and ends them by trailers",
    "resets": "begins calls and resets them",
    "reset_idle": "resets streams that are idle",
    "messages_0": "sends messages of no bytes",
    "messages_1": "sends messages of one byte",
    "calls": "asks the broker to describe itself",
    "acknowledgements": "acknowledges what is acknowledged",
    "credit": "grants one byte of credit at a time, in frames of 40 bytes",
    "values": "updates a subscription to the values in force",
}
_BLOCK_BYTES = 64 << 10
_DATA_BYTES = 16_000
_LARGE_BYTES = 8_000_000
_FRAMES = 4_096
"""More frames of Covey in a block than a budget has permits for."""
_SESSIONS = frozenset(("acknowledgements", "credit", "values"))


class Flood:
    """One flood of a broker at `host:port`. `frames` counts those sent, `closed` how connections ended."""

    def __init__(self, kind: str, address: str, connections: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._kind = kind
        self._connections = connections
        self._sources = itertools.cycle(range(2, 2 + min(connections, 250)))
        self._block, self._frames_of_block = _block(kind)
        self.frames = 0
        self.closed: Counter[str] = Counter()

    def run(self, ends: Callable[[], bool]) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(self._connections):
                self._connect(selector)
            while not ends():
                for key, _ in selector.select(0.05):
                    connection: _Connection = key.data
                    if not connection.step():
                        self._leave(selector, connection)
                        self._connect(selector)
            for key in list(selector.get_map().values()):
                self._leave(selector, key.data)

    def _leave(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        selector.unregister(connection.socket)
        connection.socket.close()
        self.closed[connection.end] += 1
        self.frames += connection.sent_bytes * self._frames_of_block // len(self._block)

    def _connect(self, selector: selectors.BaseSelector) -> None:
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if self._address[0] == "127.0.0.1":
            plain.bind((f"127.0.0.{next(self._sources)}", 0))
        plain.setblocking(False)
        with suppress(BlockingIOError):
            plain.connect(self._address)
        connection = _Connection(plain, _opening(self._kind), self._block)
        selector.register(plain, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)


class _Connection:
    """`end` is the name of a GOAWAY's code, or how the connection ended without one."""

    def __init__(self, plain: socket.socket, opening: bytes, block: bytes) -> None:
        self.socket = plain
        self.end = "open"
        self.sent_bytes = 0
        self._rest = memoryview(opening)
        self._block = block
        self._read = b""

    def step(self) -> bool:
        """Read and write without blocking; whether the connection lives."""
        try:
            with suppress(BlockingIOError):
                data = self.socket.recv(_BLOCK_BYTES)
                if not data:
                    raise ConnectionResetError
                self._read = self._scan(self._read + data)
            with suppress(BlockingIOError):
                sent = self.socket.send(self._rest)
                self._rest = self._rest[sent:]
                self.sent_bytes += sent
                if not self._rest:
                    self._rest = memoryview(self._block)
        except OSError:
            if self.end == "open":
                self.end = "reset"
            return False
        return True

    def _scan(self, data: bytes) -> bytes:
        """Look for a GOAWAY; returns an incomplete frame."""
        position = 0
        while len(data) - position >= frames.HEADER_BYTES:
            upper, lower, kind, _, _ = frames.HEADER.unpack_from(data, position)
            end = position + frames.HEADER_BYTES + (upper << 8 | lower)
            if end > len(data):
                break
            if kind == frames.GOAWAY:
                code = int.from_bytes(data[end - (upper << 8 | lower) + 4 :][:4], "big")
                self.end = ErrorCode(code).name
            position = end
        return data[position:]


def _opening(kind: str) -> bytes:
    begin = frames.PREFACE + settings_frame({})
    if kind in ("data_0", "data_1", "data_32", "messages_0", "messages_1", *_SESSIONS):
        begin += _headers(1, CONNECT)
    if kind == "window_update_closed":
        begin += _headers(1, CONNECT) + number_frame(frames.RST_STREAM, 1, ErrorCode.CANCEL)
    if kind == "data_1":
        begin += frame(frames.DATA, 0, 1, b"\0\0\x10\0\0")
    if kind == "data_32":
        begin += frame(frames.DATA, 0, 1, b"\0" + _LARGE_BYTES.to_bytes(4, "big"))
    if kind in _SESSIONS:
        hello = Greeting(Role.CLIENT, f"flood-{secrets.token_hex(8)}", Hello(secrets.randbits(60) | 1))
        begin += frame(frames.DATA, 0, 1, frame_message(encode_greeting(hello)))
    return begin


def _block(kind: str) -> tuple[bytes, int]:
    """The repeated bytes of a connection, and their number of frames or messages."""
    if kind == "trailers" or kind == "resets" or kind == "calls":
        blocks = [_call(kind, stream_id) for stream_id in range(3, 3 + 2 * _FRAMES, 2)]
        return b"".join(blocks), _FRAMES
    if kind == "values":
        return _data(_values()), _FRAMES
    if kind == "credit":
        padded = [pb.Packet(frame=pb.Frame(credit=1 << 40 | n, received=0)) for n in range(_FRAMES)]
        return _data(each.SerializeToString() + b"\xfa\x01\x1e" + bytes(30) for each in padded), _FRAMES
    if kind in ("messages_0", "messages_1", "acknowledgements"):
        acknowledges = pb.Packet(frame=pb.Frame(credit=1 << 20)).SerializeToString()
        message = {"messages_0": b"", "messages_1": b"\0"}.get(kind, acknowledges)
        return _data(itertools.repeat(message, _FRAMES)), _FRAMES
    one = {
        "window_update": number_frame(frames.WINDOW_UPDATE, 0, 1),
        "window_update_closed": number_frame(frames.WINDOW_UPDATE, 1, 1),
        "priority": frame(frames.PRIORITY, 0, 3, bytes(5)),
        "unknown": frame(77, 0, 0),
        "ping": frame(frames.PING, 0, 0, bytes(8)),
        "settings": settings_frame({frames.INITIAL_WINDOW_SIZE: 65_535}),
        "data_0": frame(frames.DATA, 0, 1),
        "data_1": frame(frames.DATA, 0, 1, b"\0"),
        "data_32": frame(frames.DATA, 0, 1, bytes(32)),
        "reset_idle": number_frame(frames.RST_STREAM, 9_999, ErrorCode.CANCEL),
    }[kind]
    count = _BLOCK_BYTES // len(one)
    return one * count, count


def _headers(stream_id: int, path: str, flags: int = 0) -> bytes:
    pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "broker")]
    block = Encoder().encode([*pseudo, ("content-type", "application/grpc"), ("te", "trailers")])
    return frame(frames.HEADERS, frames.END_HEADERS | flags, stream_id, block)


def _call(kind: str, stream_id: int) -> bytes:
    begun = _headers(stream_id, DESCRIBE.path)
    if kind == "resets":
        return begun + number_frame(frames.RST_STREAM, stream_id, ErrorCode.CANCEL)
    if kind == "calls":
        return begun + frame(frames.DATA, frames.END_STREAM, stream_id, frame_message(b""))
    flags = frames.END_HEADERS | frames.END_STREAM
    return begun + frame(frames.HEADERS, flags, stream_id, Encoder().encode([("x", "y")]))


def _data(messages: Iterator[bytes]) -> bytes:
    """Messages of a stream in as few frames as possible."""
    framed = b"".join(map(frame_message, messages))
    pieces = [framed[at : at + _DATA_BYTES] for at in range(0, len(framed), _DATA_BYTES)]
    return b"".join(frame(frames.DATA, 0, 1, piece) for piece in pieces)


def _values() -> Iterator[bytes]:
    subscribe = pb.Subscribe(epoch=1, subscription_id=1, type_name="Trade", filter="number < $limit")
    subscribe.values["limit"].float64 = -1.0
    yield _packet(1, pb.Message(subscribe=subscribe))
    for number in range(2, _FRAMES + 1):
        update = pb.Update(epoch=number, subscription_id=1)
        update.values["limit"].float64 = -1.0
        yield _packet(number, pb.Message(update=update))


def _packet(number: int, message: pb.Message) -> bytes:
    return pb.Packet(frame=pb.Frame(sequence=number, credit=1 << 40, messages=[message])).SerializeToString()

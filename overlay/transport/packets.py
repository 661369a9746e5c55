"""Packets of a connection (hello, frame, goodbye) and bodies of single calls (proto/broker.proto).

A decoded frame has its messages in wire form: `codec.py` decodes one by one, since a message may depend on
the schema that the one before declared. Messages of a large frame stay bytes until a turn handles them: to
make objects of all messages in 4 MiB takes 20 ms for 40,000 subscriptions, but 14 s for two million empty
messages of a hostile client; as bytes the largest frame takes at most 40 ms.

Invariants: decoding an encoded packet gives an equal one; a peer's bytes raise `MalformedPacketError`, or
`LinkError` when a message of a large frame is read, never anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar, overload

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as WireBody

from covey.overlay.core.endpoint.limits import Limits, SlowConsumer
from covey.overlay.core.link.link import Frame, Hello, LinkError
from covey.overlay.core.messages import Message, Subscribe
from covey.overlay.transport.address import CallError
from covey.overlay.transport.codec import ENCODERS, WireMessage
from covey.overlay.transport.wire_values import MalformedPacketError, fill_event_type
from covey.proto import broker_pb2 as pb

SERVICE = "covey.v1.Broker"
CONNECT = f"/{SERVICE}/Connect"
PROTOCOL = 2
"""The only version spoken. A connection uses the older of both sides' newest (`_check_protocol`)."""
_READ_BYTES = 16 << 10
"""Smaller frames are parsed whole, in at most 0.6 ms, which costs less per message."""
_DECODED_BYTES = 32 << 10
"""Bytes of frames that are decoded together."""
_SLOW_OF = {pb.SlowConsumer.Value(f"SLOW_CONSUMER_{policy.name}"): policy for policy in SlowConsumer}
B = TypeVar("B", bound=WireBody)
Q = TypeVar("Q", bound=WireBody)
R = TypeVar("R", bound=WireBody)


def _unread_packet() -> Any:
    """The packet of broker.proto, with a frame's messages as bytes."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    (frame,) = (each for each in file.message_type if each.name == "Frame")
    (messages,) = (field for field in frame.field if field.name == "messages")
    messages.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    messages.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Packet"))


UnreadPacket = _unread_packet()
_read_small: Callable[[bytes], Any] = pb.Packet.FromString
_read_large: Callable[[bytes], Any] = UnreadPacket.FromString


class UnreadMessages(Sequence[WireMessage]):
    """Parsed on access. `LinkError` for bytes that are no message."""

    __slots__ = ("_bytes",)

    def __init__(self, bytes_of_each: Sequence[bytes]) -> None:
        self._bytes = bytes_of_each

    def __len__(self) -> int:
        return len(self._bytes)

    @overload
    def __getitem__(self, index: int) -> WireMessage: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[WireMessage, ...]: ...

    def __getitem__(self, index: int | slice) -> WireMessage | tuple[WireMessage, ...]:
        if isinstance(index, slice):
            return tuple(map(_parsed, self._bytes[index]))
        return _parsed(self._bytes[index])


def _parsed(data: bytes) -> WireMessage:
    try:
        return pb.Message.FromString(data)
    except DecodeError as error:
        raise LinkError(f"{len(data)} bytes in a frame are no message: {error}") from None


class StreamClosedError(CallError):
    """This side ends the connection deliberately."""


class PeerClosedError(StreamClosedError):
    """The peer ended the connection with a goodbye."""


class Role(Enum):
    BROKER = "broker"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Greeting:
    role: Role
    id: str
    hello: Hello
    overlay: str = ""
    slow_consumer: SlowConsumer = SlowConsumer.BLOCK
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, str] = field(default_factory=dict)
    durable: bool = False
    """Of a client: the session outlives its connections and the broker's process."""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The last packet before a deliberate end; `status` is a gRPC status."""

    status: str
    reason: str


_ROLE_OF = {pb.Hello.Role.Value(f"ROLE_{role.name}"): role for role in Role}


def encode_greeting(greeting: Greeting) -> bytes:
    hello = pb.Hello(
        protocol=PROTOCOL,
        oldest_protocol=PROTOCOL,
        role=f"ROLE_{greeting.role.name}",
        id=greeting.id,
        overlay=greeting.overlay,
        slow_consumer=f"SLOW_CONSUMER_{greeting.slow_consumer.name}",
        limits=pb.Limits(**asdict(greeting.limits)),
        options=greeting.options,
        durable=greeting.durable,
        **asdict(greeting.hello),
    )
    return pb.Packet(hello=hello).SerializeToString()


def encode_frame(frame: Frame[Message], *, schemas: bool = False) -> bytes:
    """`schemas`: subscriptions carry their event types, as clients need."""
    packet = pb.Packet()
    wire = packet.frame  # filled in place: a packet copies a frame that it is given
    wire.sequence = frame.sequence
    wire.received = frame.received
    wire.credit = frame.credit
    wire.probe = frame.probe
    wire.dropped = frame.dropped
    wire.settled = frame.settled
    for message in frame.messages:
        ENCODERS[message.__class__](wire.messages.add(), message)
        if schemas and isinstance(message, Subscribe):
            fill_event_type(wire.messages[-1].subscribe.event_type, message.filter.event_type)
    data: bytes = packet.SerializeToString()
    return data


def decode_frames(messages: list[bytes]) -> list[Frame[WireMessage]]:
    """The first frames, about 32 KiB. Raises for a message that ends the connection once it is the first."""
    frames: list[Frame[WireMessage]] = []
    size = 0
    for message in messages:
        small = len(message) <= _READ_BYTES
        try:
            packet = _read_small(message) if small else _read_large(message)
            is_frame = packet.HasField("frame")
        except DecodeError:
            is_frame = False
        if not is_frame:
            if frames:
                break
            raise _end_of(decode_packet(message))
        frame = packet.frame
        # By a slice, since protobuf ends an iteration with an `IndexError`, which takes as long again.
        of_frame = tuple(frame.messages[:]) if small else UnreadMessages(frame.messages)
        sequence, received, credit = frame.sequence, frame.received, frame.credit
        frames.append(Frame(sequence, received, credit, of_frame, frame.probe, frame.dropped, frame.settled))
        size += len(message)
        if size >= _DECODED_BYTES:
            break
    return frames


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The endpoint of an interface with its codec. Times are ns of the monotonic clock.

    `receive(frames, now_ns)` returns how many frames are done; the others must be offered again. Its errors
    end the connection. `next_frame` returns the frame to send, if any; with `schemas` subscriptions carry
    event types. `delay_ns(now_ns)` is how long arrived frames must wait.
    """

    receive: Callable[[list[Frame[WireMessage]], int], int]
    next_frame: Callable[[], Frame[Message] | None]
    schemas: bool
    delay_ns: Callable[[int], int] | None = None
    decode: Callable[[list[bytes]], list[Frame[WireMessage]]] = decode_frames
    encode: Callable[..., bytes] = encode_frame


def _end_of(packet: Greeting | Frame[WireMessage] | Goodbye) -> StreamClosedError:
    if isinstance(packet, Goodbye):
        return PeerClosedError(packet.status, packet.reason)
    assert isinstance(packet, Greeting)
    return StreamClosedError("INVALID_ARGUMENT", f"a second hello from {packet.id!r}: expected a frame")


def encode_goodbye(goodbye: Goodbye) -> bytes:
    return pb.Packet(goodbye=pb.Goodbye(status=goodbye.status, reason=goodbye.reason)).SerializeToString()


def decode_packet(data: bytes) -> Greeting | Frame[WireMessage] | Goodbye:
    """`MalformedPacketError` if this is no packet."""
    try:
        packet = _read_small(data) if len(data) <= _READ_BYTES else _read_large(data)
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no packet of {SERVICE}: {error}") from None
    kind = packet.WhichOneof("kind")
    if kind == "frame":
        return decode_frames([data])[0]
    if kind == "hello":
        return _decode_greeting(packet.hello)
    if kind == "goodbye":
        return Goodbye(packet.goodbye.status, packet.goodbye.reason)
    raise MalformedPacketError("an empty packet: expected a hello, a frame or a goodbye")


def _decode_greeting(hello: pb.Hello) -> Greeting:
    _check_protocol(hello)
    role = _ROLE_OF.get(hello.role)
    slow_consumer = _SLOW_OF.get(hello.slow_consumer)
    if role is None or slow_consumer is None:
        raise MalformedPacketError(
            f"hello with role {hello.role} and slow_consumer {hello.slow_consumer}: unknown"
        )
    if not hello.id or not hello.id.isprintable() or len(hello.id) > 200:
        raise MalformedPacketError(f"hello with id {hello.id[:40]!r}: expected 1 to 200 printable characters")
    if not hello.incarnation:
        raise MalformedPacketError(f"hello from {hello.id!r} with incarnation 0: expected a positive number")
    limits = Limits()
    if hello.HasField("limits"):
        limits = Limits(
            hello.limits.max_event_bytes, hello.limits.max_batch_events, hello.limits.max_frame_bytes
        )
        if not (limits.max_event_bytes and limits.max_batch_events and limits.max_frame_bytes):
            raise MalformedPacketError(f"hello from {hello.id!r} with {limits}: expected at least 1 of each")
    return Greeting(
        role,
        hello.id,
        Hello(hello.incarnation, hello.peer_incarnation, hello.received, hello.credit, hello.ticket),
        hello.overlay,
        slow_consumer,
        limits,
        dict(hello.options),
        hello.durable,
    )


def _check_protocol(hello: pb.Hello) -> None:
    """`MalformedPacketError` unless both sides speak a common version."""
    oldest = hello.oldest_protocol or hello.protocol
    if hello.protocol < PROTOCOL or oldest > PROTOCOL:
        spoken = str(oldest) if oldest == hello.protocol else f"{oldest} to {hello.protocol}"
        raise MalformedPacketError(
            f"hello from {hello.id[:40]!r} with protocol {spoken}: this side speaks {PROTOCOL}"
        )


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    path: str
    request: type[Q]
    reply: type[R]


DESCRIBE = Method(f"/{SERVICE}/Describe", pb.DescribeRequest, pb.EventType)
INSPECT = Method(f"/{SERVICE}/Inspect", pb.InspectRequest, pb.InspectReply)
EXPLAIN = Method(f"/{SERVICE}/Explain", pb.ExplainRequest, pb.ExplainReply)
FOLLOW = Method(f"/{SERVICE}/Follow", pb.FollowRequest, pb.ExplainReply)
RELOAD = Method(f"/{SERVICE}/Reload", pb.ReloadRequest, pb.ReloadReply)
ReloadReply = pb.ReloadReply


def read_body(kind: type[B], data: bytes) -> B:
    """`MalformedPacketError` if this is no `kind`."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no {kind.__name__}: {error}") from None

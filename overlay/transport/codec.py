"""The wire form of what travels over a connection (proto/broker.proto); `calls.py` has that of single calls.

Bytes become a `Greeting` or a `Frame` whose messages are still in wire form (`decode_packet`); those become
core messages one by one (`decode_message`), since what a message means may depend on the schema that the one
before it declared. Invariants: decoding what was encoded gives an equal message; bytes from a peer raise
`MalformedPacketError` or `MessageError`, never anything else; the bytes of a batch pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import CoveyError, EventError, EventTypeError, FilterError
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Scalar
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.core.link.size import FIXED_BYTES
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Deliver,
    ListenersReport,
    Message,
    Publish,
    Refuse,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import Motion, check_values
from covey.overlay.transport.limits import Limits, SlowConsumer
from covey.proto import broker_pb2 as pb

PROTOCOL = 1
SERVICE = "covey.v1.Broker"
WireMessage = pb.Message
TypeLookup = Callable[[str], EventType | None]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Role(Enum):
    BROKER = "broker"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first packet of a connection, each way."""

    role: Role
    id: str
    hello: Hello
    overlay: str = ""
    slow_consumer: SlowConsumer = SlowConsumer.BLOCK
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The last packet of a side that ends the connection on purpose; `status` names a gRPC status."""

    status: str
    reason: str


class MalformedPacketError(CoveyError):
    """Bytes that are no packet of this protocol."""


class MessageError(CoveyError):
    """A message that cannot be taken; `refuse` is the answer to its sender."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.reason)
        self.refuse = refuse


# --- packets --------------------------------------------------------------------------------------

_ROLES = {Role.BROKER: pb.Hello.ROLE_BROKER, Role.CLIENT: pb.Hello.ROLE_CLIENT}
_ROLE_OF = {wire: role for role, wire in _ROLES.items()}
_SLOW = {
    SlowConsumer.BLOCK: pb.SLOW_CONSUMER_BLOCK,
    SlowConsumer.DROP_OLDEST: pb.SLOW_CONSUMER_DROP_OLDEST,
    SlowConsumer.DROP_NEWEST: pb.SLOW_CONSUMER_DROP_NEWEST,
    SlowConsumer.DISCONNECT: pb.SLOW_CONSUMER_DISCONNECT,
}
_SLOW_OF = {wire: policy for policy, wire in _SLOW.items()}


def encode_greeting(greeting: Greeting) -> bytes:
    limits = greeting.limits
    hello = pb.Hello(
        protocol=PROTOCOL,
        role=_ROLES[greeting.role],
        id=greeting.id,
        incarnation=greeting.hello.incarnation,
        peer_incarnation=greeting.hello.peer_incarnation,
        received=greeting.hello.received,
        credit=greeting.hello.credit,
        overlay=greeting.overlay,
        slow_consumer=_SLOW[greeting.slow_consumer],
        limits=pb.Limits(
            max_event_bytes=limits.max_event_bytes,
            max_batch_events=limits.max_batch_events,
            max_frame_bytes=limits.max_frame_bytes,
        ),
    )
    return pb.Packet(hello=hello).SerializeToString()


def encode_frame(frame: Frame[Message], *, schemas: bool = False) -> bytes:
    """The bytes of a frame; `schemas` lets every subscription carry its event type (clients want that)."""
    wire = pb.Frame(
        sequence=frame.sequence,
        received=frame.received,
        credit=frame.credit,
        probe=frame.probe,
        dropped=frame.dropped,
    )
    for message in frame.messages:
        _ENCODERS[type(message)](wire.messages.add(), message)
        if schemas and isinstance(message, Subscribe):
            _fill_event_type(wire.messages[-1].subscribe.event_type, message.filter.event_type)
    return pb.Packet(frame=wire).SerializeToString()


def encode_goodbye(goodbye: Goodbye) -> bytes:
    return pb.Packet(goodbye=pb.Goodbye(status=goodbye.status, reason=goodbye.reason)).SerializeToString()


def decode_packet(data: bytes) -> Greeting | Frame[WireMessage] | Goodbye:
    """A packet from a peer. `MalformedPacketError` for anything else."""
    try:
        packet = pb.Packet.FromString(data)
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no packet of {SERVICE}: {error}") from None
    kind = packet.WhichOneof("kind")
    if kind == "frame":
        frame = packet.frame
        head = (frame.sequence, frame.received, frame.credit)
        return Frame(*head, tuple(frame.messages), frame.probe, frame.dropped)
    if kind == "hello":
        return _decode_greeting(packet.hello)
    if kind == "goodbye":
        return Goodbye(packet.goodbye.status, packet.goodbye.reason)
    raise MalformedPacketError("an empty packet: expected a hello, a frame or a goodbye")


def _decode_greeting(hello: pb.Hello) -> Greeting:
    if hello.protocol != PROTOCOL:
        raise MalformedPacketError(f"hello with protocol {hello.protocol}: expected {PROTOCOL}")
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
    return Greeting(
        role,
        hello.id,
        Hello(hello.incarnation, hello.peer_incarnation, hello.received, hello.credit),
        hello.overlay,
        slow_consumer,
        limits,
    )


# --- event types and values -----------------------------------------------------------------------

_KINDS = {
    Kind.INT64: pb.KIND_INT64,
    Kind.FLOAT64: pb.KIND_FLOAT64,
    Kind.STRING: pb.KIND_STRING,
    Kind.BOOL: pb.KIND_BOOL,
    Kind.TIMESTAMP: pb.KIND_TIMESTAMP,
}
_KIND_OF = {wire: kind for kind, wire in _KINDS.items()}


def encode_event_type(event_type: EventType) -> bytes:
    wire = pb.EventType()
    _fill_event_type(wire, event_type)
    return wire.SerializeToString()


def decode_event_type(data: bytes) -> EventType:
    """The event type in the answer to Describe. `MalformedPacketError` or `EventTypeError`."""
    try:
        return _decode_event_type(pb.EventType.FromString(data))
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no event type: {error}") from None


def _fill_event_type(wire: pb.EventType, event_type: EventType) -> None:
    wire.name = event_type.name
    for name, kind in event_type.attributes.items():
        wire.attributes.add(name=name, kind=_KINDS[kind])


def _decode_event_type(wire: pb.EventType) -> EventType:
    attributes: dict[str, str | Kind] = {}
    for attribute in wire.attributes:
        kind = _KIND_OF.get(attribute.kind)
        if kind is None:
            raise EventTypeError(
                f"event type {wire.name!r}, attribute {attribute.name!r}: kind number {attribute.kind}, "
                f"expected one of {', '.join(Kind)}"
            )
        if attribute.name in attributes:
            raise EventTypeError(f"event type {wire.name!r}: attribute {attribute.name!r} is declared twice")
        attributes[attribute.name] = kind
    return EventType(wire.name, attributes)


def _fill_values(wire: Mapping[str, pb.Value], values: Mapping[str, Scalar]) -> None:
    for name, value in values.items():
        slot = wire[name]
        if isinstance(value, Motion):
            slot.motion.value, slot.motion.rate, slot.motion.since_ns = (
                value.value,
                value.rate,
                value.since_ns,
            )
        elif isinstance(value, bool):
            slot.bool = value
        elif isinstance(value, int):
            slot.int64 = value
        elif isinstance(value, float):
            slot.float64 = value
        elif isinstance(value, str):
            slot.string = value
        else:
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            slot.timestamp = (moment - _EPOCH) // _MICROSECOND


def _decode_values(wire: Mapping[str, pb.Value]) -> dict[str, Scalar]:
    """The values by variable, in the order of their names: a map has none on the wire."""
    values: dict[str, Scalar] = {}
    for name in sorted(wire):
        kind = wire[name].WhichOneof("kind")
        if kind is None:
            raise FilterError(f"variable ${name} has no value: expected a number, a string, a bool or a time")
        if kind == "motion":
            moving = wire[name].motion
            values[name] = cast("Scalar", Motion(moving.value, moving.rate, moving.since_ns))
        elif kind == "timestamp":
            try:
                values[name] = _EPOCH + wire[name].timestamp * _MICROSECOND
            except OverflowError:
                raise FilterError(
                    f"variable ${name}: {wire[name].timestamp} microseconds since 1970, "
                    "expected a time in the years 1 to 9999"
                ) from None
        else:
            values[name] = getattr(wire[name], kind)
    return values


# --- events ---------------------------------------------------------------------------------------


def _fill_events(wire: pb.Events, batch: EventBatch) -> None:
    wire.type_name = batch.event_type.name
    wire.publisher = batch.publisher
    wire.first_sequence = batch.first_sequence
    if batch.sequence_offsets is not None:
        wire.sequence_offsets = batch.sequence_offsets.astype("<u4", copy=False).tobytes()
    wire.ingress_ns = batch.ingress_ns
    wire.count = len(batch)
    wire.record_batch = batch.serialized()


def _decode_events(wire: pb.Events, lookup: TypeLookup, *, checked: bool) -> EventBatch:
    event_type = _known_type(wire.type_name, lookup)
    offsets = _uint32(wire.sequence_offsets, "sequence_offsets") if wire.sequence_offsets else None
    batch = EventBatch.deserialize(
        event_type,
        wire.record_batch,
        publisher=wire.publisher,
        first_sequence=wire.first_sequence,
        sequence_offsets=offsets,
        ingress_ns=wire.ingress_ns,
        checked=checked,
    )
    if len(batch) != wire.count:
        raise EventError(f"{event_type.name}: a batch of {len(batch)} events says that it has {wire.count}")
    if wire.first_sequence > 2**62:
        raise EventError(f"{event_type.name}: first sequence {wire.first_sequence}, expected at most 2**62")
    return batch


def _uint32(data: bytes, name: str) -> npt.NDArray[np.uint32]:
    if len(data) % 4:
        raise EventError(f"{name} has {len(data)} bytes: expected a multiple of 4")
    return np.frombuffer(data, dtype="<u4")


def _known_type(name: str, lookup: TypeLookup) -> EventType:
    event_type = lookup(name)
    if event_type is None:
        raise _UnknownTypeError(name)
    return event_type


class _UnknownTypeError(CoveyError):
    pass


# --- messages: one encoder and one decoder each ---------------------------------------------------


def _encode_advertise(wire: pb.Message, m: Advertise) -> None:
    wire.advertise.epoch = m.epoch
    _fill_event_type(wire.advertise.event_type, m.event_type)
    wire.advertise.filter = "" if m.filter is None else str(m.filter)
    wire.advertise.report_listeners = m.report_listeners


def _encode_unadvertise(wire: pb.Message, m: Unadvertise) -> None:
    wire.unadvertise.epoch = m.epoch
    wire.unadvertise.type_name = m.type_name


def _encode_subscribe(wire: pb.Message, m: Subscribe) -> None:
    subscribe = wire.subscribe
    subscribe.epoch = m.epoch
    subscribe.subscription_id = m.subscription_id
    subscribe.type_name = m.filter.event_type.name
    subscribe.filter = str(m.filter)
    _fill_values(subscribe.values, m.values)


def _encode_unsubscribe(wire: pb.Message, m: Unsubscribe) -> None:
    wire.unsubscribe.epoch = m.epoch
    wire.unsubscribe.subscription_id = m.subscription_id


def _encode_update(wire: pb.Message, m: Update) -> None:
    wire.update.epoch = m.epoch
    wire.update.subscription_id = m.subscription_id
    wire.update.since_ns = m.since_ns
    _fill_values(wire.update.values, m.values)


def _encode_acknowledge(wire: pb.Message, m: Acknowledge) -> None:
    wire.acknowledge.epoch = m.epoch


def _encode_listeners_report(wire: pb.Message, m: ListenersReport) -> None:
    wire.listeners_report.type_name = m.type_name
    wire.listeners_report.present = m.present


def _encode_sync_begin(wire: pb.Message, m: SyncBegin) -> None:
    wire.sync_begin.SetInParent()


def _encode_sync_end(wire: pb.Message, m: SyncEnd) -> None:
    wire.sync_end.epoch = m.epoch


def _encode_publish(wire: pb.Message, m: Publish) -> None:
    _fill_events(wire.publish.events, m.batch)
    wire.publish.replayed = m.replayed


def _encode_deliver(wire: pb.Message, m: Deliver) -> None:
    deliver = wire.deliver
    _fill_events(deliver.events, m.batch)
    deliver.epoch = m.epoch
    deliver.replayed = m.replayed
    ids = _ids_of_each(m)
    if ids is None:
        ids = m.ids
        deliver.offsets = m.offsets.astype("<u4").tobytes()
    deliver.ids = ids.astype("<u4").tobytes()


def _ids_of_each(m: Deliver) -> npt.NDArray[np.int64] | None:
    """The ids of each event: mostly all have the same, which are written once. None where they differ."""
    count = len(m.batch)
    if count == 1:
        return m.ids
    each = len(m.ids) // count if count else 0
    if count and each * count == len(m.ids) and np.array_equal(m.offsets, np.arange(count + 1) * each):
        rows = m.ids.reshape(count, each)
        if (rows == rows[0]).all():
            first: npt.NDArray[np.int64] = rows[0]
            return first
    return None


def _encode_refuse(wire: pb.Message, m: Refuse) -> None:
    refuse = wire.refuse
    refuse.epoch = m.epoch
    refuse.status = m.status
    refuse.reason = m.reason
    refuse.subscription_id = m.subscription_id
    refuse.type_name = m.type_name
    refuse.first_sequence = m.first_sequence
    refuse.count = m.count


def _decode_advertise(wire: pb.Message, lookup: TypeLookup) -> Advertise:
    advertise = wire.advertise
    event_type = _decode_event_type(advertise.event_type)
    filter = parse(advertise.filter, event_type) if advertise.filter else None
    return Advertise(advertise.epoch, event_type, filter, advertise.report_listeners)


def _decode_subscribe(wire: pb.Message, lookup: TypeLookup) -> Subscribe:
    subscribe = wire.subscribe
    if subscribe.HasField("event_type"):
        event_type = _decode_event_type(subscribe.event_type)
    else:
        event_type = _known_type(subscribe.type_name, lookup)
    if event_type.name != subscribe.type_name:
        raise EventTypeError(
            f"a subscription to {subscribe.type_name!r} carries the schema of {event_type.name!r}: "
            "expected one name"
        )
    if not 0 < subscribe.subscription_id < 2**32:
        raise FilterError(f"subscription id {subscribe.subscription_id}: expected 1 to 2**32 - 1")
    filter = parse(subscribe.filter, event_type)
    values = check_values(filter, _decode_values(subscribe.values))
    return Subscribe(subscribe.epoch, subscribe.subscription_id, filter, values)


def _decode_deliver(wire: pb.Message, lookup: TypeLookup) -> Deliver:
    deliver = wire.deliver
    batch = _decode_events(deliver.events, lookup, checked=True)
    ids = _uint32(deliver.ids, "ids").astype(np.int64)
    if deliver.offsets:
        offsets = _uint32(deliver.offsets, "offsets").astype(np.int64)
        if (
            len(offsets) != len(batch) + 1
            or offsets[0] != 0
            or offsets[-1] != len(ids)
            or (np.diff(offsets) < 0).any()
        ):
            raise EventError(
                f"offsets of {len(batch)} events: expected {len(batch) + 1} rising from 0 to {len(ids)}"
            )
    else:
        offsets = np.arange(len(batch) + 1, dtype=np.int64) * len(ids)
        ids = np.tile(ids, len(batch))
    return Deliver(batch, offsets, ids, deliver.epoch, deliver.replayed)


_ENCODERS: dict[type, Callable[..., None]] = {
    Advertise: _encode_advertise,
    Unadvertise: _encode_unadvertise,
    Subscribe: _encode_subscribe,
    Unsubscribe: _encode_unsubscribe,
    Update: _encode_update,
    Acknowledge: _encode_acknowledge,
    ListenersReport: _encode_listeners_report,
    SyncBegin: _encode_sync_begin,
    SyncEnd: _encode_sync_end,
    Publish: _encode_publish,
    Deliver: _encode_deliver,
    Refuse: _encode_refuse,
}

_DECODERS: dict[str, Callable[[pb.Message, TypeLookup], Message]] = {
    "advertise": _decode_advertise,
    "unadvertise": lambda w, _: Unadvertise(w.unadvertise.epoch, w.unadvertise.type_name),
    "subscribe": _decode_subscribe,
    "unsubscribe": lambda w, _: Unsubscribe(w.unsubscribe.epoch, w.unsubscribe.subscription_id),
    "update": lambda w, _: Update(
        w.update.epoch, w.update.subscription_id, _decode_values(w.update.values), w.update.since_ns
    ),
    "acknowledge": lambda w, _: Acknowledge(w.acknowledge.epoch),
    "listeners_report": lambda w, _: ListenersReport(
        w.listeners_report.type_name, w.listeners_report.present
    ),
    "sync_begin": lambda w, _: SyncBegin(),
    "sync_end": lambda w, _: SyncEnd(w.sync_end.epoch),
    "deliver": _decode_deliver,
    "refuse": lambda w, _: Refuse(
        w.refuse.epoch,
        w.refuse.status,
        w.refuse.reason,
        w.refuse.subscription_id,
        w.refuse.type_name,
        w.refuse.first_sequence,
        w.refuse.count,
    ),
}


def _decode_publish(wire: pb.Message, lookup: TypeLookup, *, checked: bool) -> Publish:
    return Publish(_decode_events(wire.publish.events, lookup, checked=checked), wire.publish.replayed)


def decode_message(wire: pb.Message, lookup: TypeLookup, *, from_broker: bool = False) -> Message:
    """A core message. Events from a broker were checked where they entered the overlay. Raises
    `MessageError`, with the answer to send, for one that does not make sense here."""
    kind = wire.WhichOneof("kind")
    if kind is None:
        raise MessageError(
            Refuse(0, "INVALID_ARGUMENT", "a message of no known kind: expected one of broker.proto's")
        )
    try:
        if kind == "publish":
            return _decode_publish(wire, lookup, checked=from_broker)
        return _DECODERS[kind](wire, lookup)
    except _UnknownTypeError as unknown:
        name = unknown.args[0]
        raise MessageError(
            _refuse(wire, kind, "NOT_FOUND", f"event type {name!r} is not known here")
        ) from None
    except CoveyError as error:
        raise MessageError(_refuse(wire, kind, "INVALID_ARGUMENT", str(error))) from None


def event_bytes(wire: pb.Message) -> int:
    """What `size_of` would say of the events of a message that could not be decoded."""
    kind = wire.WhichOneof("kind")
    if kind == "publish":
        return FIXED_BYTES + len(wire.publish.events.record_batch)
    if kind == "deliver":
        deliver = wire.deliver
        size = FIXED_BYTES + len(deliver.events.record_batch)
        if deliver.offsets:
            return size + len(deliver.offsets) + len(deliver.ids)
        count = deliver.events.count  # the ids stand for each of them
        return size + 4 * (count + 1) + count * len(deliver.ids)
    return 0


def _refuse(wire: pb.Message, kind: str, status: str, reason: str) -> Refuse:
    body = getattr(wire, kind)
    if kind in ("publish", "deliver"):
        events = body.events
        return Refuse(0, status, reason, 0, events.type_name, events.first_sequence, events.count)
    type_name = body.event_type.name if kind == "advertise" else getattr(body, "type_name", "")
    return Refuse(body.epoch, status, reason, getattr(body, "subscription_id", 0), type_name)

"""Core messages on the wire (proto/broker.proto), one encoder and one decoder each.

Invariants: decoding an encoded message gives an equal one; the bytes of a batch pass through unchanged; a
message that makes no sense raises `MessageError`, never anything else.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from covey.matcher import EventBatch, parse
from covey.matcher.errors import CoveyError, EventError, EventTypeError, FilterError
from covey.matcher.events.packed_columns import PackedColumns
from covey.matcher.events.trace_contexts import present
from covey.matcher.expressions.expression import Scalar
from covey.overlay.core.link.size import FIXED_BYTES
from covey.overlay.core.messages import (
    MAX_VALIDITY_NS,
    Advertise,
    Answered,
    Deliver,
    Expired,
    Gap,
    Hold,
    ListenersReport,
    Message,
    MoveStep,
    Notice,
    Publish,
    Refuse,
    SessionMove,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import Motion, check_values
from covey.overlay.transport.wire_values import (
    WIRE,
    MessageError,
    TypeLookup,
    UnknownTypeError,
    bytes_of_results,
    contexts_of,
    decode_event_type,
    event_type_of,
    fill_contexts,
    fill_event_type,
    fill_results,
    results_of,
    schema_bytes,
    schema_of,
    traceparent_of,
)
from covey.proto import broker_pb2 as pb

WireMessage = pb.Message
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UINT32 = struct.Struct("<I")
_UINT32S = np.dtype("<u4")
_OF_ONE = np.array((0, 1))
_OF_ONE.flags.writeable = False
_STEPS = {step.value for step in MoveStep}
_ALIKE: dict[str, Any] = {
    "unadvertise": Unadvertise,
    "unsubscribe": Unsubscribe,
    "hold": Hold,
    "gap": Gap,
    "listeners_report": ListenersReport,
    "answered": Answered,
    "expired": Expired,
    "notice": Notice,
    "sync_begin": SyncBegin,
    "sync_end": SyncEnd,
    "refuse": Refuse,
}
"""Messages with the same fields on the wire."""
_MOVE_ALIKE = [
    field.name
    for field in fields(SessionMove)
    if field.name not in ("step", "offsets", "subscriptions", "records")
]
_PUBLISHER_CHARACTERS = 400
"""Of a client's events (ids have at most 200), since no credit or queue counts them."""
SCHEMA_BYTES = 64 << 10
"""Of a client's event type, since types are bounded only in number."""
_COUNTED_BYTES = 128
_OF_CLIENTS = (
    *("advertise", "unadvertise", "subscribe", "unsubscribe", "update", "publish", "hold"),
    *("sync_begin", "sync_end"),
)


def fill_values(wire: Mapping[str, pb.Value], values: Mapping[str, Scalar]) -> None:
    for name, value in values.items():
        slot = wire[name]
        if value.__class__ is float:  # nearly always
            slot.float64 = value
        elif value.__class__ is int:
            slot.int64 = value
        elif isinstance(value, Motion):
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


def values_of(wire: Mapping[str, pb.Value]) -> dict[str, Scalar]:
    """Ordered by variable name, since a map on the wire has no order."""
    values: dict[str, Scalar] = {}
    for name in sorted(wire):
        value = wire[name]
        kind = value.WhichOneof("kind")
        if kind is None:
            raise FilterError(f"variable ${name} has no value: expected a number, a string, a bool or a time")
        if kind == "motion":
            moving = value.motion
            values[name] = cast("Scalar", Motion(moving.value, moving.rate, moving.since_ns))
        elif kind == "timestamp":
            try:
                values[name] = _EPOCH + value.timestamp * _MICROSECOND
            except OverflowError:
                raise FilterError(
                    f"variable ${name}: {value.timestamp} microseconds since 1970, "
                    "expected a time in the years 1 to 9999"
                ) from None
        else:
            values[name] = getattr(value, kind)
    return values


def encode_values(values: Mapping[str, Scalar]) -> bytes:
    wire = pb.Update()
    fill_values(wire.values, values)
    data: bytes = wire.SerializeToString(deterministic=True)
    return data


def decode_values(data: bytes) -> dict[str, Scalar]:
    return values_of(pb.Update.FromString(data).values)


def fill_events(wire: pb.Events, batch: EventBatch) -> None:
    event_type, columns = batch.event_type, batch.columns
    wire.type_name = event_type.name
    wire.publisher = batch.publisher
    wire.first_sequence = batch.first_sequence
    if batch.sequence_offsets is not None:
        wire.sequence_offsets = batch.sequence_offsets.astype("<u4", copy=False).tobytes()
    wire.ingress_ns = batch.ingress_ns
    wire.count = batch.count
    if columns is None:
        wire.record_batch = batch.serialized()
    else:
        wire.packed_columns = columns.data or columns.packed()
    wire.schema = event_type.cache.get(WIRE) or schema_bytes(event_type)
    if batch.results is not None:
        fill_results(wire, batch.results)
    if batch.contexts:
        fill_contexts(wire, present(batch.contexts, batch.sequences()))


def events_of(wire: pb.Events, lookup: TypeLookup, *, checked: bool) -> EventBatch:
    """`checked`: by a broker. Only such a batch may have results."""
    event_type, schema = lookup(wire.type_name), wire.schema
    if event_type is None:
        raise UnknownTypeError(wire.type_name)
    if schema and schema != event_type.cache.get(WIRE):
        if len(schema) > SCHEMA_BYTES and not checked:
            raise EventError(
                f"{event_type.name}: a schema of {len(schema)} bytes: expected at most {SCHEMA_BYTES}"
            )
        event_type = schema_of(schema, event_type)
    publisher = sys.intern(wire.publisher)  # or each single event that waits would have its own
    if len(publisher) > _PUBLISHER_CHARACTERS and not checked:
        most = f"expected at most {_PUBLISHER_CHARACTERS}"
        raise EventError(f"{event_type.name}: a publisher of {len(publisher)} characters: {most}")
    packed, count = wire.packed_columns, wire.count
    if packed:
        if wire.record_batch:
            raise EventError(f"{event_type.name}: packed columns and a record batch: expected one of them")
        batch = EventBatch(event_type, PackedColumns.unpack(event_type, packed, count, checked=checked))
    else:
        batch = EventBatch.deserialize(event_type, wire.record_batch, checked=checked)
        if batch.count != count:
            raise EventError(f"{event_type.name}: a batch of {len(batch)} events says that it has {count}")
    batch.publisher, batch.first_sequence, batch.ingress_ns = publisher, wire.first_sequence, wire.ingress_ns
    if batch.first_sequence > 2**62:
        raise EventError(f"{event_type.name}: first sequence {wire.first_sequence}, expected at most 2**62")
    if wire.sequence_offsets:
        offsets = batch.sequence_offsets = uint32s(wire.sequence_offsets, "sequence_offsets")
        if len(offsets) != count:
            raise EventError(f"{event_type.name}: {len(offsets)} sequence_offsets, expected {count}")
    if wire.results:
        if not checked:
            raise EventError(f"{event_type.name}: results of operators from a client, expected none")
        batch.results = results_of(wire.results, batch.count)
    if wire.contexts:
        batch.contexts = contexts_of(wire)
    return batch


def bytes_of_events(wire: pb.Events) -> int:
    """As `EventBatch.nbytes`, for events that cannot be decoded."""
    return (len(wire.packed_columns) or len(wire.record_batch)) + bytes_of_results(wire.results)


def uint32s(data: bytes, name: str) -> npt.NDArray[np.uint32]:
    if len(data) % 4:
        raise EventError(f"{name} has {len(data)} bytes: expected a multiple of 4")
    return np.frombuffer(data, _UINT32S)


def _encode_advertise(wire: pb.Message, m: Advertise) -> None:
    wire.advertise.epoch = m.epoch
    fill_event_type(wire.advertise.event_type, m.event_type)
    wire.advertise.filter = "" if m.filter is None else str(m.filter)
    wire.advertise.report_listeners = m.report_listeners


def _encode_subscribe(wire: pb.Message, m: Subscribe) -> None:
    subscribe = wire.subscribe
    subscribe.epoch = m.epoch
    subscribe.subscription_id = m.subscription_id
    subscribe.type_name = m.filter.event_type.name
    subscribe.filter = str(m.filter)
    subscribe.for_views = m.for_views
    fill_values(subscribe.values, m.values)
    subscribe.valid_for_ns = m.valid_for_ns


def _encode_update(wire: pb.Message, m: Update) -> None:
    update = wire.update
    update.epoch = m.epoch
    update.subscription_id = m.subscription_id
    update.since_ns = m.since_ns
    update.traceparent = m.traceparent
    update.valid_for_ns = m.valid_for_ns
    update.for_views = m.for_views
    update.after_epoch = m.after_epoch
    fill_values(update.values, m.values)


def _encode_publish(wire: pb.Message, m: Publish) -> None:
    publish = wire.publish
    fill_events(publish.events, m.batch)
    publish.replayed = m.replayed
    publish.for_views = m.for_views
    publish.live = m.live


def _encode_deliver(wire: pb.Message, m: Deliver) -> None:
    deliver = wire.deliver
    fill_events(deliver.events, m.batch)
    deliver.epoch = m.epoch
    deliver.replayed = m.replayed
    deliver.for_views = m.for_views
    deliver.live = m.live
    ids = m.ids if m.batch.count == 1 else _ids_of_each(m)
    if ids is None:
        ids = m.ids
        deliver.offsets = m.offsets.astype("<u4").tobytes()
    deliver.ids = _UINT32.pack(ids[0]) if ids.size == 1 else ids.astype("<u4").tobytes()


def _ids_of_each(m: Deliver) -> npt.NDArray[np.int64] | None:
    """The ids that all events share, as is usual; None if they differ."""
    count = m.batch.count
    each = len(m.ids) // count if count else 0
    if (
        count
        and each * count == len(m.ids)
        and m.offsets[1] == each
        and np.array_equal(m.offsets, np.arange(count + 1) * each)
    ):
        rows = m.ids.reshape(count, each)
        if (rows == rows[0]).all():
            first: npt.NDArray[np.int64] = rows[0]
            return first
    return None


def _encode_session_move(wire: pb.Message, m: SessionMove) -> None:
    move = wire.session_move
    for name in _MOVE_ALIKE:
        setattr(move, name, getattr(m, name))
    move.step = cast("pb.SessionMove.Step", m.step.value)
    move.offsets.update(m.offsets)
    inner = pb.Message()
    for subscribe in m.subscriptions:
        _encode_subscribe(inner, subscribe)
        fill_event_type(inner.subscribe.event_type, subscribe.filter.event_type)
        move.subscriptions.append(inner.subscribe)
        inner.Clear()
    for deliver in m.records:
        _encode_deliver(inner, deliver)
        move.records.append(inner.deliver)
        inner.Clear()


def _decode_advertise(wire: pb.Message, lookup: TypeLookup) -> Advertise:
    advertise = wire.advertise
    event_type = event_type_of(advertise.event_type)
    filter = parse(advertise.filter, event_type) if advertise.filter else None
    return Advertise(advertise.epoch, event_type, filter, advertise.report_listeners)


def _decode_subscribe(wire: pb.Message, lookup: TypeLookup) -> Subscribe:
    subscribe = wire.subscribe
    if subscribe.HasField("event_type"):
        event_type = event_type_of(subscribe.event_type)
    else:
        known = lookup(subscribe.type_name)
        if known is None:
            raise UnknownTypeError(subscribe.type_name)
        event_type = known
    if event_type.name != subscribe.type_name:
        raise EventTypeError(
            f"a subscription to {subscribe.type_name!r} carries the schema of {event_type.name!r}: "
            "expected one name"
        )
    if not 0 < subscribe.subscription_id < 2**32:
        raise FilterError(f"subscription id {subscribe.subscription_id}: expected 1 to 2**32 - 1")
    # A client has checked its operators; a broker without one of them passes events on.
    filter = parse(subscribe.filter, event_type, unknown_operators=True)
    values = check_values(filter, values_of(subscribe.values))
    valid_for_ns, for_views = _validity_of(subscribe.valid_for_ns), subscribe.for_views
    return Subscribe(subscribe.epoch, subscribe.subscription_id, filter, values, valid_for_ns, for_views)


def _decode_update(wire: pb.Message, lookup: TypeLookup) -> Update:
    update = wire.update
    return Update(
        update.epoch,
        update.subscription_id,
        values_of(update.values),
        update.since_ns,
        traceparent_of(update.traceparent) if update.traceparent else "",
        _validity_of(update.valid_for_ns) if update.valid_for_ns else 0,
        update.for_views,
        update.after_epoch,
    )


@lru_cache(1024)
def _only_id(data: bytes) -> npt.NDArray[np.int64]:
    """The id of a Deliver that has one. Shared between messages, so not writable."""
    ids = np.frombuffer(data, _UINT32S).astype(np.int64)
    ids.flags.writeable = False
    return ids


def _validity_of(valid_for_ns: int) -> int:
    if valid_for_ns > MAX_VALIDITY_NS:
        raise FilterError(
            f"a validity period of {valid_for_ns} ns: expected at most {MAX_VALIDITY_NS} ns, ten years"
        )
    return valid_for_ns


def _decode_deliver(wire: pb.Message, lookup: TypeLookup) -> Deliver:
    deliver = wire.deliver
    batch = events_of(deliver.events, lookup, checked=True)
    data = deliver.ids
    ids = _only_id(data) if len(data) == 4 else uint32s(data, "ids").astype(np.int64)
    if deliver.offsets:
        offsets = uint32s(deliver.offsets, "offsets").astype(np.int64)
        if (
            len(offsets) != len(batch) + 1
            or offsets[0] != 0
            or offsets[-1] != len(ids)
            or (np.diff(offsets) < 0).any()
        ):
            raise EventError(
                f"offsets of {len(batch)} events: expected {len(batch) + 1} rising from 0 to {len(ids)}"
            )
    elif batch.count == 1:
        offsets = _OF_ONE if ids.size == 1 else np.array((0, ids.size))
    else:
        offsets = np.arange(batch.count + 1, dtype=np.int64) * ids.size
        ids = np.tile(ids, batch.count)
    replayed, for_views = deliver.replayed, deliver.for_views
    return Deliver(batch, offsets, ids, deliver.epoch, replayed, for_views=for_views, live=deliver.live)


def _decode_session_move(wire: pb.Message, lookup: TypeLookup) -> SessionMove:
    move = wire.session_move
    if move.step not in _STEPS:
        raise EventError(f"a move of a session with step {move.step}: expected one of broker.proto's")
    return SessionMove(
        step=MoveStep(move.step),
        offsets=dict(move.offsets),
        subscriptions=tuple(
            _decode_subscribe(pb.Message(subscribe=each), lookup) for each in move.subscriptions
        ),
        records=tuple(map(_decode_record, move.records)),
        **{name: getattr(move, name) for name in _MOVE_ALIKE},
    )


def _decode_record(deliver: pb.Deliver) -> Deliver:
    """Decodes by the record's own schema, since a broker on the way may not have the type."""
    schema = decode_event_type(deliver.events.schema)
    return _decode_deliver(pb.Message(deliver=deliver), {schema.name: schema}.get)


ENCODERS: dict[type, Callable[..., None]] = {
    Advertise: _encode_advertise,
    Subscribe: _encode_subscribe,
    Update: _encode_update,
    SessionMove: _encode_session_move,
    Publish: _encode_publish,
    Deliver: _encode_deliver,
}

_DECODERS: dict[str, Callable[[pb.Message, TypeLookup], Message]] = {
    "advertise": _decode_advertise,
    "subscribe": _decode_subscribe,
    "update": _decode_update,
    "session_move": _decode_session_move,
    "deliver": _decode_deliver,
}


def _add_alike(kind: str, message: Any) -> None:
    names = tuple(field.name for field in fields(message))

    def encode(wire: pb.Message, m: Message) -> None:
        body = getattr(wire, kind)
        body.SetInParent()
        body.MergeFrom(type(body)(**{name: getattr(m, name) for name in names}))

    def decode(wire: pb.Message, lookup: TypeLookup) -> Any:
        values = (getattr(getattr(wire, kind), name) for name in names)
        return message(*(value if isinstance(value, int | str) else tuple(value) for value in values))

    ENCODERS[message], _DECODERS[kind] = encode, decode


for _kind, _message in _ALIKE.items():
    _add_alike(_kind, _message)


def _check_from_client(wire: pb.Message, kind: str | None, filter_bytes: int) -> None:
    """`MessageError`, before decoding, for kinds that only brokers send, filters and texts over
    `filter_bytes`, and schemas over `SCHEMA_BYTES`. A Deliver of 1 MB may name as many subscriptions for each
    of thousands of events."""
    if kind in ("subscribe", "update") and (body := getattr(wire, kind)).ByteSize() > filter_bytes:
        size = sum(len(value.string.encode()) for value in body.values.values())
        if size > filter_bytes:
            reason = f"values with {size} bytes of text: expected at most {filter_bytes} (max_filter_bytes)"
            raise MessageError(_refuse(wire, kind, "RESOURCE_EXHAUSTED", reason))
    if kind in ("subscribe", "advertise"):
        body = getattr(wire, kind)
        size = body.event_type.ByteSize()
        if size > SCHEMA_BYTES:
            reason = f"an event type of {size} bytes: expected at most {SCHEMA_BYTES}"
            raise MessageError(Refuse(body.epoch, "RESOURCE_EXHAUSTED", reason, _subject(body)))
        size = len(body.filter) if body.filter.isascii() else len(body.filter.encode())
        if size > filter_bytes:
            name = body.type_name if kind == "subscribe" else body.event_type.name
            reason = f"a filter on {name!r} has {size} bytes: expected at most {filter_bytes}"
            raise MessageError(_refuse(wire, kind, "RESOURCE_EXHAUSTED", f"{reason} (max_filter_bytes)"))
    if kind is not None and kind not in _OF_CLIENTS:
        reason = f"a message of kind {kind} from a client: expected one of {', '.join(_OF_CLIENTS)}"
        raise MessageError(Refuse(getattr(getattr(wire, kind), "epoch", 0), "INVALID_ARGUMENT", reason))


def decode_message(
    wire: pb.Message, lookup: TypeLookup, *, from_broker: bool = False, filter_bytes: int | None = None
) -> Message:
    """`filter_bytes` is set for clients, which may send only some kinds. Events of brokers were checked where
    they entered. `MessageError`, with the answer to send, for a message that makes no sense here."""
    kind = wire.WhichOneof("kind")
    if filter_bytes is not None and kind != "publish":
        _check_from_client(wire, kind, filter_bytes)
    if kind is None:
        raise MessageError(
            Refuse(0, "INVALID_ARGUMENT", "a message of no known kind: expected one of broker.proto's")
        )
    try:
        if kind == "publish":
            publish = wire.publish
            batch = events_of(publish.events, lookup, checked=from_broker)
            return Publish(batch, publish.replayed, for_views=publish.for_views, live=publish.live)
        return _DECODERS[kind](wire, lookup)
    except UnknownTypeError as unknown:
        name = unknown.args[0]
        raise MessageError(
            _refuse(wire, kind, "NOT_FOUND", f"event type {name!r} is not known here")
        ) from None
    except CoveyError as error:
        raise MessageError(_refuse(wire, kind, "INVALID_ARGUMENT", str(error))) from None


def weight(wire: pb.Message) -> int:
    """As how many messages it counts in a client's turn: a filter takes 1 ms per KiB, a subscription 80
    us."""
    kind = wire.WhichOneof("kind")
    if kind in ("subscribe", "advertise"):
        return 1 + len(getattr(wire, kind).filter) // _COUNTED_BYTES
    return 1


def event_bytes(wire: pb.Message) -> int:
    """As `size_of`, for the events of a message that could not be decoded."""
    kind = wire.WhichOneof("kind")
    if kind == "publish":
        return FIXED_BYTES + bytes_of_events(wire.publish.events)
    if kind == "deliver":
        deliver = wire.deliver
        size = FIXED_BYTES + bytes_of_events(deliver.events)
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
    return Refuse(getattr(body, "epoch", 0), status, reason, _subject(body), type_name)


def _subject(body: Any) -> int:
    return int(getattr(body, "subscription_id", 0))

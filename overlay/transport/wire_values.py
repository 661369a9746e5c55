"""Event types, values of variables and batches of events on the wire.

Invariant: the bytes of a batch pass through unchanged; what cannot be decoded raises a `CoveyError`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError, EventTypeError, FilterError
from covey.matcher.events.event_type import Kind
from covey.matcher.events.trace_contexts import present
from covey.matcher.expressions.expression import Scalar
from covey.overlay.core.moving.motion import Motion
from covey.overlay.transport.errors import MalformedPacketError, UnknownTypeError
from covey.overlay.transport.wire_contexts import contexts_of, fill_contexts
from covey.overlay.transport.wire_results import bytes_of_results, fill_results, results_of
from covey.proto import broker_pb2 as pb

TypeLookup = Callable[[str], EventType | None]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_KINDS = {
    Kind.INT64: pb.KIND_INT64,
    Kind.FLOAT64: pb.KIND_FLOAT64,
    Kind.STRING: pb.KIND_STRING,
    Kind.BOOL: pb.KIND_BOOL,
    Kind.TIMESTAMP: pb.KIND_TIMESTAMP,
    Kind.STRINGS: pb.KIND_STRINGS,
}
_KIND_OF = {wire: kind for kind, wire in _KINDS.items()}
_WIRE = "wire"
"""The key of a type's bytes in its cache."""
_SCHEMAS, _CACHED_LENGTH = 1024, 16_384
"""How many schemas of events are cached, and the bytes of the longest one."""


def encode_event_type(event_type: EventType) -> bytes:
    wire = pb.EventType()
    fill_event_type(wire, event_type)
    return wire.SerializeToString()


def decode_event_type(data: bytes) -> EventType:
    """The event type in the answer to Describe. `MalformedPacketError` or `EventTypeError`."""
    try:
        return event_type_of(pb.EventType.FromString(data))
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no event type: {error}") from None


def fill_event_type(wire: pb.EventType, event_type: EventType) -> None:
    wire.name = event_type.name
    wire.key = event_type.key or ""
    for name, kind in event_type.attributes.items():
        wire.attributes.add(name=name, kind=_KINDS[kind])


def _schema_bytes(event_type: EventType) -> bytes:
    data: bytes | None = event_type.cache.get(_WIRE)
    if data is None:
        data = event_type.cache[_WIRE] = encode_event_type(event_type)
    return data


@lru_cache(_SCHEMAS)
def _schema_of(data: bytes) -> EventType:
    return decode_event_type(data)


def schema_of(data: bytes, known: EventType) -> EventType:
    """The schema of events of a known type; the known one where there is none."""
    if not data or data == _schema_bytes(known):
        return known
    schema = _schema_of(data) if len(data) <= _CACHED_LENGTH else decode_event_type(data)
    if schema.name != known.name:
        raise EventTypeError(f"events of {known.name!r} with a schema of {schema.name!r}: expected one name")
    return schema


def event_type_of(wire: pb.EventType) -> EventType:
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
    return EventType(wire.name, attributes, wire.key or None)


def fill_values(wire: Mapping[str, pb.Value], values: Mapping[str, Scalar]) -> None:
    for name, value in values.items():
        slot = wire[name]
        if value.__class__ is float:  # nearly always
            slot.float64 = value
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


def encode_values(values: Mapping[str, Scalar]) -> bytes:
    """Values of broker variables, on their own."""
    wire = pb.Update()
    fill_values(wire.values, values)
    data: bytes = wire.SerializeToString(deterministic=True)
    return data


def decode_values(data: bytes) -> dict[str, Scalar]:
    """The inverse of `encode_values`."""
    return values_of(pb.Update.FromString(data).values)


def values_of(wire: Mapping[str, pb.Value]) -> dict[str, Scalar]:
    """The values by variable, in the order of their names: a map has none on the wire."""
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


def fill_events(wire: pb.Events, batch: EventBatch) -> None:
    wire.type_name = batch.event_type.name
    wire.publisher = batch.publisher
    wire.first_sequence = batch.first_sequence
    if batch.sequence_offsets is not None:
        wire.sequence_offsets = batch.sequence_offsets.astype("<u4", copy=False).tobytes()
    wire.ingress_ns = batch.ingress_ns
    wire.count = batch.count
    if batch.columns is None:
        wire.record_batch = batch.serialized()
    else:
        wire.packed_columns = batch.columns.packed()
    wire.schema = _schema_bytes(batch.event_type)
    if batch.results is not None:
        fill_results(wire, batch.results)
    if batch.contexts:
        fill_contexts(wire, present(batch.contexts, batch.sequences()))


def events_of(wire: pb.Events, lookup: TypeLookup, *, checked: bool) -> EventBatch:
    """A batch of a client, or one `checked` by a broker: only that may have results."""
    event_type = schema_of(wire.schema, known_type(wire.type_name, lookup))
    publisher = sys.intern(wire.publisher)  # or each single event that waits would have its own
    offsets = uint32s(wire.sequence_offsets, "sequence_offsets") if wire.sequence_offsets else None
    if wire.packed_columns:
        if wire.record_batch:
            raise EventError(f"{event_type.name}: packed columns and a record batch: expected one of them")
        batch = EventBatch.unpack(
            event_type,
            wire.packed_columns,
            wire.count,
            publisher=publisher,
            first_sequence=wire.first_sequence,
            sequence_offsets=offsets,
            ingress_ns=wire.ingress_ns,
            checked=checked,
        )
    else:
        batch = EventBatch.deserialize(
            event_type,
            wire.record_batch,
            publisher=publisher,
            first_sequence=wire.first_sequence,
            sequence_offsets=offsets,
            ingress_ns=wire.ingress_ns,
            checked=checked,
        )
    if batch.count != wire.count:
        raise EventError(f"{event_type.name}: a batch of {len(batch)} events says that it has {wire.count}")
    if batch.first_sequence > 2**62:
        raise EventError(f"{event_type.name}: first sequence {wire.first_sequence}, expected at most 2**62")
    if wire.results:
        if not checked:
            raise EventError(f"{event_type.name}: results of operators from a client, expected none")
        batch.results = results_of(wire.results, batch.count)
    if wire.contexts:
        batch.contexts = contexts_of(wire)
    return batch


def bytes_of_events(wire: pb.Events) -> int:
    """What `EventBatch.nbytes` would be of events that cannot be decoded."""
    return (len(wire.packed_columns) or len(wire.record_batch)) + bytes_of_results(wire.results)


def uint32s(data: bytes, name: str) -> npt.NDArray[np.uint32]:
    if len(data) % 4:
        raise EventError(f"{name} has {len(data)} bytes: expected a multiple of 4")
    return np.frombuffer(data, dtype="<u4")


def known_type(name: str, lookup: TypeLookup) -> EventType:
    event_type = lookup(name)
    if event_type is None:
        raise UnknownTypeError(name)
    return event_type

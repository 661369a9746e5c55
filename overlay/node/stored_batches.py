"""The records of a durable type as bytes (`proto/storage.proto`): a batch, and who gets what of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.overlay.core.messages import ENDED, KEYS, Interface, Receiver
from covey.overlay.transport.wire_values import (
    event_type_of,
    events_of,
    fill_event_type,
    fill_events,
    uint32s,
)
from covey.proto import storage_pb2 as pb


def encode_stored(batch: EventBatch, receivers: Sequence[Receiver]) -> bytes:
    stored = pb.StoredBatch()
    fill_event_type(stored.event_type, batch.event_type)
    fill_events(stored.events, batch)
    for receiver in receivers:
        wire = stored.receivers.add()
        wire.interface = receiver.interface
        if receiver.rows is None:
            wire.all = True
        else:
            wire.rows = receiver.rows.astype("<u4").tobytes()
        if receiver.offsets is not None and receiver.ids is not None:
            wire.session = True
            wire.offsets = receiver.offsets.astype("<u4").tobytes()
            wire.ids = receiver.ids.astype("<u4").tobytes()
    data: bytes = stored.SerializeToString()
    return data


def decode_stored(data: bytes, only: Interface | None = None) -> tuple[EventBatch | None, list[Receiver]]:
    """A batch and its receivers. With `only` no other receivers, and no batch if it is none of them."""
    stored = pb.StoredBatch.FromString(data)
    receivers = [_receiver(wire) for wire in stored.receivers if only in (None, wire.interface)]
    if only is not None and not receivers:
        return None, []
    event_type = event_type_of(stored.event_type)
    return events_of(stored.events, lambda _: event_type, checked=True), receivers


class PublishedRecords:
    """Decodes records one after the other; the schemas that they have in common once."""

    def __init__(self) -> None:
        self._types: dict[bytes, EventType] = {}

    def decode(self, data: bytes) -> tuple[str, EventBatch] | None:
        """A batch with the receiver that begins with `KEYS` or `ENDED`, None if it has none."""
        stored = pb.StoredBatch.FromString(data)
        name = next((wire.interface for wire in stored.receivers if _is_publisher(wire.interface)), None)
        if name is None:
            return None
        schema = stored.event_type.SerializeToString()
        event_type = self._types.get(schema)
        if event_type is None:
            event_type = self._types[schema] = event_type_of(stored.event_type)
        return name, events_of(stored.events, lambda _: event_type, checked=True)


def _is_publisher(interface: Interface) -> bool:
    return interface.startswith((KEYS, ENDED))


def _receiver(wire: pb.StoredReceiver) -> Receiver:
    rows = None if wire.all else uint32s(wire.rows, "rows").astype(np.int64)
    if not wire.session:
        return Receiver(wire.interface, rows)
    offsets = uint32s(wire.offsets, "offsets").astype(np.int64)
    return Receiver(wire.interface, rows, offsets, uint32s(wire.ids, "ids").astype(np.int64))

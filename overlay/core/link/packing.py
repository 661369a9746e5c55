"""A waiting message with events, packed into the bytes in which it is sent.

    Packed   event_type, publisher   shared with the batch
             data                    packed columns or an Arrow message, as sent; shared
             head                    numbers of `_HEAD`, then `sequence_offsets`, offsets and ids of a Deliver

An event of three attributes takes 220 bytes packed, 1,000 as objects, and 2,000 once matched, since its batch
caches results. Invariant: `message` has the events, numbers and size (`size_of`) of the packed message.
Messages with operator results or trace contexts are not packed: both are shared, and may grow.
"""

from __future__ import annotations

import struct

import numpy as np

from covey.matcher.events.batch import EventBatch
from covey.overlay.core.link.size import FIXED_BYTES, header_bytes
from covey.overlay.core.messages import UNSTORED, Deliver, Publish

_HEAD = struct.Struct("<qqQqIIB")
"""first_sequence, ingress_ns, epoch (clients choose it), offset, events, bytes of offsets and ids, flags"""
_DELIVER, _REPLAYED, _FOR_VIEWS, _LIVE, _ARROW, _OFFSETS = (1 << bit for bit in range(6))
_PACKED_BYTES = 160
"""Bytes besides its contents, measured as the growth of the resident size by 100,000 objects."""


class Packed:
    __slots__ = ("data", "event_type", "head", "publisher")

    def __init__(self, message: Publish | Deliver) -> None:
        batch = message.batch
        self.event_type, self.publisher = batch.event_type, batch.publisher
        self.data = batch.serialized() if batch.columns is None else batch.columns.packed()
        flags = (
            _REPLAYED * message.replayed
            | _FOR_VIEWS * message.for_views
            | _LIVE * message.live
            | _ARROW * (batch.columns is None)
        )
        epoch, tail = 0, b""
        if isinstance(message, Deliver):
            flags, epoch = flags | _DELIVER, message.epoch
            ends = message.offsets if batch.count > 1 else message.offsets[:0]
            tail = ends.astype("<i8").tobytes() + message.ids.astype("<i8").tobytes()
        offsets = b""
        if batch.sequence_offsets is not None:
            flags, offsets = flags | _OFFSETS, batch.sequence_offsets.tobytes()
        numbers = batch.first_sequence, batch.ingress_ns, epoch, message.offset, batch.count, len(tail)
        self.head = b"".join((_HEAD.pack(*numbers, flags), offsets, tail))

    @property
    def held(self) -> int:
        return _PACKED_BYTES + len(self.head) + len(self.data)

    @property
    def size(self) -> int:
        """Equal to `size_of(message)`."""
        tail: int
        *_, events, tail, flags = _HEAD.unpack_from(self.head)
        numbers = tail // 2 + (8 if events == 1 else 0) if flags & _DELIVER else 0
        return FIXED_BYTES + len(self.data) + numbers

    @property
    def header(self) -> int:
        return header_bytes(self.event_type, self.publisher)

    @property
    def events(self) -> int:
        count: int = _HEAD.unpack_from(self.head)[4]
        return count

    @property
    def offset(self) -> int:
        offset: int = _HEAD.unpack_from(self.head)[3]
        return offset

    @property
    def is_stored(self) -> bool:
        return self.offset != UNSTORED

    @property
    def may_go(self) -> bool:
        return not self.is_stored

    @property
    def type_name(self) -> str:
        return self.event_type.name

    @property
    def message(self) -> Publish | Deliver:
        """A new message on each access."""
        first, ingress_ns, epoch, offset, count, tail, flags = _HEAD.unpack_from(self.head)
        sequence_offsets = None
        if flags & _OFFSETS:
            sequence_offsets = np.frombuffer(self.head, np.uint32, count, _HEAD.size)
        event_type, data = self.event_type, self.data
        events = (
            EventBatch.deserialize(event_type, data, checked=True)
            if flags & _ARROW
            else EventBatch.unpack(event_type, data, count, checked=True)
        )
        batch = events.stamped(publisher=self.publisher, first_sequence=first, ingress_ns=ingress_ns)
        batch.sequence_offsets = sequence_offsets
        more = bool(flags & _REPLAYED), offset, bool(flags & _FOR_VIEWS), bool(flags & _LIVE)
        if not flags & _DELIVER:
            return Publish(batch, *more)
        numbers = np.frombuffer(self.head, "<i8", tail // 8, len(self.head) - tail)
        if count == 1:
            return Deliver(batch, np.array((0, len(numbers))), numbers, epoch, *more)
        return Deliver(batch, numbers[: count + 1], numbers[count + 1 :], epoch, *more)

"""Batches of events as frames for browsers. An event becomes JSON text once per batch, and a frame is made
once for all browsers with the same events and subscription number, which share its memory. Python statements
run per batch and per distinct frame; the work per event is orjson's and Arrow's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from covey.matcher import EventBatch, EventType
from covey.overlay import Gap

_LENGTH = struct.Struct("<I")

Rows = npt.NDArray[np.int64]


class Frame(NamedTuple):
    """One message, text or binary. `event_count` is 0 without events; `gap` is the gap that it reports;
    `keys` are those of its events, where later ones may supersede them; `of_view`: it has changes of a view,
    which are never dropped; `on_sent` is called when it first leaves the queue."""

    data: str | bytes
    event_count: int = 0
    type_name: str = ""
    ingress_ms: float = 0.0
    gap: Gap | None = None
    subscription: int = 0
    keys: pa.Array | None = None
    of_view: bool = False
    on_sent: Callable[[], None] | None = None

    @property
    def size(self) -> int:
        """Bytes; of text, in UTF-8."""
        data = self.data
        return len(data.encode() if isinstance(data, str) and not data.isascii() else data)


class EncodedBatch:
    def __init__(self, batch: EventBatch, replayed: bool) -> None:
        self.batch = batch
        self._replayed = replayed
        self._texts: list[bytes] | None = None
        self._frames: dict[tuple[str, int, str | None, bytes], Frame] = {}

    def frame(self, rows: Rows, subscription: int, form: str, key: str | None = None) -> Frame:
        """The events at `rows` for a subscription, as "json" or "arrow". With `key` the frame has its values,
        unless the batch was replayed out of order."""
        place = (form, subscription, key, rows.tobytes())
        frame = self._frames.get(place)
        if frame is None:
            data = self._json(rows, subscription) if form == "json" else self._arrow(rows, subscription)
            batch, keys = self.batch, None
            if key in batch.event_type.attributes and not self._replayed:
                keys = batch.record_batch.column(key).take(pa.array(rows))
            ingress_ms = batch.ingress_ns / 1e6
            frame = Frame(data, len(rows), batch.event_type.name, ingress_ms, None, subscription, keys)
            self._frames[place] = frame
        return frame

    def _head(self, rows: Rows, subscription: int) -> bytes:
        batch = self.batch
        fields = {
            "kind": "events",
            "subscription": subscription,
            "type": batch.event_type.name,
            "publisher": batch.publisher,
            "ingress_ms": batch.ingress_ns / 1e6,
            "sequences": batch.sequences()[rows],
        }
        if self._replayed:
            fields["replayed"] = True
        return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)

    def _json(self, rows: Rows, subscription: int) -> str:
        if self._texts is None:
            self._texts = [*map(orjson.dumps, self.batch.to_pylist())]
        chosen = self._texts if len(rows) == len(self._texts) else map(self._texts.__getitem__, rows.tolist())
        head = self._head(rows, subscription)
        return b"".join((head[:-1], b',"events":[', b",".join(chosen), b"]}")).decode()

    def _arrow(self, rows: Rows, subscription: int) -> bytes:
        """The head's length (uint32, little-endian), the head, and an Arrow IPC stream, which blanks align to
        8 bytes."""
        return _binary(self._head(rows, subscription), self.batch.take(rows).record_batch)


def changes_frame(
    event_type: EventType, events: pa.RecordBatch, kinds: Sequence[str], subscription: int, form: str
) -> Frame:
    fields = {
        "kind": "changes",
        "subscription": subscription,
        "type": event_type.name,
        "key": event_type.key,
        "changes": kinds,
    }
    head = orjson.dumps(fields)
    data: str | bytes
    if form == "json":
        texts = map(orjson.dumps, EventBatch(event_type, events).to_pylist())
        data = b"".join((head[:-1], b',"events":[', b",".join(texts), b"]}")).decode()
    else:
        data = _binary(head, events)
    return Frame(data, len(kinds), event_type.name, subscription=subscription, of_view=True)


def _binary(head: bytes, records: pa.RecordBatch) -> bytes:
    head += b" " * (-(len(head) + _LENGTH.size) % 8)
    sink = pa.BufferOutputStream()
    sink.write(_LENGTH.pack(len(head)) + head)
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write_batch(records)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def chosen(frame: Frame, mask: npt.NDArray[np.bool_]) -> Frame:
    """The frame with only the events where `mask` is true, cut from its own text or bytes."""
    assert frame.keys is not None
    data: str | bytes
    if isinstance(frame.data, str):
        fields = orjson.loads(frame.data)
        for name in ("sequences", "events"):
            fields[name] = [*compress(fields[name], mask)]
        data = orjson.dumps(fields).decode()
    else:
        (length,) = _LENGTH.unpack_from(frame.data)
        start = _LENGTH.size + length
        fields = orjson.loads(frame.data[_LENGTH.size : start])
        fields["sequences"] = [*compress(fields["sequences"], mask)]
        with pa.ipc.open_stream(frame.data[start:]) as stream:
            records = stream.read_next_batch()
        data = _binary(orjson.dumps(fields), records.filter(pa.array(mask)))
    return frame._replace(data=data, event_count=int(mask.sum()), keys=frame.keys.filter(pa.array(mask)))

"""Batches of events as frames for browsers, encoded once however many browsers get them.

An event becomes JSON text once per batch, and a frame is made once for all browsers that have the same
events under the same number of a subscription: pages that run the same script share the very text in memory.
Work per event is orjson's and Arrow's; a Python statement runs per batch, and per distinct frame.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from covey.matcher import EventBatch
from covey.overlay import Gap

_LENGTH = struct.Struct("<I")

Rows = npt.NDArray[np.int64]


class Frame(NamedTuple):
    """What is sent in one piece, text or binary. `event_count` is 0 for what is no events; `gap` is
    what it tells of events that the browser does not get."""

    data: str | bytes
    event_count: int = 0
    type_name: str = ""
    ingress_ms: float = 0.0
    gap: Gap | None = None

    @property
    def size(self) -> int:
        return len(self.data)


class EncodedBatch:
    """A batch, and the frames that were made of it."""

    def __init__(self, batch: EventBatch, replayed: bool) -> None:
        self.batch = batch
        self._replayed = replayed
        self._texts: list[bytes] | None = None
        self._frames: dict[tuple[str, int, bytes], Frame] = {}

    def frame(self, rows: Rows, subscription: int, form: str) -> Frame:
        """The events at these rows for a subscription, as "json" or "arrow"."""
        key = (form, subscription, rows.tobytes())
        frame = self._frames.get(key)
        if frame is None:
            data = self._json(rows, subscription) if form == "json" else self._arrow(rows, subscription)
            batch = self.batch
            frame = Frame(data, len(rows), batch.event_type.name, batch.ingress_ns / 1e6)
            self._frames[key] = frame
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
        """The length of the head as uint32, little-endian, the head, padded with blanks so that what follows
        begins at a multiple of 8 bytes, and an Arrow IPC stream."""
        records = self.batch.take(rows).record_batch
        head = self._head(rows, subscription)
        head += b" " * (-(len(head) + _LENGTH.size) % 8)
        sink = pa.BufferOutputStream()
        sink.write(_LENGTH.pack(len(head)) + head)
        with pa.ipc.new_stream(sink, records.schema) as stream:
            stream.write_batch(records)
        data: bytes = sink.getvalue().to_pybytes()
        return data

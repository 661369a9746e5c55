"""The work of the bare relays of `covey bench chain`, whatever carries their messages.

A relay parses each batch, filters its events by price and forwards them: no subscriptions, credit,
acknowledgements, sequence numbers, resumption or batching. It measures the cost of the transport, of Arrow
and of the machine. Each batch, and each single event, is one message.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from covey.sim.experiments.bench.chain_load import TICK, Publisher, Sink

_SCHEMA = TICK.arrow_schema


def encode(batch: pa.RecordBatch) -> bytes:
    data: bytes = batch.serialize().to_pybytes()
    return data


def decode(data: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), _SCHEMA)


def forwarded(data: bytes) -> bytes:
    """A message with the events of another that have a price of at least 0."""
    batch = decode(data)
    return encode(batch.filter(pc.greater_equal(batch.column("price"), 0.0)))


class RelaySource(Publisher):
    """Sends messages to the first relay."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def write(self, message: bytes) -> None: ...

    async def send(self, batch: pa.RecordBatch) -> None:
        await self.write(encode(batch))

    async def send_event(self, event: dict[str, Any]) -> None:
        await self.write(encode(pa.RecordBatch.from_pylist([event], _SCHEMA)))


class RelaySink(Sink):
    """Queues the messages of the last relay."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[pa.RecordBatch] = asyncio.Queue()

    def take(self, message: bytes) -> None:
        self._batches.put_nowait(decode(message))

    async def arrived(self) -> pa.RecordBatch:
        return await self._batches.get()

"""Covey as `peers` runs it: one broker, a durable type, a durable session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.peer import TEXT, WINDOW, Peer, Take
from covey.matcher import EventType
from covey.overlay import Client
from covey.sim.experiments.local_overlay import broker_command

ORDER = EventType("Order", {"firm": "string", "number": "int64", "sent_ns": "int64", "text": "string"})


class Covey(Peer):
    """Single events."""

    label = "Covey"
    program = "covey"
    storing = "fdatasync, one for all events that have arrived"

    def command(self) -> Sequence[str]:
        file = self.folder / "overlay.yaml"
        overlay = {
            "overlay": "one",
            "event_types": {ORDER.name: {name: str(kind) for name, kind in ORDER.attributes.items()}},
            "brokers": {"b1": {"address": self._address}},
            "durable": {ORDER.name: None},
            "storage": str(self.folder / "storage"),
        }
        file.write_text(yaml.safe_dump(overlay))
        return broker_command(file, "b1")

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def ready(self) -> None:
        async with Client(self._address, connect_timeout=1.0):
            pass

    async def open_publisher(self) -> None:
        self._publisher = Client(self._address)
        await self._publisher.open()
        await self._publisher.advertise(ORDER)

    async def publish(self, number: int, sent_ns: int) -> None:
        values = {"firm": "IBM", "number": number, "sent_ns": sent_ns, "text": TEXT}
        await self._publisher.publish(ORDER.name, values, confirm=True)

    async def publish_many(self, first: int, count: int, now_ns: Callable[[], int]) -> None:
        for number in range(first, first + count):
            values = {"firm": "IBM", "number": number, "sent_ns": now_ns(), "text": TEXT}
            await self._publisher.publish(ORDER.name, values)
        await self._publisher.flush()

    async def close_publisher(self) -> None:
        await self._publisher.close()

    async def open_reader(self, take: Take) -> None:
        self._reader = Client(self._address, "reader", durable=True)
        await self._reader.open()
        subscription = await self._reader.subscribe(ORDER, 'firm == "IBM"')

        async def read() -> None:
            async for batch in subscription.batches():
                columns = batch.record_batch
                numbers, times = (columns.column(name).to_pylist() for name in ("number", "sent_ns"))
                for number, sent_ns in zip(numbers, times, strict=True):
                    take(number, sent_ns)

        self._reading = asyncio.create_task(read())

    async def close_reader(self) -> None:
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        await self._reader.close()


class CoveyBatches(Covey):
    """Arrow batches of as many events as others have in flight."""

    label = "Covey, in batches"

    async def publish_many(self, first: int, count: int, now_ns: Callable[[], int]) -> None:
        for at in range(first, first + count, WINDOW):
            size = min(WINDOW, first + count - at)
            numbers = pa.array(np.arange(at, at + size))
            times = pa.array(np.full(size, now_ns()))
            columns = [pa.array(["IBM"] * size), numbers, times, pa.array([TEXT] * size)]
            batch = pa.record_batch(columns, schema=ORDER.arrow_schema)
            await self._publisher.publish_batch(ORDER.name, batch)
        await self._publisher.flush()

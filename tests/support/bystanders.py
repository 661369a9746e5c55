"""Uninvolved clients, which a test's attack on a broker must not delay; and floods."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from running import until

from covey.matcher import EventBatch, EventType
from covey.overlay import Client, Subscription

PROMPT_S = 8.0
"""The longest allowed delay of a bystander's event, on a slow and busy machine."""
_numbers = itertools.count()
FLOOD = EventType("Flood", {"number": "int64", "text": "string"})


class Bystanders:
    """A publisher and a subscriber that exchange one event at a time."""

    def __init__(self) -> None:
        self.events = 0
        self._longest_s = 0.0
        self._since: float | None = None

    @property
    def longest_s(self) -> float:
        """The longest time from publishing an event to its arrival, or until now for one in flight."""
        now = asyncio.get_running_loop().time()
        return max(self._longest_s, 0.0 if self._since is None else now - self._since)

    async def exchange(self, publisher: Client, subscription: Subscription) -> None:
        clock = asyncio.get_running_loop().time
        name = subscription.event_type.name
        while True:
            self._since = clock()
            await publisher.publish(name, number=self.events)
            event = await anext(subscription)
            self._longest_s, self._since = self.longest_s, None
            assert event["number"] == self.events
            self.events += 1
            await asyncio.sleep(0.02)


@asynccontextmanager
async def bystanders(publisher_at: str, subscriber_at: str) -> AsyncIterator[Bystanders]:
    """A pair with an event type of its own; at the end no event has taken longer than `PROMPT_S`."""
    own = EventType(f"Own{next(_numbers)}", {"number": "int64"})
    pair = Bystanders()
    async with Client(publisher_at) as publisher, Client(subscriber_at) as subscriber:
        await publisher.advertise(own)
        subscription = await subscriber.subscribe(own)
        task = asyncio.create_task(pair.exchange(publisher, subscription))
        try:
            yield pair
            await until(lambda: task.done() or pair.events > 10, "bystanders exchange events")
            assert not task.done(), task
            assert pair.longest_s < PROMPT_S, f"an event of a bystander took {pair.longest_s:.1f} s"
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, AssertionError):
                await task


class Flood:
    """Numbered events of one publisher, at a rate that it keeps unless it is blocked."""

    def __init__(self, client: Client, rate: int, text_bytes: int = 100) -> None:
        self.published = 0
        self._client = client
        self._rate = rate
        self._text = "x" * text_bytes

    async def run(self) -> None:
        turn_s = 0.02
        events = max(1, int(self._rate * turn_s))
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            numbers = np.arange(self.published, self.published + events)
            self.published += events
            columns = [pa.array(numbers), pa.array([self._text] * events)]
            await self._client.publish_batch("Flood", pa.record_batch(columns, schema=FLOOD.arrow_schema))
            due = max(due + turn_s, clock())
            await asyncio.sleep(due - clock())


class Reader:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.longest_pause_s = 0.0
        self._last = asyncio.get_running_loop().time()

    @property
    def pause_s(self) -> float:
        return asyncio.get_running_loop().time() - self._last

    async def read(self, subscription: Subscription) -> None:
        async for batch in subscription.batches():
            self.arrive(batch)

    def arrive(self, batch: EventBatch) -> None:
        self.longest_pause_s = max(self.longest_pause_s, self.pause_s)
        self._last = asyncio.get_running_loop().time()
        self.numbers += batch.record_batch.column("number").to_pylist()


class Tasks:
    """Tasks that end with the block; one that fails within it fails the test."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if error is None:
            for task in ended:
                task.result()

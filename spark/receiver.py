"""The sessions of one streaming query, a client per broker, on a thread's loop in the Python process of the
query's source. An error ends the query when Spark next asks for events.

Event n of a session is row n of an endless table; a micro-batch is a range of rows. All rows behind the last
commit are retained, so a planned range can be read again. Reading stops while more than `bound_bytes` lie
beyond the last finished micro-batch, so at most twice as much is retained; then the client's credit runs out,
and its broker applies `slow_consumer`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from covey.matcher import EventBatch, EventType, Filter
from covey.overlay.client import Client, ConnectError, Gap, Subscription
from covey.overlay.client.blocking import LoopThread
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.spark.controls import Controls
from covey.spark.options import SourceError, StreamOptions
from covey.spark.schemas import unreachable

_GAP_BYTES = 64


@dataclass(frozen=True, slots=True)
class Held:
    """Events, or a gap, which is one row."""

    start: int
    stop: int
    content: EventBatch | Gap
    bytes: int


class HeldEvents:
    """`stop` is the number of rows so far; `missed` counts the events that the broker dropped."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.stop = 0
        self.missed = 0
        self._items: deque[Held] = deque()
        self._finished = 0
        self._waiting_bytes = 0
        """Beyond the last finished micro-batch."""
        self._lock = Lock()

    @property
    def full(self) -> bool:
        return self._waiting_bytes >= self.bound_bytes

    def add(self, content: EventBatch | Gap) -> None:
        count, size = (1, _GAP_BYTES) if isinstance(content, Gap) else (len(content), content.nbytes)
        with self._lock:
            self._items.append(Held(self.stop, self.stop + count, content, size))
            self.stop += count
            self._waiting_bytes += size

    def finish(self, stop: int) -> None:
        """Micro-batches up to this row are done: stop counting their bytes."""
        with self._lock:
            if stop <= self._finished:
                return
            self._finished = stop
            self._waiting_bytes = sum(item.bytes for item in self._items if item.stop > self._finished)

    def drop(self, stop: int) -> None:
        """Rows before `stop` are committed: drop them."""
        with self._lock:
            while self._items and self._items[0].stop <= stop:
                self._items.popleft()
        self.finish(stop)

    def rows(self, start: int, stop: int) -> list[EventBatch | Gap]:
        """The rows of a range, which must still be retained."""
        items = [item for item in self.items() if item.stop > start and item.start < stop]
        found: list[EventBatch | Gap] = []
        for item in items:
            content = item.content
            if isinstance(content, EventBatch):
                first = max(start - item.start, 0)
                content = content.slice(first, min(stop, item.stop) - item.start - first)
            found.append(content)
        return found

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items())

    def items(self) -> list[Held]:
        with self._lock:
            return [*self._items]


log = logging.getLogger("covey.spark")

_PUBLISHERS = 65_536
_WINDOW_BYTES = 1 << 20
_GOODBYE_S = 10.0


class Receiver:
    """Its constructor opens it: `SourceError` where a broker does not answer or refuses."""

    def __init__(self, options: StreamOptions, event_type: EventType, filter: Filter) -> None:
        self._options = options
        self.session = secrets.token_hex(6)
        self.held = {address: HeldEvents(options.buffer_bytes) for address in options.brokers}
        self.error: Exception | None = None
        self._room: dict[str, asyncio.Event] = {}
        self._clients: list[Client] = []
        self._opening: asyncio.Task[None] | None = None
        self._subscriptions: list[Subscription] = []
        self._seen_at: OrderedDict[str, str] = OrderedDict()
        """By publisher, the broker that delivered its latest events."""
        self._thread = LoopThread(f"covey source {options.name}").start()
        self._controls = Controls(options.name, self._update)
        try:
            self._thread.run(self._open(event_type, filter))
        except BaseException:
            self.close()
            raise

    async def _open(self, event_type: EventType, filter: Filter) -> None:
        self._opening = asyncio.current_task()
        await self._controls.open()
        async with asyncio.TaskGroup() as opening:
            tasks = [
                opening.create_task(self._subscribe(number, address, event_type, filter))
                for number, address in enumerate(self._options.brokers)
            ]
        for task in tasks:
            address, subscription = task.result()
            self._subscriptions.append(subscription)
            reading = asyncio.create_task(self._read(address, subscription), name=f"covey reads {address}")
            reading.add_done_callback(self._ended)

    async def _subscribe(
        self, number: int, address: str, event_type: EventType, filter: Filter
    ) -> tuple[str, Subscription]:
        options = self._options
        self._room[address] = asyncio.Event()
        name = await options.client_name()
        client = Client(
            address,
            name if number == 0 else f"{name}-{number + 1}",
            slow_consumer=options.slow_consumer,
            window_bytes=min(_WINDOW_BYTES, options.buffer_bytes),
            connect_timeout=options.timeout_s,
            on_gap=lambda gap: self._add_gap(address, gap),
            tls=options.tls,
            token=options.bearer,
        )
        try:
            await client.open()
        except ConnectError as error:
            raise unreachable(address, error) from None
        self._clients.append(client)
        return address, await client.subscribe(
            event_type, filter, values=options.variables, timeout=options.timeout_s
        )

    async def _read(self, address: str, subscription: Subscription) -> None:
        held, room = self.held[address], self._room[address]
        async for batch in subscription.batches():
            self._check_publisher(batch.publisher, address)
            held.add(batch)
            while held.full:
                room.clear()
                await room.wait()
        raise SourceError(f"option broker is {address!r}: the session has ended")

    def _check_publisher(self, publisher: str, address: str) -> None:
        """Brokers of one overlay deliver the same events, which would be in the stream twice."""
        if len(self.held) == 1:
            return
        other = self._seen_at.setdefault(publisher, address)
        self._seen_at.move_to_end(publisher)
        if other != address:
            raise SourceError(
                f"option broker is {self._options.broker!r}: {other} and {address} both deliver events of "
                f"publisher {publisher}, expected one broker of each overlay"
            )
        if len(self._seen_at) > _PUBLISHERS:
            self._seen_at.popitem(last=False)

    def _add_gap(self, address: str, gap: Gap) -> None:
        held = self.held[address]
        held.missed += gap.count
        log.warning(
            "broker %s dropped %d events of %s for %s, by its slow_consumer %s",
            address,
            gap.count,
            gap.type_name,
            self._options.name,
            SlowConsumer(self._options.slow_consumer).value,
        )
        if self._options.gaps == "rows":
            held.add(gap)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.error = self.error or task.exception()  # type: ignore[assignment]

    # --- calls of Spark's thread ----------------------------------------------------------------------------

    def finish(self, address: str, stop: int) -> None:
        self._make_room(address, self.held[address].finish, stop)

    def commit(self, address: str, stop: int) -> None:
        self._make_room(address, self.held[address].drop, stop)

    def _make_room(self, address: str, free: Any, stop: int) -> None:
        free(stop)
        if not self.held[address].full:  # it may have become full meanwhile, and its reader waits
            self._thread.loop.call_soon_threadsafe(self._room[address].set)

    def close(self) -> None:
        """End the sessions at all brokers, and drop all rows."""
        try:
            self._thread.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        await self._controls.close()
        if self._opening is not None:  # a client that is interrupted while it connects says goodbye
            await asyncio.wait({self._opening}, timeout=_GOODBYE_S)
        await asyncio.gather(*(client.close(grace=0.0) for client in self._clients), return_exceptions=True)

    # --- calls of other processes ---------------------------------------------------------------------------

    async def _update(self, values: Mapping[str, object]) -> None:
        timeout_s = self._options.timeout_s
        await asyncio.gather(*(each.update(values=values, timeout=timeout_s) for each in self._subscriptions))


def first_error(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

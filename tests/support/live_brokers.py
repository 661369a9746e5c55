"""Brokers and clients on the event loop of their own thread, for synchronous tests."""

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from running import QUOTE, Brokers

from covey.overlay import Client
from covey.overlay.client.blocking import LoopThread
from covey.overlay.core.endpoint.limits import SessionLimits

T = TypeVar("T")


class LiveBrokers:
    """The brokers b1 - b2, and a client "market" at b1 that advertises `QUOTE`. `access` authenticates the
    tests' clients, `options` are the overlay's. Leases outlast tests, so that unclosed sessions show."""

    def __init__(self, thread: LoopThread, access: Mapping[str, Any], **options: Any) -> None:
        self._thread = thread
        self._access = access
        self.brokers = Brokers(
            [("b1", "b2")], sessions=SessionLimits(queue_events=1_000, lease_s=600.0), **options
        )
        self.market: Client

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(coroutine)

    @property
    def far(self) -> str:
        return self.brokers.address("b2")

    def clients(self) -> set[str]:
        """The clients of b2's sessions, disconnected ones included."""
        return {name for name in self.brokers.nodes["b2"].queues if name.startswith("client/")}

    def publish(self, *rows: tuple[str, float, int], by: Client | None = None) -> None:
        async def publish() -> None:
            client = by or self.market
            await client.publish_batch("Quote", [dict(zip(QUOTE.names, row, strict=True)) for row in rows])
            await client.flush()

        self.run(publish())

    def another(self, name: str) -> Client:
        async def another() -> Client:
            client = Client(self.brokers.address("b1"), name, **self._access)
            await client.open()
            await client.advertise(QUOTE)
            return client

        return self.run(another())


@contextmanager
def live_brokers(access: Mapping[str, Any] | None = None, **options: Any) -> Iterator[LiveBrokers]:
    thread = LoopThread("brokers").start()
    live = LiveBrokers(thread, access or {}, **options)
    live.run(live.brokers.__aenter__())
    try:
        live.market = live.another("market")
        yield live
        live.run(live.market.close())
    finally:
        live.run(live.brokers.__aexit__(None, None, None))
        thread.stop()

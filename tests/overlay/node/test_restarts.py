"""A broker in the middle is restarted while events flow: what is published meanwhile arrives.

Events may be lost that were in the broker when it was killed; none is lost where it was stopped in order. Its
neighbours come back one after the other, in either order.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from bystanders import FLOOD, Flood, Reader, Tasks
from running import Proxy, on_a_loop, until

from covey.overlay import Client
from covey.sim.experiments.local_overlay import LocalOverlay, chain

pytestmark = pytest.mark.thorough

RATE = 500


class Proxied(LocalOverlay):
    """b2 dials b1, and b3 dials b2, each through a proxy."""

    def __init__(self) -> None:
        super().__init__(chain(3))
        self.proxies: dict[str, Proxy] = {}

    async def open_proxies(self) -> None:
        for listener, dialer in chain(3):
            proxy = await Proxy(int(self.addresses[listener].rpartition(":")[2])).start()
            self.proxies[listener] = proxy
            self.link_addresses[listener, dialer] = proxy.address

    async def end(self, broker: str, how: signal.Signals) -> None:
        process = self._processes[broker]
        process.send_signal(how)
        await process.wait()


@asynccontextmanager
async def flooded(subscribers: str) -> AsyncIterator[tuple[Proxied, Reader, Flood]]:
    """An overlay with a flood of events from b1 to a client of another broker, which arrives."""
    overlay = Proxied()
    await overlay.open_proxies()
    async with (
        overlay,
        Client(overlay.addresses["b1"]) as publisher,
        Client(overlay.addresses[subscribers]) as subscriber,
        Tasks() as tasks,
    ):
        await publisher.advertise(FLOOD)
        reader = Reader()
        tasks.start(reader.read(await subscriber.subscribe(FLOOD)))
        flood = Flood(publisher, RATE, text_bytes=20)
        tasks.start(flood.run())
        await until(lambda: len(reader.numbers) > RATE, "events arrive")
        yield overlay, reader, flood


@pytest.mark.parametrize(
    ("how", "first"),
    [(signal.SIGTERM, "publisher's side first"), (signal.SIGKILL, "subscriber's side first")],
)
@on_a_loop
async def test_events_published_while_a_middle_broker_is_away_arrive(how: signal.Signals, first: str) -> None:
    async with flooded("b3") as (overlay, reader, flood):
        ended_at = flood.published
        await overlay.end("b2", how)
        gone_at = flood.published
        late = overlay.proxies["b2" if first == "publisher's side first" else "b1"]
        early = overlay.proxies["b1" if first == "publisher's side first" else "b2"]
        late.refusing = True
        await until(lambda: flood.published > gone_at + RATE)
        passed = early.passed
        await overlay._spawn("b2")
        await until(lambda: early.passed > passed, "one neighbour is back")
        linked_at = flood.published
        await until(lambda: flood.published > linked_at + RATE)
        late.refusing = False
        await overlay._until_linked("b2")
        back_at = flood.published
        await until(lambda: reader.numbers[-1] > back_at + RATE, "events arrive again", 30.0)
        check(reader, how, range(ended_at - RATE, gone_at + RATE // 5))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@on_a_loop
async def test_events_published_while_the_subscribers_broker_is_away_arrive(how: signal.Signals) -> None:
    async with flooded("b2") as (overlay, reader, flood):
        ended_at = flood.published
        await overlay.end("b2", how)
        gone_at = flood.published
        await until(lambda: flood.published > gone_at + RATE)
        await overlay.start("b2")
        back_at = flood.published
        await until(lambda: reader.numbers[-1] > back_at + RATE, "events arrive again", 30.0)
        check(reader, how, range(ended_at - RATE, gone_at + RATE // 5))


def check(reader: Reader, how: signal.Signals, inside: range) -> None:
    """Events are in order; those that a killed broker had taken with it were `inside`."""
    numbers = reader.numbers
    lost = set(range(max(numbers))) - set(numbers)
    assert numbers == sorted(set(numbers)), "in order, and none is repeated"
    assert lost <= (set() if how is signal.SIGTERM else set(inside))

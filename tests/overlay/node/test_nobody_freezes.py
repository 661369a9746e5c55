"""Broker processes under loads that once froze them: clients that are not involved do not notice.

A client that does not read holds the publishers of the types that it asked for, for `session_stall_limit_s`
at the most (here 1 s); from then on it loses events.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from bystanders import FLOOD, Flood, Reader, Tasks, bystanders
from running import on_a_loop, until

from covey.matcher import EventType
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.overlay.core.messages import Gap
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import resident_bytes

pytestmark = pytest.mark.thorough

STALL_LIMIT_S = 1.0
LIMITS = {"session_stall_limit_s": 1}
SLACK_S = 5.0


@on_a_loop
async def test_a_subscriber_that_never_reads() -> None:
    async with LocalOverlay(chain(3), limits=LIMITS) as overlay:
        near, far = overlay.addresses["b1"], overlay.addresses["b3"]
        gaps: list[Gap] = []
        async with (
            Client(near) as publisher,
            Client(far, "lazy", on_gap=gaps.append) as lazy,
            Client(far) as other,
            bystanders(near, far),
            bystanders(far, far),
            Tasks() as tasks,
        ):
            await publisher.advertise(FLOOD)
            unread = await lazy.subscribe(FLOOD)
            reader = Reader()
            tasks.start(reader.read(await other.subscribe(FLOOD)))
            flood = Flood(publisher, 20_000)
            tasks.start(flood.run())
            await until(lambda: "client/lazy: took nothing for 1 s" in overlay.log("b3", 100))
            await goes_on(reader)
            assert reader.numbers == list(range(len(reader.numbers)))
            drained = Reader()
            tasks.start(drained.read(unread))
            await until(lambda: drained.numbers[-1:] > [flood.published - 20_000], "it gets new events")
            await until(
                lambda: len(drained.numbers) + sum(gap.count for gap in gaps) > drained.numbers[-1],
                "the client that did not read is told in the stream what it lost",
            )
            assert drained.numbers == sorted(set(drained.numbers))
            assert all(gap.first_ns <= gap.last_ns for gap in gaps)
            assert lazy.dropped == sum(gap.count for gap in gaps)


async def goes_on(reader: Reader) -> None:
    """Until a reader has got many more events; it has never waited longer than the stall limit."""
    events = len(reader.numbers)
    await until(lambda: len(reader.numbers) > events + 20_000, "the other reader goes on")
    assert reader.longest_pause_s < STALL_LIMIT_S + SLACK_S


@on_a_loop
async def test_many_updates_towards_a_stopped_neighbour() -> None:
    far_away = EventType("Far", {"level": "float64"})
    count = 20_000
    async with LocalOverlay(chain(2), limits=LIMITS) as overlay:
        near, far = overlay.addresses["b1"], overlay.addresses["b2"]
        async with Client(far) as publisher, Client(near) as mover:
            await publisher.advertise(far_away)
            text = "level between $low and $high"
            subscriptions = []
            for first in range(0, count, 4_000):
                subscribing = (
                    mover.subscribe(far_away, text, low=2.0 * place, high=2.0 * place + 1)
                    for place in range(first, first + 4_000)
                )
                subscriptions += await asyncio.gather(*subscribing)
            async with bystanders(near, near) as pair:
                stopped = overlay.process_ids()["b2"]
                os.kill(stopped, signal.SIGSTOP)
                try:
                    for place, subscription in enumerate(subscriptions):
                        subscription.update_nowait(low=2.0 * place + 0.25, high=2.0 * place + 1.25)
                        if place % 500 == 0:
                            await asyncio.sleep(0.005)
                    exchanged = pair.events
                    await until(lambda: pair.events > exchanged + 50)
                finally:
                    os.kill(stopped, signal.SIGCONT)
            await mover.settled(timeout=60)


@asynccontextmanager
async def opened(clients: list[Client]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        yield


@on_a_loop
async def test_many_publishers_and_a_client_that_does_not_read() -> None:
    async with LocalOverlay(chain(2), limits=LIMITS) as overlay:
        near = overlay.addresses["b1"]
        publishers = [Client(near) for _ in range(100)]
        async with Client(near, "lazy") as lazy, opened(publishers), bystanders(near, near), Tasks() as tasks:
            for publisher in publishers:
                await publisher.advertise(FLOOD)
            await lazy.subscribe(FLOOD)
            process = overlay.process_ids()["b1"]
            before = resident_bytes(process)
            for publisher in publishers:
                tasks.start(Flood(publisher, 200, text_bytes=1000).run())
            largest = 0

            async def lazy_is_no_longer_waited_for() -> bool:
                nonlocal largest
                largest = max(largest, resident_bytes(process) - before)
                return "client/lazy: took nothing for 1 s" in overlay.log("b1", 100)

            await until(lazy_is_no_longer_waited_for)
            _, state = await inspect_broker(near, listed=1000)
            assert state["interfaces"]["client/lazy"]["queued_events"] <= 65_536
            assert largest < 150_000_000

"""docs/wire.md is enough to write a client: `plain_client.py` was, without code of Covey's."""

import asyncio
import gc
from dataclasses import replace

import pytest
from plain_client import PlainClient
from running import Brokers, Proxy, on_a_loop, until

from covey.matcher import EventType
from covey.overlay import Client
from covey.overlay.core.endpoint.limits import LinkLimits, SessionLimits
from covey.proto import broker_pb2 as pb

READING = EventType("Reading", {"number": "int64", "value": "int64"})


async def received(client: PlainClient, count: int) -> list[list[int]]:
    return [(await asyncio.wait_for(client.deliveries.get(), 60))[1] for _ in range(count)]


@on_a_loop
async def test_it_publishes_subscribes_updates_and_survives_a_reconnection() -> None:
    async with Brokers([("b1", "b2")]) as overlay:
        proxies = [
            await Proxy(int(overlay.address(name).rpartition(":")[2])).start() for name in ("b1", "b2")
        ]
        async with (
            PlainClient(proxies[0].address, "feed") as feed,
            PlainClient(proxies[1].address, "reader") as reader,
        ):
            await feed.advertise("Reading", "number", "value")
            await reader.subscribe(7, "Reading", "value < $limit", limit=10)
            feed.publish("Reading", [1, 5], [2, 50], [3, 9])
            assert await received(reader, 2) == [[1, 5], [3, 9]]
            await reader.update(7, limit=60)
            feed.publish("Reading", [4, 50])
            await feed.flush()
            assert await received(reader, 1) == [[4, 50]]

            for number in range(5, 105):
                feed.publish("Reading", [number, 1])
                await asyncio.sleep(0)
                if number % 25 == 0:
                    for proxy in proxies:
                        proxy.cut()
                    await feed.flush()
            assert await received(reader, 100) == [[number, 1] for number in range(5, 105)]
            feed.publish("Reading", [105, 1])
            assert await received(reader, 1) == [[105, 1]], "none was repeated"
            assert len(feed.resumed) > 1
            assert all(feed.resumed[1:])
            assert all(reader.resumed[1:])
            assert not (feed.refusals)
            assert not (reader.refusals)
            assert not (reader.gaps)
        await until(lambda: "client/feed" not in overlay.nodes["b1"].queues)
        for proxy in proxies:
            await proxy.stop()


@on_a_loop
async def test_it_repeats_its_state_and_its_events_where_the_session_was_lost() -> None:
    async with Brokers() as overlay:
        proxy = await overlay.proxy("b1")
        async with PlainClient(proxy.address, "both") as client:
            await client.advertise("Reading", "number", "value")
            await client.subscribe(1, "Reading", "value < $limit", limit=10)
            await client.update(1, limit=20)
            proxy.freeze()
            client.publish("Reading", [1, 15], [2, 15])  # these do not arrive
            await until(lambda: client.unacknowledged > 0)
            proxy.refusing = True
            proxy.cut()
            proxy.thaw()
            await overlay.crash("b1")
            await overlay.start("b1")
            proxy.refusing = False
            client.publish("Reading", [3, 15], [4, 25])
            await client.flush()
            assert await received(client, 3) == [[1, 15], [2, 15], [3, 15]]
            assert client.resumed == [False, False]


@on_a_loop
async def test_it_is_told_what_it_lost() -> None:
    sessions = SessionLimits(queue_events=10_000)
    async with Brokers(sessions=sessions) as overlay, Client(overlay.address("b1")) as feed:
        await feed.advertise(READING)
        slow = PlainClient(overlay.address("b1"), "slow", slow_consumer=pb.SLOW_CONSUMER_DROP_OLDEST)
        slow.reading = False
        async with slow:
            await slow.subscribe(1, "Reading", "value >= 0")
            for first in range(0, 100_000, 1_000):
                rows = [{"number": first + i, "value": 0} for i in range(1_000)]
                await feed.publish_batch("Reading", rows)
            await feed.flush()
            slow.reading = True
            slow.grant()
            await until(lambda: slow.deliveries.qsize() + sum(gap.count for gap in slow.gaps) == 100_000)
            numbers = [number for number, _ in await received(slow, slow.deliveries.qsize())]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == 99_999
            assert all(gap.type_name == "Reading" and gap.first_ns <= gap.last_ns for gap in slow.gaps)


@on_a_loop
async def test_a_holder_of_a_name_that_answers_the_probe_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    async with Brokers() as overlay, PlainClient(overlay.address("b1"), "one") as holder:
        probes = holder.probes
        async with PlainClient(overlay.address("b1"), "one") as newcomer:
            assert newcomer.goodbye.status == "ALREADY_EXISTS"
            assert "choose another name" in newcomer.goodbye.reason
        assert holder.probes > probes
        await holder.advertise("Reading", "number", "value")
        gc.collect()
        assert "never retrieved" not in caplog.text


@on_a_loop
async def test_what_a_client_holds_holds_no_publisher() -> None:
    """It may limit events by its credit, whose exhaustion ends with the stall limit."""
    async with (
        Brokers(link_limits=LinkLimits(held_bytes=10_000)) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b1")) as reader,
        PlainClient(overlay.address("b1"), "holding") as holding,
    ):
        await feed.advertise(READING)
        await holding.subscribe(1, "Reading", "value >= 0")
        holding.send_control(pb.Message(hold=pb.Hold(type_name="Reading", held=True)))
        mine = await reader.subscribe("Reading")
        for number in range(2_000):
            await feed.publish("Reading", number=number, value=0)
            if not number % 100:
                await feed.flush()
        assert [(await asyncio.wait_for(anext(mine), 60))["number"] for _ in range(2_000)] == [*range(2_000)]


@on_a_loop
async def test_a_publisher_that_ignores_a_hold_is_refused() -> None:
    """Its events waited without a bound for a slow subscriber."""
    link_limits = LinkLimits(queue_bytes=20_000, held_bytes=20_000)
    sessions = SessionLimits(queue_bytes=20_000)
    async with (
        Brokers([("b1", "b2")], sessions=sessions, link_limits=link_limits) as overlay,
        PlainClient(overlay.address("b1"), "feed") as feed,
    ):
        await feed.advertise("Reading", "number", "value")
        feed.heeds_holds = False
        endpoint = overlay.nodes["b1"].endpoint
        endpoint.set_options(replace(endpoint.options, after_hold_bytes=100_000))
        slow = PlainClient(overlay.address("b2"), "slow")
        slow.reading = False
        async with slow:
            await slow.subscribe(1, "Reading", "value >= 0")
            for _ in range(40):
                for _ in range(100):
                    feed.publish("Reading", *[[0, 0]] * 16)
                await feed.flush()
            assert "Reading" in feed.held
            queues = [queue for node in overlay.nodes.values() for queue in node.queues.values()]
            assert max(queue.link.backlog_bytes for queue in queues) < 1_000_000
            assert feed.refusals[0].status == "RESOURCE_EXHAUSTED"
            assert feed.refusals[0].reason == "16 events of Reading: expected none while it is held"
            slow.reading = True
            slow.grant()
            await until(lambda: "Reading" not in feed.held)
            refused = len(feed.refusals)
            feed.publish("Reading", [1, 0])
            await feed.flush()
            assert len(feed.refusals) == refused


@on_a_loop
async def test_brokers_take_later_versions_that_speak_theirs_and_refuse_others() -> None:
    async with Brokers() as overlay:
        later = PlainClient(overlay.address("b1"), "later")
        later.protocols = (3, 2)
        async with later:
            await later.advertise("Reading", "number", "value")
        for protocols, spoken in (((1, 0), "1"), ((4, 3), "3 to 4")):
            other = PlainClient(overlay.address("b1"), "other")
            other.protocols = protocols
            async with other:
                assert other.goodbye.status == "INVALID_ARGUMENT"
                assert (
                    other.goodbye.reason == f"hello from 'other' with protocol {spoken}: this side speaks 2"
                )

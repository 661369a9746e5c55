"""Publishing calls: what they wait for, and what a lost broker, a refusal and the end do to them."""

import asyncio
import logging
import re

import pytest
from running import QUOTE, Brokers, at_rest, on_a_loop, until

from covey.matcher import EventType
from covey.overlay import Client, ClosedError, ConnectError, Gap, RefusedError, Subscription
from covey.overlay.client.publishing import Publishing
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.link.link import Link


async def take(subscription: Subscription, count: int) -> list[int]:
    async with asyncio.timeout(60):
        return [(await anext(subscription))["volume"] for _ in range(count)]


@on_a_loop
async def test_publish_waits_where_the_outbox_is_full_and_goes_on_when_the_broker_is_back() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), "me", outbox_events=10) as me:
        await me.advertise(QUOTE)
        mine = await me.subscribe(QUOTE)
        await overlay.crash("b1")
        await until(lambda: not me.connected)

        async def publish() -> None:
            for volume in range(100):
                await me.publish("Quote", volume=volume)

        publishing = asyncio.create_task(publish())
        await until(lambda: me.pending == 10)
        batch = asyncio.create_task(me.publish_batch("Quote", [{"volume": 100}]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(me.flush(), 0.1)
        assert not publishing.done()
        assert not batch.done()
        await overlay.start("b1")
        await asyncio.gather(publishing, batch)
        await me.flush()
        assert me.pending == 0
        assert sorted(await take(mine, 101)) == [*range(101)]


@on_a_loop
async def test_calls_that_wait_for_room_keep_their_order() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), outbox_events=7) as me:
        await me.advertise(QUOTE)
        mine = await me.subscribe(QUOTE)
        calls = [asyncio.create_task(me.publish("Quote", volume=volume)) for volume in range(200)]
        await asyncio.sleep(0)
        for call in calls[20:40]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        wanted = [*range(20), *range(40, 200)]
        assert await take(mine, len(wanted)) == wanted


@on_a_loop
async def test_calls_that_get_room_in_the_same_turn_and_publish_again_wait_their_turn() -> None:
    """Several frames make room in one turn, and the first caller fills it before the second one runs."""
    session = ClientSession("me")
    endpoint = ClientEndpoint(session, Link(1), outbox_events=1)
    endpoint.transmit(session.advertise(QUOTE))
    publishing = Publishing("me", endpoint, lambda: None)
    await publishing.publish("Quote", {"volume": 0}, False)

    async def publish(times: int) -> None:
        for _ in range(times):
            await publishing.publish("Quote", {"volume": 1}, False)

    calls = [asyncio.create_task(publish(times)) for times in (3, 1)]
    await asyncio.sleep(0)
    for _ in range(20):
        endpoint.outbox.events = 0  # as if the broker had accepted all
        publishing.advance()
        publishing.advance()
        await asyncio.sleep(0)
    assert all(call.done() for call in calls)


@on_a_loop
async def test_a_flush_reports_the_first_refusal_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE, "volume > 10")
        mine = await me.subscribe(QUOTE)
        with caplog.at_level(logging.WARNING, "covey.client"):
            for volume in (11, 1, 12, 2, 3, 13):
                await me.publish("Quote", volume=volume)
            with pytest.raises(RefusedError, match=r"outside of what .* \(3 events were refused in all\)"):
                await me.flush()
        assert me.refused == 3
        assert re.search("events refused: [123], the last one: [123] events of Quote", caplog.text)
        await me.flush()
        with pytest.raises(RefusedError, match="outside of what"):
            await me.publish("Quote", volume=4, confirm=True)
        await me.flush()
        assert (me.refused, await take(mine, 3)) == (3, [11, 12, 13])


@on_a_loop
async def test_a_client_that_closes_sends_its_events_first() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as reader:
        mine = await reader.subscribe(QUOTE)
        async with Client(overlay.address("b1")) as feed:
            await feed.advertise(QUOTE)
            for volume in range(1_000):
                await feed.publish("Quote", volume=volume)
        assert feed.pending == 0
        assert await take(mine, 1_000) == [*range(1_000)]


@on_a_loop
async def test_events_that_the_end_of_a_client_leaves_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with Brokers() as overlay:
        feed = Client(overlay.address("b1"), "feed", outbox_events=3)
        await feed.open()
        await feed.advertise(QUOTE)
        await overlay.crash("b1")
        await until(lambda: not feed.connected)
        for volume in range(2):
            await feed.publish("Quote", volume=volume)
        waiting = [
            asyncio.create_task(call)
            for call in (feed.publish("Quote", confirm=True), feed.publish("Quote"), feed.flush())
        ]
        await asyncio.sleep(0)
        with caplog.at_level(logging.WARNING, "covey.client"):
            await feed.close(grace=0.1)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ClosedError] * 3
        assert feed.pending == 3
        assert "client feed: 3 events were not accepted: client feed is closed" in caplog.text
        await overlay.start("b1")


@on_a_loop
async def test_a_publisher_that_never_pauses_leaves_turns_to_others() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        for volume in range(10_000):
            await me.publish("Quote", volume=volume)
        assert turns > 100
        counting.cancel()


@on_a_loop
async def test_attributes_may_be_given_as_a_mapping() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE)
        mine = await me.subscribe(QUOTE)
        event = {"firm": "IBM"}
        await me.publish("Quote", event, volume=1)
        event["firm"] = "HP"
        await me.publish("Quote", event)
        event["firm"] = "DEC"
        got = [await anext(mine) for _ in range(2)]
        assert [(each["firm"], each["volume"]) for each in got] == [("IBM", 1), ("HP", None)]


@on_a_loop
async def test_a_reader_is_told_of_the_events_that_it_lost() -> None:
    gaps: list[Gap] = []
    async with Brokers(sessions=SessionLimits(lease_s=30.0, queue_events=100)) as overlay:
        proxy = await overlay.proxy("b1")
        reading = Client(proxy.address, "reader", slow_consumer="drop_oldest", on_gap=gaps.append)
        async with Client(overlay.address("b1")) as feed, reading as reader:
            await feed.advertise(QUOTE)
            mine = await reader.subscribe("Quote")
            proxy.refusing = True
            proxy.cut()
            await until(lambda: not reader.connected)
            for first in range(0, 300, 10):
                rows = [{"volume": volume} for volume in range(first, first + 10)]
                await feed.publish_batch("Quote", rows, confirm=True)
            proxy.refusing = False
            got = await take(mine, 100)
            await until(lambda: sum(gap.count for gap in gaps) == 200)
            assert got == [*range(200, 300)]
            assert reader.gaps == gaps
            assert reader.dropped == 200
            assert all(0 < gap.first_ns <= gap.last_ns for gap in gaps)


@on_a_loop
async def test_a_client_whose_name_is_taken_fails_its_calls_and_closes_at_once() -> None:
    async with Brokers() as overlay:
        proxy = await overlay.proxy("b1")
        mine = Client(proxy.address, "me", outbox_events=2)
        await mine.open()
        await mine.advertise(QUOTE)
        proxy.refusing = True
        proxy.cut()
        await overlay.crash("b1")
        await overlay.start("b1")
        await mine.publish("Quote", volume=1)
        calls = [mine.publish("Quote", volume=2, confirm=True), mine.publish("Quote", volume=3), mine.flush()]
        waiting = [asyncio.create_task(call) for call in calls]
        async with Client(overlay.address("b1"), "me"):
            proxy.refusing = False
            outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
        assert [type(outcome) for outcome in outcomes] == [ConnectError] * 3
        with pytest.raises(ConnectError):
            await mine.publish("Quote", volume=4)
        async with asyncio.timeout(30):
            await mine.close()
        assert mine.pending == 2


@on_a_loop
async def test_a_type_whose_reader_does_not_read_delays_no_other_of_its_publisher() -> None:
    note = EventType("Note", {"text": "string"})
    async with Brokers() as overlay:
        at = overlay.address("b1")
        async with Client(at) as feed, Client(at, "lazy", window_bytes=10_000) as lazy, Client(at) as reader:
            await feed.advertise(note)
            await feed.advertise(QUOTE)
            await lazy.subscribe("Note")
            mine = await reader.subscribe("Quote")
            for _ in range(1_000):  # as much as the reader's window and its broker's queue take, and more
                await feed.publish("Note", text="x" * 60_000)
                if overlay.nodes["b1"].queues["client/lazy"].full_types:
                    break
            await at_rest(lambda: feed.pending)
            for _ in range(10):
                await feed.publish("Note", text="x")
            for volume in range(100):
                await feed.publish("Quote", volume=volume, confirm=volume % 10 == 0)
            assert await take(mine, 100) == [*range(100)]
            assert feed.pending >= 10
            await lazy.close()
            await feed.flush()
            assert feed.pending == 0


SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")


@on_a_loop
async def test_a_reader_that_wants_the_newest_gets_the_last_event_of_each_key() -> None:
    gaps: list[Gap] = []
    async with Brokers(sessions=SessionLimits(lease_s=60.0, queue_events=200)) as overlay:
        proxy = await overlay.proxy("b1")
        reading = Client(proxy.address, "reader", slow_consumer="conflate", on_gap=gaps.append)
        async with Client(overlay.address("b1")) as feed, reading as reader:
            await feed.advertise(QUOTE)
            await feed.advertise(SHIP)
            with pytest.raises(RefusedError, match="Quote has no key: slow_consumer 'conflate'") as refusal:
                await reader.subscribe("Quote")
            assert refusal.value.status == "FAILED_PRECONDITION"
            mine = await reader.subscribe("Ship", "x >= 0")
            proxy.refusing = True
            proxy.cut()
            await until(lambda: not reader.connected)
            for first in range(0, 1_000, 10):
                rows = [{"id": x % 20, "x": x} for x in range(first, first + 10)]
                await feed.publish_batch("Ship", rows, confirm=True)
            proxy.refusing = False
            newest: dict[object, object] = {}
            got = 0
            async for event in mine:
                got += 1
                newest[event["id"]] = event["x"]
                if event["x"] == 999:
                    break
            assert newest == {x % 20: x for x in range(980, 1_000)}
            await until(lambda: got + sum(gap.count for gap in gaps) == 1_000)
            assert got <= 200
            assert all(gap.conflated for gap in gaps)

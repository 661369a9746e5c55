"""One stream for all subscriptions of a client, through live brokers."""

import asyncio

import pytest
from running import Brokers, at_rest, on_a_loop, two_clients, until

from covey.matcher import EventType
from covey.overlay import Client, ClosedError
from covey.sim.experiments.local_overlay import LocalOverlay, chain

QUOTE = EventType("Quote", {"price": "float64"})


async def deliver_many() -> None:
    async with LocalOverlay(chain(2)) as overlay:
        at = overlay.addresses
        async with Client(at["b1"]) as exchange, Client(at["b2"]) as gateway:
            await exchange.advertise(QUOTE)
            limits = [float(limit) for limit in range(50)]
            subscriptions = await asyncio.gather(
                *(gateway.subscribe(QUOTE, "price < $limit", limit=limit) for limit in limits)
            )
            by_id = {
                subscription.id: limit for subscription, limit in zip(subscriptions, limits, strict=True)
            }
            deliveries = gateway.deliveries()
            prices = [47.5, 12.5, 60.0, 48.5]
            await exchange.publish_batch("Quote", [{"price": price} for price in prices])

            async def pairs(count: int) -> list[tuple[float, float]]:
                """Close events may be one item, or several."""
                got: list[tuple[float, float]] = []
                while len(got) < count:
                    matches = await asyncio.wait_for(anext(deliveries), 60)
                    rows = zip(matches.rows.tolist(), matches.ids.tolist(), strict=True)
                    got += [(matches.batch.to_pylist()[row]["price"], by_id[i]) for row, i in rows]
                return got

            expected = {(price, limit) for price in prices for limit in limits if price < limit}
            got = await pairs(len(expected))
            assert (len(got), {*got}) == (len(expected), expected)

            await subscriptions[49].update(limit=1.0)
            await exchange.publish("Quote", price=47.5, confirm=True)
            await exchange.publish("Quote", price=0.5)
            got = await pairs(50)
            assert got[0] == (47.5, 48.0)
            assert sorted(got[1:]) == [(0.5, limit) for limit in limits if limit > 0]
        with pytest.raises((StopAsyncIteration, ClosedError)):
            await anext(deliveries)


@pytest.mark.usefixtures("local_brokers")
def test_one_stream_gives_what_all_subscriptions_would() -> None:
    asyncio.run(deliver_many())


NOTE = EventType("Note", {"number": "int64", "text": "string"})


@on_a_loop
async def test_deliveries_start_with_pending_events_and_release_their_credit() -> None:
    async with two_clients(NOTE) as (overlay, feed, me):
        low = await me.subscribe("Note", "number < $limit", limit=20)
        high = await me.subscribe("Note", "number >= 10")
        gone = await me.subscribe("Note", "number >= 0")
        for number in range(40):
            await feed.publish_batch("Note", [{"number": number, "text": "x" * 60_000}] * 2, confirm=True)
        await at_rest(lambda: overlay.nodes["b1"].queues["client/reader"].link.acknowledged)
        assert (await anext(low))["number"] == 0
        deliveries = me.deliveries()
        await gone.unsubscribe()
        await low.update(limit=5)
        got: list[tuple[int, int]] = []
        async with asyncio.timeout(60):
            while (39, high.id) not in got:
                matches = await anext(deliveries)
                numbers = matches.batch.record_batch.column("number").to_pylist()
                got += [(numbers[row], i) for row, i in zip(matches.rows, matches.ids.tolist(), strict=True)]
        assert got[0] == (0, low.id), "the second event of a batch that was begun"
        assert [pair for pair in got if pair[1] == low.id] == [
            (number, low.id) for number in (0, *(n for n in range(1, 5) for _ in "ab"))
        ]
        assert [pair for pair in got if pair[1] == high.id] == [
            (number, high.id) for number in range(10, 40) for _ in "ab"
        ]
        assert gone.id not in {i for _, i in got}


@on_a_loop
async def test_deliveries_tell_that_a_subscription_has_ended_with_its_period() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(NOTE)
        ending = await me.subscribe("Note", "number == 1", valid_for=600)
        lasting = await me.subscribe("Note", "number < 3")
        deliveries = me.deliveries()
        await me.publish("Note", number=1, confirm=True)
        async with asyncio.timeout(60):
            matches = await anext(deliveries)
            assert (sorted(matches.ids.tolist()), matches.expired) == ([ending.id, lasting.id], ())
            await ending.renew(0.001)
            matches = await anext(deliveries)
            assert (matches.expired, len(matches.batch), len(matches.rows)) == ((ending.id,), 0, 0)
            assert matches.batch.event_type.name == "Note"
            await me.publish("Note", number=1)
            matches = await anext(deliveries)
            assert (matches.ids.tolist(), matches.expired) == ([lasting.id], ())
        assert overlay.nodes["b1"].endpoint.validity.expired == 1


@on_a_loop
async def test_deliveries_that_wait_when_a_period_ends_are_handed_out() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), "me", durable=False) as me:
        await me.advertise(NOTE)
        ending = await me.subscribe("Note", "number < 3", valid_for=600)
        deliveries = me.deliveries()
        for number in range(3):
            await me.publish("Note", number=number, confirm=True)
        await overlay.quiet()
        await ending.renew(0.001)
        await until(lambda: ending.expired)
        got = [await anext(deliveries) for _ in range(4)]
        assert [each["number"] for matches in got for each in matches.batch.to_pylist()] == [0, 1, 2]
        assert [matches.expired for matches in got] == [(), (), (), (ending.id,)]


@on_a_loop
async def test_deliveries_take_over_several_subscriptions_in_order_of_arrival() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(NOTE)
        await me.subscribe("Note", "number in (1, 3, 5)")
        await me.subscribe("Note", "number in (0, 2, 4)")
        for number in range(6):
            await me.publish("Note", number=number, confirm=True)
        await overlay.quiet()
        deliveries = me.deliveries()
        assert [(await anext(deliveries)).batch.to_pylist()[0]["number"] for _ in range(6)] == [*range(6)]


@on_a_loop
async def test_events_of_an_earlier_link_release_no_credit_on_a_new_one() -> None:
    window = 100_000
    async with Brokers() as overlay, Client(overlay.address("b1"), "me", window_bytes=window) as me:
        await me.advertise(NOTE)
        mine = await me.subscribe("Note")
        for number in range(10):
            await me.publish("Note", number=number, text="x" * 6_000, confirm=True)
        await overlay.quiet()
        await overlay.crash("b1")
        await overlay.start("b1")
        await until(lambda: me.connected)
        await me.settled()
        queue = overlay.nodes["b1"].queues["client/me"]
        assert [(await anext(mine))["number"] for _ in range(10)] == [*range(10)]
        await me.publish("Note", number=10)
        assert (await anext(mine))["number"] == 10
        await until(lambda: queue.link.idle)
        assert queue.link.credit - queue.link.event_bytes_sent <= window

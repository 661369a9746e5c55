"""Subscribing: lookup of a type's name, and no remains after a failure."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running import QUOTE, Brokers, on_a_loop, two_clients, until

from covey.matcher import EventBatch, EventType, EventTypeError, FilterError, SubscriptionError
from covey.overlay import Client, ClosedError, NotSettledError, RefusedError
from covey.overlay.client.event import Claim, Part
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.messages import Refuse
from covey.overlay.node.broker_storage import Retention

SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")


@on_a_loop
async def test_a_refused_event_type_leaves_nothing_behind() -> None:
    async with two_clients(QUOTE) as (_, feed, me):
        wrong = EventType("Quote", {"volume": "string"})
        with pytest.raises(RefusedError, match="attribute volume is int64, not string"):
            await me.subscribe(wrong, 'volume == "1"')
        mine = await me.subscribe(EventType("Quote", {"price": "float64"}), "price < 3")
        with pytest.raises(RefusedError, match="attribute volume is int64, not string"):
            await me.subscribe(wrong, 'volume == "1"')
        wide = await me.subscribe(QUOTE, "price < 3")
        await feed.publish("Quote", price=2.0, volume=1)
        assert (await anext(mine))["volume"] == (await anext(wide))["volume"] == 1


@on_a_loop
async def test_a_type_name_is_resolved_to_its_current_type() -> None:
    async with two_clients(QUOTE) as (_, feed, me):
        first = await me.subscribe("Quote", "price < 3")
        await first.unsubscribe()
        await feed.unadvertise("Quote")
        later = EventType("Quote", {"cost": "int64"})
        await feed.advertise(later)
        second = await me.subscribe("Quote", "cost < 3")
        assert second.event_type == later
        await feed.publish("Quote", cost=2)
        assert (await anext(second))["cost"] == 2


@on_a_loop
async def test_what_its_user_has_ended_may_be_ended_again() -> None:
    async with two_clients(SHIP) as (_, _, me):
        ships = await me.subscribe(SHIP, "x < $limit", limit=3)
        view = await me.view(SHIP, "x < 3")
        for _ in range(2):
            await ships.unsubscribe()
            await view.close()
        with pytest.raises(SubscriptionError, match="it has ended or was never made"):
            await ships.update(limit=4)
        with pytest.raises(StopAsyncIteration):
            await anext(ships)
    await ships.unsubscribe()


@on_a_loop
async def test_a_timeout_cancels_a_new_subscription_and_keeps_other_changes() -> None:
    link = ("b1", "b2")
    async with (
        Brokers([link], proxied=[link]) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b2"), "me") as me,
    ):
        await feed.advertise(QUOTE)
        first = await me.subscribe("Quote", "price < $limit", limit=1)
        proxy = overlay.proxies[link]
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not overlay.nodes["b2"].queues["broker/b1"].connected)
        with pytest.raises(NotSettledError):
            await me.subscribe("Quote", "price > 100", timeout=0.1)
        with pytest.raises(NotSettledError):
            await first.update(limit=2, timeout=0.1)
        proxy.refusing = False
        await me.settled()
        held = overlay.nodes["b2"].core.tables.peers["client/me"].subscriptions
        assert [(i, str(interest.filter), interest.values) for i, interest in held.items()] == [
            (first.id, "price < $limit", {"limit": 2.0})
        ]


@on_a_loop
async def test_several_tasks_may_read_one_subscription() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        mine = await me.subscribe(QUOTE)
        released: list[int] = []
        readers = [asyncio.create_task(anext(mine)) for _ in range(2)]
        await asyncio.sleep(0)
        for number in (1, 2):
            batch = EventBatch.from_pylist(QUOTE, [{"volume": 3 * number + i} for i in range(3)])
            share = DeliverTo(mine.id, batch, 0)
            mine._put(Part(share, 1, Claim(number, 1, partial(released.append, number))))
        events = [*await asyncio.gather(*readers), *[await anext(mine) for _ in range(4)]]
        assert [event["volume"] for event in events] == [3, 4, 5, 6, 7, 8]
        assert released == [1, 2]


@on_a_loop
async def test_a_name_is_no_event_type() -> None:
    wrong: Any = ["Quote"]
    async with Brokers() as overlay, Client(overlay.address("b1")) as client:
        for call in (client.advertise(wrong), client.widen(wrong), client.subscribe(wrong, "price < 3")):
            with pytest.raises(EventTypeError, match=r"event type \['Quote'\]: expected an EventType"):
                await call


@on_a_loop
async def test_a_filter_may_be_in_another_language() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE)
        selected = await me.subscribe("Quote", "firm LIKE 'I%' AND price < :top", language="sql", top=5)
        pattern = '{"firm": [{"prefix": "I"}], "price": [{"numeric": ["<", 5]}]}'
        matched = await me.subscribe("Quote", pattern, language="eventbridge")
        assert str(selected.filter) == 'firm prefix "I" and price < $top'
        assert str(matched.filter) == 'firm prefix "I" and price < 5.0'
        await me.publish("Quote", firm="IBM", price=4.0, volume=1)
        assert (await anext(selected))["price"] == (await anext(matched))["price"] == 4.0
        with pytest.raises(FilterError, match="language 'xpath': expected covey, sql, eventbridge"):
            await me.subscribe("Quote", "", language="xpath")


@pytest.mark.parametrize("call", ["subscribe", "view"])
@on_a_loop
async def test_who_subscribes_hears_of_an_end_of_the_client_while_the_type_is_looked_up(call: str) -> None:
    """Its wait had nothing left to end it."""
    keyed = EventType("Keyed", {"id": "string", "price": "float64"}, key="id")
    async with two_clients(keyed) as (_, _, me):
        look_up = me.event_type

        async def closing(name: str) -> EventType:
            found = await look_up(name)
            await me.close()
            return found

        me.event_type = closing
        task = asyncio.ensure_future(getattr(me, call)("Keyed", "price < 3"))
        await asyncio.wait({task}, timeout=5)
        assert task.done()
        with pytest.raises(ClosedError):
            task.result()
        assert not me.session.subscriptions


@on_a_loop
async def test_a_refused_subscription_of_an_earlier_process_is_not_handed_out(tmp_path: Path) -> None:
    storage = {"durable": {"Ship": Retention()}, "storage": str(tmp_path), "event_types": [SHIP]}
    async with Brokers(**storage) as overlay:
        async with Client(overlay.address("b1"), "me", durable=True) as me:
            refused = (await me.subscribe("Ship", "x < 3")).id
        async with Client(overlay.address("b1"), "me", durable=True) as me:
            await me.settled()
            epoch = me.session._subscriptions[refused].born
            me._driver._handle(Refuse(epoch, "PERMISSION_DENIED", "no", refused))
            with pytest.raises(SubscriptionError, match="expected the id of one of me"):
                me.subscription(refused)
            assert (await me.subscribe("Ship", "x < 3")).id != refused


@on_a_loop
async def test_iteration_ends_where_the_durable_session_is_ended(tmp_path: Path) -> None:
    storage = {"durable": {"Ship": Retention()}, "storage": str(tmp_path), "event_types": [SHIP]}
    async with Brokers(**storage) as overlay:
        me = Client(overlay.address("b1"), "me", durable=True)
        await me.open()
        reading = asyncio.create_task(anext(await me.subscribe("Ship"), None))
        await asyncio.sleep(0)
        await me.close(end=True)
        assert await asyncio.wait_for(reading, 10) is None

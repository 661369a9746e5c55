"""Subscriptions whose variables follow the fields of an object, over real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from live_brokers import LiveBrokers, live_brokers
from running import QUOTE, Brokers, eventually, on_a_loop

from covey.matcher.errors import VariableError
from covey.overlay import Client
from covey.overlay.client import followed_fields


@dataclass
class Monitor:
    """Section 3.2 of the paper: a purchase wherever the price is below the lowest before."""

    last_buy: float = 10.0
    firm: str = "IBM"


@dataclass(slots=True)
class Slotted:
    least: int = 0
    most: int = 9


class Checking:
    def __init__(self) -> None:
        self._limit = 5.0

    @property
    def limit(self) -> float:
        return self._limit

    @limit.setter
    def limit(self, value: float) -> None:
        self._limit = min(value, 8.0)


FILTER = "firm == $firm and price < $last_buy"


@on_a_loop
async def test_an_assignment_is_in_force_at_once_and_reaches_the_overlay() -> None:
    async with (
        Brokers() as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b1"), "me") as me,
    ):
        await feed.advertise(QUOTE)
        monitor = Monitor()
        quotes = await me.subscribe("Quote", FILTER, follow=monitor)
        assert quotes.values == {"firm": "IBM", "last_buy": 10.0}
        prices = [9.0, 9.5, 7.0, 8.0, 6.0, 6.0]
        await feed.publish_batch("Quote", [{"firm": "IBM", "price": price} for price in prices])
        await feed.flush()
        await overlay.quiet()
        bought = []
        async for event in quotes:
            monitor.last_buy = event["price"]  # what waits here is evaluated again, as in the paper
            bought.append(event["price"])
            if event["price"] == 6.0:
                break
        assert bought == [9.0, 7.0, 6.0]
        await quotes.update()
        held = overlay.nodes["b1"].core.tables.peers["client/me"].subscriptions[quotes.id]
        assert held.values == {"firm": "IBM", "last_buy": 6.0}


@on_a_loop
async def test_an_assignment_is_in_force_at_once_for_what_all_subscriptions_read() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE)
        monitor = Monitor()
        await me.subscribe("Quote", FILTER, follow=monitor)
        deliveries = me.deliveries()
        for price in (9.0, 9.5, 7.0, 8.0):
            await me.publish("Quote", firm="IBM", price=price)
            await me.flush()
        bought: list[float] = []
        async for matches in deliveries:
            for price in matches.batch.values("price"):
                monitor.last_buy = price
                bought.append(price)
            if bought[-1] == 7.0:
                break
        assert bought == [9.0, 7.0]


@on_a_loop
async def test_assignments_of_one_turn_are_one_update() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), "me") as me:
        both = Slotted()
        quotes = await me.subscribe(QUOTE, "volume between $least and $most", follow=both)
        epoch = me.session.epoch
        both.least = 3
        both.most = 5
        both.least = 4
        assert me.session.epoch == epoch
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert me.session.epoch == epoch + 1
        assert quotes.values == {"least": 4, "most": 5}
        both.least = 4  # no other value
        await quotes.update()
        assert me.session.epoch == epoch + 1


@on_a_loop
async def test_some_variables_have_values_of_their_own() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        monitor = Monitor()
        quotes = await me.subscribe(QUOTE, FILTER, firm="HP", follow=monitor)
        monitor.firm, monitor.last_buy = "IBM", 3.0
        assert quotes.values == {"firm": "HP", "last_buy": 3.0}
        await quotes.update(firm="SAP")
        with pytest.raises(VariableError, match=r"\$last_buy follows Monitor.last_buy: expected an assign"):
            await quotes.update(last_buy=4.0)
        assert quotes.values == {"firm": "SAP", "last_buy": 3.0}


@on_a_loop
async def test_a_property_is_announced_as_it_is_read() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        checking = Checking()
        quotes = await me.subscribe(QUOTE, "price < $limit", follow=checking)
        checking.limit = 20.0
        assert quotes.values == {"limit": 8.0}


@on_a_loop
async def test_two_subscriptions_may_follow_an_object_until_they_end() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        monitor, other = Monitor(), Monitor()
        first = await me.subscribe(QUOTE, "price < $last_buy", follow=monitor)
        second = await me.subscribe(QUOTE, "price > $last_buy", follow=monitor)
        monitor.last_buy = other.last_buy = 4.0
        assert (first.values, second.values) == ({"last_buy": 4.0}, {"last_buy": 4.0})
        await first.unsubscribe()
        monitor.last_buy = 3.0
        assert (first.values, second.values) == ({"last_buy": 4.0}, {"last_buy": 3.0})
    monitor.last_buy = 2.0
    assert second.values == {"last_buy": 3.0}
    assert not followed_fields._FOLLOWED
    assert monitor == Monitor(2.0)


@on_a_loop
async def test_closing_announces_what_was_assigned_before_and_nothing_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Brokers() as overlay:
        me = Client(overlay.address("b1"), "me")
        await me.open()
        monitor = Monitor()
        quotes = await me.subscribe(QUOTE, "price < $last_buy", follow=monitor)
        monitor.last_buy = 4.0
        closing = asyncio.create_task(me.close())
        await asyncio.sleep(0)
        monitor.last_buy = 3.0
        await closing
        assert quotes.values == {"last_buy": 4.0}
        assert not followed_fields._FOLLOWED
    assert not [each for each in caplog.records if each.name == "asyncio"]


@on_a_loop
async def test_mistakes_are_one_sentence_and_change_nothing() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        monitor = Monitor()
        with pytest.raises(VariableError, match=r"\$most has no value, and Monitor no field most: expected"):
            await me.subscribe(QUOTE, "price < $most", follow=monitor)
        with pytest.raises(VariableError, match="follow of Monitor: expected a variable without a value in"):
            await me.subscribe(QUOTE, "price < 3", follow=monitor)
        with pytest.raises(VariableError, match="follow of int: expected an object of a class that"):
            await me.subscribe(QUOTE, "volume < $numerator", follow=1)
        with pytest.raises(VariableError, match=r"\$firm: value 3, expected"):
            await me.subscribe(QUOTE, FILTER, follow=Monitor(firm=3))  # type: ignore[arg-type]
        assert not followed_fields._FOLLOWED
        quotes = await me.subscribe(QUOTE, FILTER, follow=monitor)
        with pytest.raises(VariableError, match=r"\$last_buy: value 'low', expected"):
            monitor.last_buy = "low"  # type: ignore[assignment]
        assert (monitor, quotes.values) == (Monitor(), {"firm": "IBM", "last_buy": 10.0})
        await quotes.unsubscribe()
        monitor.last_buy = "low"  # type: ignore[assignment]


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBrokers]:
    with live_brokers() as live:
        yield live


def test_a_synchronous_client_follows_as_well(live: LiveBrokers) -> None:
    monitor = Monitor()
    with Client.sync(live.far, "follower") as client:
        quotes = client.subscribe("Quote", FILTER, follow=monitor)
        live.publish(("IBM", 9.0, 1), ("IBM", 9.5, 2), ("IBM", 8.0, 3))
        bought = []
        for event in quotes:
            monitor.last_buy = event["price"]
            bought.append(event["price"])
            if event["price"] == 8.0:
                break
        assert bought == [9.0, 8.0]
        monitor.last_buy = 7.0
        eventually(lambda: quotes.values == {"firm": "IBM", "last_buy": 7.0})
    monitor.last_buy = 6.0

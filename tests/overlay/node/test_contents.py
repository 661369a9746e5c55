"""Advertisements with content and reports of listeners, over real connections."""

from __future__ import annotations

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.overlay import Client, RefusedError

CHAIN = [("b1", "b2"), ("b2", "b3")]


@on_a_loop
async def test_events_outside_of_what_is_advertised_are_refused_to_their_publisher() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b3"), "feed") as feed,
        Client(overlay.address("b1")) as buyer,
    ):
        await feed.advertise(QUOTE, "price >= 100")
        cheap = await buyer.subscribe("Quote", "price < $limit", limit=50.0)
        assert not overlay.nodes["b3"].core.tables.types["Quote"].groups, "nothing of it can come"
        with pytest.raises(RefusedError, match="outside of what client/feed advertised, price >= 100"):
            await feed.publish("Quote", price=9.0, confirm=True)
        await cheap.update(limit=200.0)
        await feed.publish("Quote", price=150.0)
        assert (await asyncio.wait_for(anext(cheap), 60))["price"] == 150.0
        await feed.advertise(QUOTE)
        await feed.publish("Quote", price=9.0, confirm=True)
        assert (await asyncio.wait_for(anext(cheap), 60))["price"] == 9.0


@on_a_loop
async def test_a_publisher_is_notified_of_listeners() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b3"), "feed") as feed,
        Client(overlay.address("b1")) as buyer,
    ):
        with pytest.raises(RefusedError, match="not advertised"):
            await feed.listeners("Quote")
        await feed.advertise(QUOTE)
        listeners = await feed.listeners("Quote")
        assert not listeners
        changes = aiter(listeners)
        assert await asyncio.wait_for(anext(changes), 60) is False
        bought = await buyer.subscribe("Quote", "price < 5")
        assert await asyncio.wait_for(anext(changes), 60) is True
        assert listeners
        await bought.unsubscribe()
        assert await asyncio.wait_for(anext(changes), 60) is False
        await feed.unadvertise("Quote")
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(changes), 60)

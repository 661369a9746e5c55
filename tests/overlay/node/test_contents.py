"""Advertisements with content and reports of listeners, over real connections."""

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.overlay import Client, RefusedError

CHAIN = [("b1", "b2"), ("b2", "b3")]


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

"""Subscriptions that move by themselves, over real connections."""

from __future__ import annotations

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.matcher.errors import VariableError
from covey.overlay import Client, Motion

CHAIN = [("b1", "b2"), ("b2", "b3")]


@on_a_loop
async def test_a_limit_that_rises_by_itself_lets_more_through_without_any_message() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b3"), "feed") as feed,
        Client(overlay.address("b1")) as buyer,
    ):
        await feed.advertise(QUOTE)
        bought = await buyer.subscribe("Quote", "price < $limit", limit=Motion(0.0, 100.0))
        said = overlay.nodes["b3"].core.tables.peers["broker/b2"].received
        await feed.publish("Quote", price=1e6, volume=1)
        await asyncio.sleep(1.2)
        await feed.publish("Quote", price=60.0, volume=2)
        assert (await asyncio.wait_for(anext(bought), 60))["volume"] == 2
        assert overlay.nodes["b3"].core.tables.peers["broker/b2"].received == said
        await bought.update(limit=50.0)
        await feed.publish("Quote", price=60.0, volume=3)
        await feed.publish("Quote", price=40.0, volume=4)
        assert (await asyncio.wait_for(anext(bought), 60))["volume"] == 4
        with pytest.raises(VariableError, match="finite"):
            await bought.update(limit=Motion(1.0, float("inf")))
        assert bought.values == {"limit": 50.0}

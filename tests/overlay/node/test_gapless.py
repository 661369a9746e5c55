"""Updates without gaps, over real connections."""

from __future__ import annotations

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.overlay import Client
from covey.overlay.core.introspection.inspection import inspect

CHAIN = [("b1", "b2"), ("b2", "b3")]


@on_a_loop
@pytest.mark.parametrize("gapless", [True, False], ids=["gapless", "ordinary"])
async def test_events_published_after_a_gapless_call_are_delivered_before_the_update_arrives(
    gapless: bool,
) -> None:
    async with Brokers(CHAIN) as overlay:
        here, there = overlay.address("b1"), overlay.address("b3")
        async with Client(there, "feed") as feed, Client(here) as buyer:
            await feed.advertise(QUOTE)
            bought = await buyer.subscribe("Quote", "volume == $wanted", wanted=-1)
            for wanted in range(20):
                publishing = asyncio.gather(*(feed.publish("Quote", volume=wanted) for _ in range(10)))
                await asyncio.sleep(0)  # they are under way before the update is
                bought.update_nowait(wanted=wanted, gapless=gapless)
                await publishing
                await buyer.settled()
                if gapless:
                    for _ in range(10):
                        event = await asyncio.wait_for(anext(bought), 60)
                        assert event["volume"] == wanted
            replayed = sum(
                inspect(node.core)["types"]["Quote"]["replay"]["replayed"] for node in overlay.nodes.values()
            )
            assert (replayed > 0) == gapless
            if not gapless:
                assert bought.delivered < 200

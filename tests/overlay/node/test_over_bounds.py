"""Clients' state in a broker is bounded, and a filter of any length is harmless."""

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.matcher import EventType
from covey.overlay import Client, ConnectError, RefusedError
from covey.overlay.core.endpoint.quotas import Bounds


@on_a_loop
async def test_a_client_over_a_bound_is_refused_and_goes_on() -> None:
    bounds = Bounds(sessions=2, session_subscriptions=2, session_types=2, filter_bytes=100)
    async with Brokers(bounds=bounds) as overlay, Client(overlay.address("b1"), "c") as client:
        await client.advertise(QUOTE)
        first = await client.subscribe("Quote", "price < 5")
        second = await client.subscribe("Quote", "price < 6")
        with pytest.raises(RefusedError, match=r"client/c has 2 subscriptions: .* \(max_session_subs"):
            await client.subscribe("Quote", "price < 7")
        await second.unsubscribe()
        with pytest.raises(RefusedError, match=r"has \d+ bytes: expected at most 100"):
            await client.subscribe("Quote", " or ".join(f"price == {i}" for i in range(20)))
        third = await client.subscribe("Quote", "price < 7")
        await client.advertise(EventType("A", {"a": "int64"}))
        with pytest.raises(RefusedError, match="event type 'B' is one more than the 2 that client/c"):
            await client.advertise(EventType("B", {"a": "int64"}))
        async with Client(overlay.address("b1")):
            with pytest.raises(ConnectError, match="the broker has 2 sessions: expected at most 2") as raised:
                async with Client(overlay.address("b1")):
                    pass
            assert raised.value.status == "RESOURCE_EXHAUSTED"
        async with Client(overlay.address("b1")):
            pass
        await client.publish("Quote", price=1.0)
        for subscription in (first, third):
            assert (await asyncio.wait_for(anext(subscription), 60))["price"] == 1.0

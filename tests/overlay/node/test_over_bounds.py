"""What clients may create in a broker is bounded; a filter of any length does no harm."""

from __future__ import annotations

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


@on_a_loop
async def test_what_is_over_a_rate_is_refused_and_counted() -> None:
    bounds = Bounds(session_updates_per_s=1, session_events_per_s=1, filter_conjunctions=4)
    async with Brokers(bounds=bounds) as overlay, Client(overlay.address("b1"), "c") as client:
        await client.advertise(QUOTE)
        mine = await client.subscribe("Quote", "price < $limit", limit=5.0)

        async def update() -> None:
            for i in range(100):
                await mine.update(limit=float(i))

        async def publish() -> None:
            for _ in range(100):
                await client.publish("Quote", price=-1.0, confirm=True)

        with pytest.raises(RefusedError, match=r"an update: expected at most 1/s .*_updates_per_s"):
            await update()
        with pytest.raises(RefusedError, match=r"at most 1 events/s of client/c"):
            await publish()
        with pytest.raises(RefusedError, match="a normal form of 8 conjunctions"):
            await client.subscribe("Quote", " and ".join(f"(price < {i} or volume < {i})" for i in range(3)))
        assert (await asyncio.wait_for(anext(mine), 60))["price"] == -1.0
        assert overlay.nodes["b1"].endpoint.refused["RESOURCE_EXHAUSTED"] >= 3


@pytest.mark.thorough
@on_a_loop
async def test_a_long_filter_does_no_harm() -> None:
    """40,000 values made the engine ask for 24 GiB: brokers ended, or lost acknowledged events."""
    async with (
        Brokers([("b1", "b2")], bounds=Bounds(filter_bytes=1 << 20)) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b2")) as reader,
    ):
        await feed.advertise(QUOTE)
        values = ", ".join(str(10_000 + i) for i in range(40_000))
        long = await reader.subscribe("Quote", f"volume in ({values})")
        short = await reader.subscribe("Quote", "volume < 20000")
        await reader.settled(timeout=60)
        for volume in (9_999, 10_000, 49_999, 50_000):
            await feed.publish("Quote", volume=volume)
        assert [(await asyncio.wait_for(anext(long), 60))["volume"] for _ in range(2)] == [10_000, 49_999]
        assert [(await asyncio.wait_for(anext(short), 60))["volume"] for _ in range(2)] == [9_999, 10_000]

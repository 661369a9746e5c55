"""One stream for all subscriptions of a client, through live brokers."""

from __future__ import annotations

import asyncio

import pytest

from covey.matcher import EventType
from covey.overlay import Client, ClosedError
from covey.sim.local_overlay import LocalOverlay, chain

QUOTE = EventType("Quote", {"price": "float64"})


async def deliver_many() -> None:
    async with LocalOverlay(chain(2)) as overlay:
        at = overlay.addresses
        async with Client(at["b1"]) as exchange, Client(at["b2"]) as gateway:
            await exchange.advertise(QUOTE)
            limits = [float(limit) for limit in range(50)]
            held = await asyncio.gather(
                *(gateway.subscribe(QUOTE, "price < $limit", limit=limit) for limit in limits)
            )
            by_id = {subscription.id: limit for subscription, limit in zip(held, limits, strict=True)}
            deliveries = gateway.deliveries()
            prices = [47.5, 12.5, 60.0, 48.5]
            await exchange.publish_batch("Quote", [{"price": price} for price in prices])
            matches = await anext(deliveries)
            got = {
                (matches.batch.to_pylist()[row]["price"], by_id[subscription_id])
                for row, subscription_id in zip(matches.rows.tolist(), matches.ids.tolist(), strict=True)
            }
            assert got == {(price, limit) for price in prices for limit in limits if price < limit}

            await held[49].update(limit=1.0)
            await exchange.publish("Quote", price=47.5)
            await exchange.publish("Quote", price=0.5)
            later = [await anext(deliveries), await anext(deliveries)]
            assert later[0].ids.tolist() == [held[48].id]
            assert len(later[1].ids) == 49
        with pytest.raises((StopAsyncIteration, ClosedError)):
            await anext(deliveries)


def test_one_stream_gives_what_all_subscriptions_would() -> None:
    asyncio.run(deliver_many())

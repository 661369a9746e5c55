"""`Subscription.read`: the next events as a table, up to a time, a condition or a number."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from running import QUOTE, Brokers, on_a_loop, two_clients, until

from covey.matcher import EventType
from covey.overlay import Client, Subscription


def prices(table: pa.Table) -> list[float]:
    values: list[float] = table["price"].to_pylist()
    return values


@on_a_loop
async def test_events_up_to_a_number_a_condition_or_a_time() -> None:
    async with two_clients(QUOTE) as (overlay, feed, me):
        quotes = await me.subscribe(QUOTE, "price < $limit", limit=100)
        await feed.publish_batch("Quote", [{"firm": "IBM", "price": float(i)} for i in range(10)])
        await feed.publish_batch("Quote", [{"price": float(i)} for i in range(10, 20)])
        await feed.flush()
        await overlay.quiet()
        table = await quotes.read(limit=3)
        assert table.schema == QUOTE.arrow_schema
        assert table.to_pylist()[0] == {"firm": "IBM", "price": 0.0, "volume": None}
        assert prices(table) == [0.0, 1.0, 2.0]
        assert (await anext(quotes))["price"] == 3.0  # single events and tables may take turns
        assert prices(await quotes.read(until=lambda event: event["price"] == 5.0)) == [4.0, 5.0]
        assert prices(await quotes.read(until=lambda event: event["price"] > 90, limit=6)) == [
            float(i) for i in range(6, 12)
        ]
        assert (quotes.delivered, quotes.spurious) == (12, 0)
        await quotes.update(limit=14.0)
        await feed.publish("Quote", price=13.5, confirm=True)
        await overlay.quiet()
        assert prices(await quotes.read(until=0)) == [12.0, 13.0, 13.5]  # what does not match any more is out
        assert (quotes.delivered, quotes.spurious) == (15, 6)
        empty = await quotes.read(until=0.05)
        assert (empty.num_rows, empty.schema) == (0, QUOTE.arrow_schema)


@on_a_loop
async def test_events_between_others_that_do_not_match_any_more() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE)
        quotes = await me.subscribe(QUOTE, "price < $limit", limit=100)
        rows = [{"price": float(price)} for price in (1, 50, 2, 51, 52, 3, 4)]
        await me.publish_batch("Quote", rows, confirm=True)
        await overlay.quiet()
        quotes.update_nowait(limit=10)
        assert prices(await quotes.read(limit=2)) == [1.0, 2.0]
        assert (quotes.delivered, quotes.spurious) == (2, 1)
        quotes.update_nowait(limit=4)
        assert prices(await quotes.read(until=0)) == [3.0]
        assert (quotes.delivered, quotes.spurious) == (3, 4)


@on_a_loop
async def test_it_waits_and_ends_with_the_subscription_and_follows_a_wider_type() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(QUOTE)
        quotes = await me.subscribe(QUOTE)
        reading = asyncio.create_task(quotes.read(limit=3))
        await me.publish("Quote", price=1.0, confirm=True)
        await until(lambda: quotes.delivered == 1)
        await me.widen(EventType("Quote", {"venue": "string"}))
        await me.publish("Quote", price=2.0, venue="X", confirm=True)
        await until(lambda: quotes.delivered == 2)
        await quotes.unsubscribe()
        table = await reading
        assert table["venue"].to_pylist() == [None, "X"]
        assert (await quotes.read(limit=1)).num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "read() without until and limit: expected one of them"),
        ({"limit": 0}, "limit is 0: expected a number of events, from 1 on"),
        ({"limit": 2.0}, "limit is 2.0: expected a number of events, from 1 on"),
        ({"until": -1}, "until is -1: expected seconds from 0 on, or a function of an event"),
        ({"until": float("nan")}, "until is nan: expected seconds from 0 on, or a function of an event"),
        ({"until": "noon"}, "until is 'noon': expected seconds from 0 on, or a function of an event"),
    ],
)
def test_what_it_does_not_understand(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        Subscription.read(object.__new__(Subscription), **arguments).send(None)
    assert str(raised.value) == reason

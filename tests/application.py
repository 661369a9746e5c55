"""A small application of Covey, type-checked and run beside the wheel (`test_wheel.py`):
`python tests/application.py localhost:7001`."""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from covey.matcher import EventBatch, EventType, F, Matcher, Var, parse
from covey.overlay import Client, Gap, RefusedError, Subscription, SyncSubscription

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
PRICES = (11.0, 9.5, 9.7, 9.0)


async def lows(quotes: Subscription) -> list[float]:
    """Follow a price down: each low that is bought is the new limit."""
    bought: list[float] = []
    async for event in quotes:
        bought.append(float(event["price"]))
        await quotes.update(limit=bought[-1])
        if bought[-1] == min(PRICES):
            break
    return bought


async def volumes(quotes: Subscription) -> int:
    """The volume of whole batches, by columns."""
    total, events = 0, 0
    async for batch in quotes.batches():
        total += sum(row["volume"] for row in batch.to_pylist())
        events += len(batch)
        if events == len(PRICES):
            break
    return total


def matched() -> list[int]:
    """The ids of the subscriptions that a batch matches, in this process."""
    matcher = Matcher(QUOTE, threads=1)
    below = parse("price < $limit", QUOTE)
    matcher.add(1, below, {"limit": 10.0})
    matcher.add_many(np.arange(2, 4), below, {"limit": np.array([9.0, 9.6])})
    matcher.update(1, {"limit": 9.4})
    offsets, ids = matcher.match(EventBatch.from_pylist(QUOTE, [{"price": 9.5}])).ordered()
    return [int(each) for each in ids[offsets[0] : offsets[1]]]


async def main(address: str) -> None:
    gaps: list[Gap] = []
    async with Client(address, name="exchange") as exchange, Client(address, on_gap=gaps.append) as trader:
        await exchange.advertise(QUOTE)
        limited = await trader.subscribe(QUOTE, (F.firm == "IBM") & (F.price < Var("limit")), limit=10.0)
        whole = await trader.subscribe("Quote", "volume >= 100")
        reading = asyncio.gather(lows(limited), volumes(whole))
        for price in PRICES[:2]:
            await exchange.publish("Quote", firm="IBM", price=price, volume=100, confirm=True)
        batch = [{"firm": "IBM", "price": price, "volume": 100} for price in PRICES[2:]]
        await exchange.publish_batch("Quote", batch)
        bought, volume = await reading
        try:
            await trader.subscribe("Bond", "price < 1")
        except RefusedError as error:
            print(error.status, bought[0], bought[-1], volume, matched(), len(gaps))


def scripted(address: str) -> tuple[list[float], int, str]:
    """The same without an event loop: prices by single events, the rows of a table, a change of a view."""
    with Client.sync(address, name="script") as client:
        client.advertise(QUOTE)
        limited = client.subscribe(QUOTE, "price < $limit", limit=10.0)
        whole: SyncSubscription = client.subscribe("Quote", (F.firm == "IBM"), max_rate=None)
        client.publish_batch("Quote", [{"firm": "IBM", "price": price, "volume": 100} for price in PRICES])
        client.publish_nowait("Quote", {"firm": "HP"}, price=9.0)
        client.flush()
        bought: list[float] = []
        for event in limited:
            bought.append(float(event["price"]))
            client.update_many({limited: {"limit": bought[-1]}, whole: {}}, timeout=10.0)
            if event["price"] == min(PRICES):
                break
        rows = len(whole.read(until=lambda event: event["price"] == 9.0, limit=9))
        client.advertise(EventType("Vehicle", {"id": "string", "x": "float64"}, key="id"))
        view = client.view("Vehicle", "x < $most", most=5.0)
        client.publish("Vehicle", id="a", x=3.0)
        return bought, rows + client.refused, next(view).kind


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print(*scripted(sys.argv[1]))

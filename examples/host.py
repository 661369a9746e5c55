"""Publishes and subscribes from the host: against the containers of docker-compose.yml, or `covey up` here.

    python examples/host.py [host]

The exchange publishes falling and rising prices at broker b5. A trader at b4 buys whenever IBM is cheaper
than at its last purchase, and every purchase updates its threshold at all five brokers before the next price
is published. So exactly the new lows are delivered; the program exits with 0 in this case, else with 1.
"""

from __future__ import annotations

import asyncio
import sys

from covey.matcher import EventType
from covey.overlay import Client, Subscription

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
PRICES = (9.5, 9.7, 9.0, 9.2, 8.8, 9.9, 8.1, 8.4, 7.7)
LOWS = [9.5, 9.0, 8.8, 8.1, 7.7]


async def buy(quotes: Subscription, bought: list[float]) -> None:
    async for event in quotes:
        bought.append(event["price"])
        await quotes.update(limit=event["price"])
        print(f"bought at {event['price']}; threshold updated")


async def main(host: str) -> int:
    async with Client(f"{host}:7005") as exchange, Client(f"{host}:7004") as trader:
        await exchange.advertise(QUOTE)
        quotes = await trader.subscribe(QUOTE, 'firm == "IBM" and price < $limit', limit=10.0)
        bought: list[float] = []
        buyer = asyncio.create_task(buy(quotes, bought))
        for price in PRICES:
            await exchange.publish("Quote", firm="IBM", price=price, volume=100)
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)
        buyer.cancel()
    print("all new lows delivered" if bought == LOWS else f"expected {LOWS}, got {bought}")
    return 0 if bought == LOWS else 1


sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost")))

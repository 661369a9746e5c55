import asyncio

from covey.matcher import EventType
from covey.overlay import Client

quote = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})


async def main() -> None:
    async with Client("localhost:7005", name="exchange") as exchange, Client("localhost:7001") as trader:
        await exchange.advertise(quote)
        quotes = await trader.subscribe("Quote", 'firm == "IBM" and price < $limit', limit=10.0)
        for price in (11.0, 9.5, 9.7, 9.0):
            await exchange.publish("Quote", firm="IBM", price=price, volume=100)
        async for event in quotes:
            print("bought at", event["price"])
            await quotes.update(limit=event["price"])  # returns once the overlay has applied it
            if event["price"] == 9.0:
                break


asyncio.run(main())

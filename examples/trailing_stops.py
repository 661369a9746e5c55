"""Trailing stops over a CSV of closing prices with the columns date, firm and price.

covey up examples/five.yaml, then python examples/trailing_stops.py closes.csv sales.csv

Each firm is held from its first price on. Its stop is 5 % below its highest price, and it is sold at the
first price below that: the trader gets these prices and new highs alone.
"""

import sys

import pandas as pd

from covey.matcher import EventType
from covey.overlay import Client

close = EventType("Close", {"date": "timestamp", "firm": "string", "price": "float64"})
STOP = 'firm == "end of day" or firm == $firm and (price > $high or price < 0.95 * $high)'

closes = pd.read_csv(sys.argv[1], parse_dates=["date"])
sales = []
with Client.sync("localhost:7005") as exchange, Client.sync("localhost:7001") as trader:
    exchange.advertise(close)
    first = closes.groupby("firm")["price"].first()
    stops = {firm: trader.subscribe(close, STOP, firm=firm, high=price) for firm, price in first.items()}
    for _, day in closes.groupby("date"):
        exchange.publish_batch("Close", day)  # a DataFrame
        exchange.publish("Close", firm="end of day")
        highs = {}
        for firm, stop in list(stops.items()):
            news = stop.read(until=lambda event: event["firm"] == "end of day").to_pandas()
            for row in news[news["firm"] == firm].itertuples(index=False):
                if row.price > stop.values["high"]:
                    highs[stop] = {"high": row.price}
                else:
                    sales.append(row)
                    stops.pop(firm).unsubscribe()
        trader.update_many(highs)  # all of them in one frame; returns once every broker has them
pd.DataFrame(sales, columns=close.names).to_csv(sys.argv[2], index=False)

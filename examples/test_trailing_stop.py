"""A test of an application without ports: pytest examples/test_trailing_stop.py"""

from covey.matcher import EventType
from covey.overlay import Client, SyncSubscription
from covey.testing import StartOverlay, overlay

__all__ = ["overlay"]  # the fixture

quote = EventType("Quote", {"firm": "string", "price": "float64"})


def follow_down(quotes: SyncSubscription) -> list[float]:
    """What is tested: each price below the last one is bought, and is the next limit."""
    bought = []
    for row in quotes.read(until=0).to_pylist():
        if row["price"] < quotes.values["limit"]:
            quotes.update(limit=row["price"])
            bought.append(row["price"])
    return bought


def test_only_new_lows_are_bought(overlay: StartOverlay) -> None:
    brokers = overlay(brokers=3)
    with Client.sync(brokers.address("b1")) as exchange, Client.sync(brokers.address("b3")) as trader:
        exchange.advertise(quote)
        quotes = trader.subscribe("Quote", 'firm == "IBM" and price < $limit', limit=10.0)
        for price in (11.0, 9.5, 9.7, 9.0):
            exchange.publish("Quote", firm="IBM", price=price, confirm=True)
        brokers.quiet()  # all that was published has arrived
        assert follow_down(quotes) == [9.5, 9.0]
        exchange.publish("Quote", firm="IBM", price=9.2, confirm=True)
        brokers.quiet()
        assert quotes.read(until=0).num_rows == 0  # nothing came: the overlay has the new limit

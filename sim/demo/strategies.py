"""The three subscribers of the demonstration: what each wants, and how what it gets moves its threshold.

A strategy says what it wants twice: as a filter for the overlay, and in plain Python for the oracle, which so
shares nothing with the matcher that it judges. Everything here is a pure function of an event and the values
in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Quote = Mapping[str, Any]
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A subscriber at one broker.

    `wants(quote, values)` is the filter's meaning in Python; `move(quote, values)` gives the values after a
    quote that it wanted, and differs from `values` whenever the subscription is to move.
    """

    name: str
    broker: str
    filter: str
    start: Values
    wants: Callable[[Quote, Values], bool]
    move: Callable[[Quote, Values], Values]


BUY_LOWER = Strategy(
    name="buy lower",
    broker="b4",
    filter='firm == "IBM" and price < $limit',
    start={"limit": 1000.0},
    wants=lambda quote, values: quote["firm"] == "IBM" and quote["price"] < values["limit"],
    move=lambda quote, values: {"limit": quote["price"]},
)
"""The paper's example (Jayaram et al., 3.2): buy below the lowest price paid so far; buying moves it."""

MOVING_BAND = Strategy(
    name="moving band",
    broker="b2",
    filter='firm == "AAPL" and (price < 0.98 * $last or price > 1.02 * $last)',
    start={"last": 0.0},
    wants=lambda quote, values: (
        quote["firm"] == "AAPL"
        and (quote["price"] < 0.98 * values["last"] or quote["price"] > 1.02 * values["last"])
    ),
    move=lambda quote, values: {"last": quote["price"]},
)
"""A quote that lies 2 % or more off the last one seen; one variable moves both edges of the band."""

UNUSUAL_VOLUME = Strategy(
    name="unusual volume",
    broker="b1",
    filter='firm == "MSFT" and (volume > $busy or volume < $quiet)',
    start={"busy": 0.0, "quiet": 0.0},
    wants=lambda quote, values: (
        quote["firm"] == "MSFT" and (quote["volume"] > values["busy"] or quote["volume"] < values["quiet"])
    ),
    move=lambda quote, values: {"busy": 1.3 * quote["volume"], "quiet": quote["volume"] / 1.3},
)
"""A day with far more or far less trade than the last one reported; two variables move in one update."""

STRATEGIES = (BUY_LOWER, MOVING_BAND, UNUSUAL_VOLUME)

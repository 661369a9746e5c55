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
    quote that it wanted: the same ones if the subscription is to stay as it is.
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
    filter='firm == "AAPL" and (price < $low or price > $high)',
    start={"low": 0.0, "high": 0.0},
    wants=lambda quote, values: (
        quote["firm"] == "AAPL" and (quote["price"] < values["low"] or quote["price"] > values["high"])
    ),
    move=lambda quote, values: {"low": 0.96 * quote["price"], "high": 1.04 * quote["price"]},
)
"""A quote that lies 4 % off the last price reported; both edges of the band move in one update."""


def _usual_volume(quote: Quote, values: Values) -> Values:
    """Follows the volume in steps: up where twice as much was traded, down where less than 80 % was."""
    volume, usual = quote["volume"], values["usual"]
    if volume > 2.0 * usual:
        return {"usual": 1.3 * usual}
    if volume < 0.8 * usual:
        return {"usual": 0.9 * usual}
    return values


BUSY_DAYS = Strategy(
    name="busy days",
    broker="b1",
    filter='firm == "MSFT" and volume > 0.7 * $usual',
    start={"usual": 1_000_000.0},
    wants=lambda quote, values: quote["firm"] == "MSFT" and quote["volume"] > 0.7 * values["usual"],
    move=_usual_volume,
)
"""Days with no less than 70 % of the usual trade: most quotes arrive, and few of them move the threshold."""

STRATEGIES = (BUY_LOWER, MOVING_BAND, BUSY_DAYS)

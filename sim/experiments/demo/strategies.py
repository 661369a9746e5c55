"""The three subscribers of the demonstration: their filters, and how delivered quotes move their thresholds.

A strategy states its condition twice: as a filter for the overlay, and in Python for the oracle, which
therefore shares nothing with the matcher. All functions are pure functions of an event and the current
values.
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

    `matches(quote, values)` is the filter in Python; `move(quote, values)` returns the values after a
    matching quote, unchanged if the subscription remains the same.
    """

    name: str
    broker: str
    filter: str
    start: Values
    matches: Callable[[Quote, Values], bool]
    move: Callable[[Quote, Values], Values]


BUY_LOWER = Strategy(
    name="buy lower",
    broker="b4",
    filter='firm == "IBM" and price < $limit',
    start={"limit": 1000.0},
    matches=lambda quote, values: quote["firm"] == "IBM" and quote["price"] < values["limit"],
    move=lambda quote, values: {"limit": quote["price"]},
)
"""The paper's example (Jayaram et al., 3.2): buy below the lowest price paid so far; a purchase lowers it."""

MOVING_BAND = Strategy(
    name="moving band",
    broker="b2",
    filter='firm == "AAPL" and (price < $low or price > $high)',
    start={"low": 0.0, "high": 0.0},
    matches=lambda quote, values: (
        quote["firm"] == "AAPL" and (quote["price"] < values["low"] or quote["price"] > values["high"])
    ),
    move=lambda quote, values: {"low": 0.96 * quote["price"], "high": 1.04 * quote["price"]},
)
"""Quotes that differ by 4 % from the last one delivered; one update moves both bounds of the band."""


def _usual_volume(quote: Quote, values: Values) -> Values:
    """Follows the volume in steps: up above twice the usual volume, down below 80 % of it."""
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
    matches=lambda quote, values: quote["firm"] == "MSFT" and quote["volume"] > 0.7 * values["usual"],
    move=_usual_volume,
)
"""Days with more than 70 % of the usual volume: most quotes match, and few of them move the threshold."""

STRATEGIES = (BUY_LOWER, MOVING_BAND, BUSY_DAYS)

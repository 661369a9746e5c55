"""12,154 daily quotes of AAPL, FB, GOOG, IBM and MSFT, 2000 to 2013, from the package `bokeh-sampledata`.

They become one Arrow batch ordered by (date, firm), and no two quotes share both. Reading them needs nothing
else from 2026.1 on, so `pip install --no-deps bokeh-sampledata` is enough; earlier releases import pandas.

Daily quotes of five firms as a load: traders move their thresholds around the last published price.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher import EventBatch, EventType, parse
from covey.sim.extras import need
from covey.sim.scenario.load import Load, LoadError, SubscriberState

if TYPE_CHECKING:
    from covey.sim.topology import Topology

QUOTE = EventType(
    "Quote",
    {
        "firm": "string",
        "date": "timestamp",
        "price": "float64",
        "volume": "int64",
        "open": "float64",
        "high": "float64",
        "low": "float64",
    },
)
"""One firm's trading day; `price` is the closing price."""

FIRMS = ("AAPL", "FB", "GOOG", "IBM", "MSFT")


def load_quotes() -> pa.RecordBatch:
    """All quotes, ordered by (date, firm), with the schema of `QUOTE`.

    Raises `CoveyError` naming the package to install if it is missing.
    """
    need("a replay of quotes", "bokeh_sampledata.stocks")
    from bokeh_sampledata import stocks

    rows = []
    for firm in FIRMS:
        data = getattr(stocks, firm)
        columns = (data[name] for name in ("date", "close", "volume", "open", "high", "low"))
        rows += [
            (datetime.fromisoformat(date).replace(tzinfo=UTC), firm, *numbers)
            for date, *numbers in zip(*columns, strict=True)
        ]
    rows.sort(key=lambda row: row[:2])
    dates, firms, *numbers = map(list, zip(*rows, strict=True))
    return pa.record_batch([firms, dates, *numbers], schema=QUOTE.arrow_schema)


class QuotesLoad(Load):
    """Publishers share the firms; each replays its firms' days in order and starts again after the last."""

    FILTERS = tuple(parse(f"firm == $firm and price {sign} $limit", QUOTE) for sign in ("<=", ">="))

    def __init__(self, topology: Topology, publishers: int, rng: random.Random) -> None:
        if publishers > len(FIRMS):
            raise LoadError(
                f"quotes: {publishers} publishers; expected at most {len(FIRMS)}, one for each firm"
            )
        self._random = rng
        self._exchanges = topology.with_role("exchange") or topology.brokers
        self._firms = topology.with_role("firm") or topology.brokers
        quotes = load_quotes()
        self._quotes_of = [
            quotes.filter(pc.is_in(quotes.column("firm"), value_set=pa.array(FIRMS[number::publishers])))
            for number in range(publishers)
        ]
        self._next = [0] * publishers
        self._last: dict[str, float] = {}
        for firm, price in zip(*(quotes.column(c).to_pylist() for c in ("firm", "price")), strict=True):
            self._last.setdefault(firm, price)

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._exchanges[number % len(self._exchanges)], [QUOTE]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        quotes = self._quotes_of[number]
        if self._next[number] >= quotes.num_rows:
            self._next[number] = 0
        part = quotes.slice(self._next[number], count)
        self._next[number] += part.num_rows
        for firm, price in zip(*(part.column(c).to_pylist() for c in ("firm", "price")), strict=True):
            self._last[firm] = price
        return EventBatch.from_arrow(QUOTE, part)

    def _limit(self, firm: str) -> float:
        return round(self._last[firm] * self._random.uniform(0.9, 1.1), 2)

    def subscriber(self, number: int) -> SubscriberState:
        firm = self._random.choice(FIRMS)
        values = {"firm": firm, "limit": self._limit(firm)}
        return SubscriberState(self._random.choice(self.FILTERS), values, self._random.choice(self._firms))

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        return {"limit": self._limit(subscriber.values["firm"])}, subscriber.broker

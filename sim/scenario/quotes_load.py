"""Daily quotes of five firms as a load: traders move their thresholds around the last published price."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher import EventBatch, EventType, parse
from covey.sim.scenario.load import Load, LoadError, SubscriberState
from covey.sim.scenario.quotes import FIRMS, QUOTE, load_quotes
from covey.sim.topology import Topology


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

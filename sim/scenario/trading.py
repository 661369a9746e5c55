"""The algorithmic trading (AT) of Jayaram et al., section 5.5: thresholds on prices of many event types.

35 % of the thresholds are `<=`, 33 % `>=` and 32 % `==`; publishers are at exchanges, subscribers at firms.
"""

from __future__ import annotations

import random
from typing import Any

from covey.matcher import EventBatch, EventType, parse
from covey.sim.scenario.load import Load, LoadError, SubscriberState
from covey.sim.topology import Topology

_PRICES = 100
_OPERATORS = (("<=", 0.35), (">=", 0.33), ("==", 0.32))


class TradingLoad(Load):
    """Prices and thresholds are integers below 100, so that `==` matches now and then."""

    def __init__(self, topology: Topology, publishers: int, rng: random.Random, types: int = 200) -> None:
        if types < publishers:
            raise LoadError(
                f"trading: {publishers} publishers of {types} types; expected at least one type per publisher"
            )
        self._random = rng
        self._exchanges = topology.with_role("exchange") or topology.brokers
        self._firms = topology.with_role("firm") or topology.brokers
        self._types = [
            EventType(f"Trade{i:03d}", {"price": "int64", "volume": "int64"}) for i in range(types)
        ]
        self._types_of = [self._types[i::publishers] for i in range(publishers)]
        self._filters = [
            [parse(f"price {operator} $limit", event_type) for operator, _ in _OPERATORS]
            for event_type in self._types
        ]

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._exchanges[number % len(self._exchanges)], self._types_of[number]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        draw = draw or self._random
        rows = [{"price": draw.randrange(_PRICES), "volume": draw.randint(1, 1000)} for _ in range(count)]
        return EventBatch.from_pylist(draw.choice(self._types_of[number]), rows)

    def subscriber(self, number: int) -> SubscriberState:
        draw = self._random
        filters = draw.choice(self._filters)
        filter = draw.choices(filters, [share for _, share in _OPERATORS])[0]
        return SubscriberState(filter, {"limit": draw.randrange(_PRICES)}, draw.choice(self._firms))

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        return {"limit": self._random.randrange(_PRICES)}, subscriber.broker


class MarketLoad(TradingLoad):
    """AT for a system without event types, such as Siena: the commodity is an attribute, and one poset holds
    all filters. It draws the same events and values as `TradingLoad`."""

    TRADE = EventType("Trade", {"commodity": "string", "price": "int64", "volume": "int64"})

    def __init__(self, topology: Topology, publishers: int, rng: random.Random, types: int = 200) -> None:
        super().__init__(topology, publishers, rng, types)
        self._filters = [
            [
                parse(f'commodity == "{event_type.name}" and price {operator} $limit', self.TRADE)
                for operator, _ in _OPERATORS
            ]
            for event_type in self._types
        ]

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return super().publisher(number)[0], [self.TRADE]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        batch = super().events(number, count, draw)
        rows = [{"commodity": batch.event_type.name, **row} for row in batch.to_pylist()]
        return EventBatch.from_pylist(self.TRADE, rows)

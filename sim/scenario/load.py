"""What clients do in a simulated run: who publishes and subscribes where, what they say, and how it moves.

`TradingLoad` is the algorithmic trading (AT) of Jayaram et al., section 5.5: 200 event types, thresholds on
prices, 35 % `<=`, 33 % `>=` and 32 % `==`; publishers at exchanges, subscribers at firms; `MarketLoad` is the
same with one event type. `HighwayLoad` is the highway traffic management (HTM) of section 5.4: sensors at
every broker, vehicles that drive along their road and ask for the traffic around them, of whose predicates
40 % are `>=`, 40 % `<=` and 20 % `==`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import hypot
from typing import Any

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.matcher.errors import CoveyError
from covey.sim.topology import Topology


class LoadError(CoveyError, ValueError):
    """The load does not go with the topology."""


@dataclass(slots=True)
class Wish:
    """A subscription of one subscriber: the filter, its values, and the broker that it belongs at."""

    filter: Filter
    values: dict[str, Any]
    broker: str


class Load(ABC):
    """Draws everything from one generator, so that the same seed gives the same load."""

    @abstractmethod
    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        """The broker of a publisher, and the types that it advertises."""

    @abstractmethod
    def events(self, number: int, count: int) -> EventBatch:
        """Events of one type from a publisher."""

    @abstractmethod
    def wish(self, number: int) -> Wish:
        """What a subscriber wants first, and where."""

    @abstractmethod
    def move(self, number: int, wish: Wish) -> tuple[dict[str, Any], str]:
        """The next values of a subscriber, and the broker that it belongs at now."""


_PRICES = 100
_AT_OPERATORS = (("<=", 0.35), (">=", 0.33), ("==", 0.32))


class TradingLoad(Load):
    """AT: prices and thresholds are whole numbers below 100, so that `==` matches now and then."""

    def __init__(self, topology: Topology, publishers: int, rng: random.Random, types: int = 200) -> None:
        if types < publishers:
            raise LoadError(
                f"trading: {publishers} publishers of {types} types; expected a type for each at least"
            )
        self._random = rng
        self._exchanges = topology.with_role("exchange") or topology.brokers
        self._firms = topology.with_role("firm") or topology.brokers
        self._types = [
            EventType(f"Trade{i:03d}", {"price": "int64", "volume": "int64"}) for i in range(types)
        ]
        self._mine = [self._types[i::publishers] for i in range(publishers)]
        self._filters = [
            [parse(f"price {operator} $limit", event_type) for operator, _ in _AT_OPERATORS]
            for event_type in self._types
        ]

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._exchanges[number % len(self._exchanges)], self._mine[number]

    def events(self, number: int, count: int) -> EventBatch:
        draw = self._random
        rows = [{"price": draw.randrange(_PRICES), "volume": draw.randint(1, 1000)} for _ in range(count)]
        return EventBatch.from_pylist(draw.choice(self._mine[number]), rows)

    def wish(self, number: int) -> Wish:
        draw = self._random
        filters = draw.choice(self._filters)
        filter = draw.choices(filters, [share for _, share in _AT_OPERATORS])[0]
        return Wish(filter, {"limit": draw.randrange(_PRICES)}, draw.choice(self._firms))

    def move(self, number: int, wish: Wish) -> tuple[dict[str, Any], str]:
        return {"limit": self._random.randrange(_PRICES)}, wish.broker


class MarketLoad(TradingLoad):
    """AT as a system without event types has it, such as Siena: what is traded is an attribute, and one poset
    holds all filters. Draws what `TradingLoad` draws."""

    TRADE = EventType("Trade", {"commodity": "string", "price": "int64", "volume": "int64"})

    def __init__(self, topology: Topology, publishers: int, rng: random.Random, types: int = 200) -> None:
        super().__init__(topology, publishers, rng, types)
        self._filters = [
            [
                parse(f'commodity == "{kind.name}" and price {operator} $limit', self.TRADE)
                for operator, _ in _AT_OPERATORS
            ]
            for kind in self._types
        ]

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return super().publisher(number)[0], [self.TRADE]

    def events(self, number: int, count: int) -> EventBatch:
        drawn = super().events(number, count)
        commodity = drawn.event_type.name
        rows = [{"commodity": commodity, **row} for row in drawn.to_pylist()]
        return EventBatch.from_pylist(self.TRADE, rows)


_AROUND = 60.0
"""A vehicle asks for the traffic up to so far away; the city is 1000 x 1000."""
_STEP = 15.0


class HighwayLoad(Load):
    """HTM: the topology has places and roads (its roles), as the kind `highway` has."""

    TRAFFIC = EventType("Traffic", {"road": "string", "x": "float64", "y": "float64", "density": "float64"})
    AROUND = parse(
        f"road == $road and x >= $x - {_AROUND} and x <= $x + {_AROUND} "
        f"and y >= $y - {_AROUND} and y <= $y + {_AROUND}",
        TRAFFIC,
    )

    def __init__(self, topology: Topology, publishers: int, rng: random.Random) -> None:
        if set(topology.positions) != set(topology.brokers) or set(topology.roles) != set(topology.brokers):
            raise LoadError(
                f"highway: topology {topology.name} has no places and roads; expected kind highway"
            )
        self._random = rng
        self._topology = topology
        self._roads: dict[str, list[str]] = {}
        for broker in topology.brokers:
            self._roads.setdefault(topology.roles[broker], []).append(broker)
        self._sensors = [
            (broker, self._near(broker)) for broker in (self._broker(i) for i in range(publishers))
        ]
        self._forward: dict[int, int] = {}

    def _broker(self, number: int) -> str:
        return self._topology.brokers[number % len(self._topology.brokers)]

    def _near(self, broker: str) -> tuple[float, float]:
        """A place on the stretch of a broker."""
        x, y = self._topology.positions[broker]
        away = self._random.uniform(-80.0, 80.0)
        return (x + away, y) if self._topology.roles[broker].startswith("west") else (x, y + away)

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._sensors[number][0], [self.TRAFFIC]

    def events(self, number: int, count: int) -> EventBatch:
        broker, (x, y) = self._sensors[number]
        road = self._topology.roles[broker]
        rows = [
            {"road": road, "x": x, "y": y, "density": round(self._random.uniform(0.0, 500.0), 1)}
            for _ in range(count)
        ]
        return EventBatch.from_pylist(self.TRAFFIC, rows)

    def wish(self, number: int) -> Wish:
        broker = self._broker(number)
        x, y = self._near(broker)
        self._forward[number] = self._random.choice((-1, 1))
        return Wish(self.AROUND, {"road": self._topology.roles[broker], "x": x, "y": y}, broker)

    def move(self, number: int, wish: Wish) -> tuple[dict[str, Any], str]:
        """Drive on along the road, turning back at its ends; the broker is the nearest on the road."""
        road = wish.values["road"]
        axis = "x" if road.startswith("west") else "y"
        along = wish.values[axis] + self._forward[number] * self._random.uniform(0.0, _STEP)
        if not 0.0 <= along <= 1000.0:
            self._forward[number] = -self._forward[number]
            along = min(max(along, 0.0), 1000.0)
        place = {**wish.values, axis: along}
        nearest = min(self._roads[road], key=lambda b: self._distance(b, place["x"], place["y"]))
        return {axis: along}, nearest

    def _distance(self, broker: str, x: float, y: float) -> float:
        u, v = self._topology.positions[broker]
        return hypot(u - x, v - y)

"""The loads of Jayaram et al.: algorithmic trading (AT, section 5.5), with thresholds on prices of many event
types, and highway traffic management (HTM, section 5.4), whose vehicles drive along their road from broker to
broker. In AT 35 % of the thresholds are `<=`, 33 % `>=` and 32 % `==`; in HTM 40 % of the predicates are
`>=`, 40 % `<=` and 20 % `==`."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Any

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.matcher.errors import CoveyError

if TYPE_CHECKING:
    from covey.sim.topology import Topology


class LoadError(CoveyError, ValueError):
    """The load does not fit the topology or its input files."""


@dataclass(slots=True)
class SubscriberState:
    filter: Filter
    values: dict[str, Any]
    broker: str


class Load(ABC):
    """Draws everything from one generator, so that the same seed gives the same load.

    Only events may be drawn from another one, since with a window the time at which they are drawn depends on
    the system.
    """

    @abstractmethod
    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        """The publisher's broker and the types that it advertises."""

    @abstractmethod
    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        """Events of one type from a publisher, drawn from `draw` if given."""

    @abstractmethod
    def subscriber(self, number: int) -> SubscriberState:
        """The subscriber's initial state."""

    @abstractmethod
    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        """The subscriber's next values and its broker from then on."""


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
    """AT for a system without event types, such as Siena: the commodity is an attribute. Draws the same
    events and values as `TradingLoad`."""

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


_AROUND = 60.0
"""Half the edge of a vehicle's box; the city is 1000 x 1000."""
_STEP = 15.0


class HighwayLoad(Load):
    """Needs a topology with positions and roads (its roles), such as the kind `highway`."""

    TRAFFIC = EventType("Traffic", {"road": "string", "x": "float64", "y": "float64", "density": "float64"})
    AROUND = parse(
        f"road == $road and x >= $x - {_AROUND} and x <= $x + {_AROUND} "
        f"and y >= $y - {_AROUND} and y <= $y + {_AROUND}",
        TRAFFIC,
    )

    def __init__(self, topology: Topology, publishers: int, rng: random.Random) -> None:
        if set(topology.positions) != set(topology.brokers) or set(topology.roles) != set(topology.brokers):
            raise LoadError(
                f"highway: topology {topology.name} has no positions and roads; expected kind highway"
            )
        self._random = rng
        self._topology = topology
        self._roads: dict[str, list[str]] = {}
        for broker in topology.brokers:
            self._roads.setdefault(topology.roles[broker], []).append(broker)
        self._sensors = [
            (broker, self._place_near(broker)) for broker in (self._broker(i) for i in range(publishers))
        ]
        self._direction: dict[int, int] = {}

    def _broker(self, number: int) -> str:
        return self._topology.brokers[number % len(self._topology.brokers)]

    def _place_near(self, broker: str) -> tuple[float, float]:
        x, y = self._topology.positions[broker]
        offset = self._random.uniform(-80.0, 80.0)
        return (x + offset, y) if self._topology.roles[broker].startswith("west") else (x, y + offset)

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._sensors[number][0], [self.TRAFFIC]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        broker, (x, y) = self._sensors[number]
        road = self._topology.roles[broker]
        draw = draw or self._random
        rows = [
            {"road": road, "x": x, "y": y, "density": round(draw.uniform(0.0, 500.0), 1)}
            for _ in range(count)
        ]
        return EventBatch.from_pylist(self.TRAFFIC, rows)

    def subscriber(self, number: int) -> SubscriberState:
        broker = self._broker(number)
        x, y = self._place_near(broker)
        self._direction[number] = self._random.choice((-1, 1))
        return SubscriberState(self.AROUND, {"road": self._topology.roles[broker], "x": x, "y": y}, broker)

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        """Drives along the road and turns back at its ends; the broker is the nearest on the road."""
        road = subscriber.values["road"]
        axis = "x" if road.startswith("west") else "y"
        position = subscriber.values[axis] + self._direction[number] * self._random.uniform(0.0, _STEP)
        if not 0.0 <= position <= 1000.0:
            self._direction[number] = -self._direction[number]
            position = min(max(position, 0.0), 1000.0)
        place = {**subscriber.values, axis: position}
        nearest = min(self._roads[road], key=lambda b: self._distance(b, place["x"], place["y"]))
        return {axis: position}, nearest

    def _distance(self, broker: str, x: float, y: float) -> float:
        u, v = self._topology.positions[broker]
        return hypot(u - x, v - y)

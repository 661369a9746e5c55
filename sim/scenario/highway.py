"""The highway traffic management (HTM) of Jayaram et al., section 5.4.

Every broker has sensors. Vehicles ask for the traffic around them and drive along their road from broker to
broker; of their predicates 40 % are `>=`, 40 % `<=` and 20 % `==`.
"""

from __future__ import annotations

import random
from math import hypot
from typing import Any

from covey.matcher import EventBatch, EventType, parse
from covey.sim.scenario.load import Load, LoadError, SubscriberState
from covey.sim.topology import Topology

_AROUND = 60.0
"""Half the edge of a vehicle's box; the city is 1000 x 1000."""
_STEP = 15.0
"""The longest step of a vehicle."""


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
        """A random place on the broker's stretch of road."""
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

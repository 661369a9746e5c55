"""An overlay as its brokers share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from covey.matcher.events.event_type import EventType
from covey.overlay.core.endpoint.limits import Limits, SessionLimits
from covey.overlay.core.merging.mergers import MERGING_BUDGET

REPLAY_EVENTS = 10_000


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached, and the addresses it listens at, with commas between them."""

    name: str
    address: str
    listen: str


@dataclass(frozen=True, slots=True)
class Overlay:
    """The content of an overlay file. In a link, the second broker dials the first. `engine`, `merging` and
    `merging_budget` are those of the brokers' cores.

    Each broker keeps the last `replay_events` events of each type for updates without gaps; 0 for none.
    `damping` is how many typical steps wider clients' bounds are announced, so that movement within costs no
    message; 0 for off. It and `merging` go with parametric routing alone. `delays_ms` and `client_delay_ms`
    are one-way delays of links and of clients' connections, for the simulator: brokers delay nothing.
    """

    name: str
    routing: str
    event_types: tuple[EventType, ...]
    brokers: Mapping[str, BrokerAddress]
    links: tuple[tuple[str, str], ...]
    limits: Limits
    sessions: SessionLimits
    delays_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    client_delay_ms: float = 0.0
    replay_events: int = REPLAY_EVENTS
    engine: str = "cluster"
    damping: float = 0.0
    merging: str = "off"
    merging_budget: int = MERGING_BUDGET

    def delay_ms(self, a: str, b: str) -> float:
        """The one-way delay of the link between two brokers, in either order; 0 where the file names none."""
        return self.delays_ms.get((a, b), self.delays_ms.get((b, a), 0.0))

    def neighbours(self, broker: str) -> dict[str, bool]:
        """The neighbours of a broker, each with whether the broker is the one that dials."""
        neighbours = {}
        for listener, dialer in self.links:
            if broker == dialer:
                neighbours[listener] = True
            elif broker == listener:
                neighbours[dialer] = False
        return neighbours

"""An overlay as its brokers share it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from covey.matcher.events.event_type import EventType
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, SessionLimits
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.merging.mergers import MERGING_BUDGET
from covey.overlay.core.operators.limits import OperatorLimits
from covey.overlay.transport.rpc_server import ConnectionLimits

REPLAY_EVENTS = 10_000
_LONGEST_OPTION = 200


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
    `operator_modules` are imported when a broker starts, for the operators that they register.
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
    link_limits: LinkLimits = field(default_factory=LinkLimits)
    bounds: Bounds = field(default_factory=Bounds)
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    operator_limits: OperatorLimits = field(default_factory=OperatorLimits)
    operator_modules: tuple[str, ...] = ()
    log_level: str = "INFO"

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

    def shared_options(self) -> dict[str, str]:
        """The options in which the brokers must agree, as text by their place in the overlay file."""
        links = " ".join(sorted("-".join(sorted(link)) for link in self.links))
        if len(links) > _LONGEST_OPTION:
            links = f"{len(self.links)} with digest {hashlib.sha256(links.encode()).hexdigest()[:12]}"
        limits = {f"limits.{name}": str(value) for name, value in asdict(self.limits).items()}
        return {"routing": self.routing, "links": links, **limits}


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The first option of two brokers that differs, with the value of each. An option that only one of them
    has, since it is of another version, does not count.
    """
    for name, value in mine.items():
        if theirs.get(name, value) != value:
            return name, value, theirs[name]
    return None

"""An overlay as its brokers share it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from covey.matcher.events.event_type import EventType
from covey.overlay.core.access.identity import file_name
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, SessionLimits
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.merging.budget_merger import MERGING_BUDGET
from covey.overlay.core.operators.operator_limits import OperatorLimits
from covey.overlay.core.repair.uplink import UplinkRule
from covey.overlay.core.routing.key_table import MAX_KEY_BYTES
from covey.overlay.core.routing.ring import MAX_REPLAY_BYTES
from covey.overlay.node.authentication import ClientRules
from covey.overlay.node.broker_storage import Retention
from covey.overlay.transport.rpc_server import ConnectionLimits
from covey.overlay.transport.tls import Tls

REPLAY_EVENTS = 10_000
_LONGEST_OPTION = 200


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached, and the addresses it listens at, with commas between them."""

    name: str
    address: str
    listen: str


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the PEM files of all brokers, in which `{name}` stands for the broker."""

    authority: str
    certificate: str
    key: str

    def of(self, broker: str) -> Tls:
        paths = (self.authority, self.certificate, self.key)
        return Tls(*(path.replace("{name}", file_name(broker)) for path in paths))


@dataclass(frozen=True, slots=True)
class Overlay:
    """The content of an overlay file. In a link, the second broker dials the first. `engine`, `merging` and
    `merging_budget` are those of the brokers' cores.

    Each broker keeps the last `replay_events` events of each type for updates without gaps; 0 for none. Those
    of all types take at most `max_replay_bytes`.
    Keys of the types in `key_max_age_s` leave all views after so long without an event;
    the last events of all keys have at most `max_key_bytes`.
    `damping` is how many typical steps wider clients' bounds are announced, so that movement within costs no
    message; 0 for off. It and `merging` go with parametric routing alone. `delays_ms` and `client_delay_ms`
    are one-way delays of links and of clients' connections, for the simulator: brokers delay nothing.
    `metrics` are the addresses, by broker, at which Prometheus reads; a broker without one serves none.
    `operator_modules` are imported when a broker starts, for the operators that they register. With `tls`
    connections are encrypted, and neighbours have certificates; without it a broker listens beyond this
    machine only where `insecure` says so. `clients` says who clients are and what they may do; without it
    they may do everything. Links move around brokers that have been out of reach for
    `repair_after_s`, 0 for never, by the rule of `core/repair` with these `fallbacks`. Events of
    the types in `durable` are stored before they are acknowledged, in a directory below `storage`. `tickets`
    are the files of the keys of tickets, of which the first signs.
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
    key_max_age_s: Mapping[str, float] = field(default_factory=dict)
    max_key_bytes: int = MAX_KEY_BYTES
    max_replay_bytes: int = MAX_REPLAY_BYTES
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
    metrics: Mapping[str, str] = field(default_factory=dict)
    tls: TlsFiles | None = None
    insecure: bool = False
    clients: ClientRules | None = None
    repair_after_s: float = 0.0
    fallbacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    durable: Mapping[str, Retention] = field(default_factory=dict)
    storage: str = ""
    tracing: str = ""
    tickets: tuple[str, ...] = ()

    def delay_ms(self, a: str, b: str) -> float:
        """The one-way delay of the link between two brokers, in either order; 0 where the file names none."""
        return self.delays_ms.get((a, b), self.delays_ms.get((b, a), 0.0))

    def neighbours(self, broker: str) -> dict[str, bool]:
        """The neighbours of a broker, each with whether the broker is the one that dials. Where links move,
        the lower end does, whatever the order in the file.
        """
        if self.repair_after_s:
            return self.rule().neighbours(broker)
        neighbours = {}
        for listener, dialer in self.links:
            if broker == dialer:
                neighbours[listener] = True
            elif broker == listener:
                neighbours[dialer] = False
        return neighbours

    def rule(self) -> UplinkRule:
        """The rule by which links move. O(brokers)."""
        return UplinkRule(tuple(self.brokers), self.links, self.fallbacks)

    def shared_options(self) -> dict[str, str]:
        """The options in which the brokers must agree, as text by their place in the overlay file."""
        links = " ".join(sorted("-".join(sorted(link)) for link in self.links))
        limits = {f"limits.{name}": str(value) for name, value in asdict(self.limits).items()}
        options = {"routing": self.routing, "links": _shortened(links, len(self.links)), **limits}
        options["durable"] = " ".join(sorted(self.durable)) or "none"
        options["repair_after_s"] = f"{self.repair_after_s:g}"
        if self.repair_after_s:
            order = self.rule().order
            options["order"] = _shortened(" ".join(order), len(order))
            fallbacks = [f"{name}: {' '.join(names)}" for name, names in sorted(self.fallbacks.items())]
            options["fallbacks"] = _shortened(", ".join(fallbacks), len(fallbacks))
        return options


def _shortened(text: str, count: int) -> str:
    """A text that names so many things, or their number and a digest of it where it is long."""
    if len(text) <= _LONGEST_OPTION:
        return text
    return f"{count} with digest {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The first option of two brokers that differs, with the value of each. An option that only one of them
    has, since it is of another version, does not count.
    """
    for name, value in mine.items():
        if theirs.get(name, value) != value:
            return name, value, theirs[name]
    return None

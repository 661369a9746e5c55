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
    """`listen` may be several addresses, separated by commas."""

    name: str
    address: str
    listen: str


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """`{name}` stands for the broker."""

    authority: str
    certificate: str
    key: str

    def of(self, broker: str) -> Tls:
        paths = (self.authority, self.certificate, self.key)
        return Tls(*(path.replace("{name}", file_name(broker)) for path in paths))


@dataclass(frozen=True, slots=True)
class Overlay:
    """The content of an overlay file.

    The second broker of a link dials. Delays, one-way, are for the simulator only. Each broker keeps the last
    `replay_events` events per type for updates without gaps, at most `max_replay_bytes` in all. Keys of types
    in `key_max_age_s` leave all views after so long without an event; last events of keys take at most
    `max_key_bytes`. `damping` announces clients' bounds wider by so many typical steps, so that smaller moves
    cost no message (0: off); it and `merging` need parametric routing.

    `metrics` has the Prometheus address by broker. `operator_modules` are imported at start. Without `tls`
    only `insecure` allows brokers to listen beyond this machine. Without `clients` every client has all
    rights. Links move around brokers out of reach for `repair_after_s` (0: never), by `core/repair` and
    `fallbacks`. Events of `durable` types are stored before they are acknowledged, below `storage`. The first
    of the key files `tickets` signs.
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
        """One-way, in either order; 0 if the file has none."""
        return self.delays_ms.get((a, b), self.delays_ms.get((b, a), 0.0))

    def neighbours(self, broker: str) -> dict[str, bool]:
        """Each with whether `broker` dials: where links move, the lower end does."""
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
        """O(brokers)."""
        return UplinkRule(tuple(self.brokers), self.links, self.fallbacks)

    def shared_options(self) -> dict[str, str]:
        """Options in which brokers must agree, by their place in the overlay file."""
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
    if len(text) <= _LONGEST_OPTION:
        return text
    return f"{count} with digest {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The first differing option, with both values. Options of only one broker are of another version and
    pass."""
    for name, value in mine.items():
        if theirs.get(name, value) != value:
            return name, value, theirs[name]
    return None

"""A whole overlay in virtual time: brokers, clients, wires, and what befalls them.

Everything is drawn from one seed and happens in the order of `clock.py`, so the same calls give the same run.
Brokers and clients are named as interfaces are: `broker/b1`, `client/c1`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from covey.overlay.core.baselines.options import POSET_ENGINE, broker_options
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.link.link import Link
from covey.overlay.core.merging.mergers import MERGING_BUDGET
from covey.overlay.core.routing.broker import Broker
from covey.sim.simulator.broker import BrokerProcess
from covey.sim.simulator.client import ClientProcess
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S, Clock
from covey.sim.simulator.costs import Costs, Free
from covey.sim.simulator.watcher import Watcher
from covey.sim.simulator.wire import Goodbye, Wire, WireOptions

if TYPE_CHECKING:
    from covey.matcher import EventType
    from covey.sim.simulator.defects import Defect
    from covey.sim.topology import Topology

_REDIAL_NS = 50 * NS_PER_MS
_LEAVE_POLL_NS = 5 * NS_PER_MS
LEASE_NS = 30 * NS_PER_S
"""How long a broker keeps the session of a client that has vanished."""


class Simulation:
    """An overlay. `routing`, `resubscribe`, `engine` and `poset` are those of brokers and clients, `link`
    holds options of `Link`, and `wire` is how wires are that no topology describes. The engine "poset", which
    implies the poset "diagram", is for brokers: clients have no poset."""

    def __init__(
        self,
        seed: int = 0,
        *,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        engine: str = "cluster",
        poset: str = "forest",
        costs: Costs | None = None,
        watchers: Iterable[Watcher] = (),
        defect: Defect | None = None,
        link: Mapping[str, int] | None = None,
        wire: WireOptions | None = None,
        lease_ns: int = LEASE_NS,
        replay_events: int = 0,
        damping: float = 0.0,
        merging: str = "off",
        merging_budget: int = MERGING_BUDGET,
    ) -> None:
        self.clock = Clock()
        self.routing, self.resubscribe, self.engine = routing, resubscribe, engine
        self._broker_options = broker_options(engine, poset)
        self.brokers: dict[str, BrokerProcess] = {}
        self.clients: dict[str, ClientProcess] = {}
        """The clients whose users are there."""
        self.links: list[tuple[str, str]] = []
        self.watchers = list(watchers)
        self._connected: dict[str, ClientProcess] = {}
        self._incarnations: dict[str, int] = {}
        self._wires: dict[tuple[str, str], Wire] = {}
        self._random = random.Random(f"wires {seed}")
        self._costs = costs or Free()
        self._defect = defect
        self._link_options = dict(link or {})
        self._wire = wire or WireOptions()
        self._lease_ns = lease_ns
        self._replay_events = replay_events
        self.damping = damping
        self.merging, self.merging_budget = merging, merging_budget

    # --- shape ----------------------------------------------------------------------------------------------

    def build(self, topology: Topology, event_types: Iterable[EventType] = ()) -> None:
        """Brokers and links of a topology, with its delays."""
        types = tuple(event_types)
        neighbours: dict[str, list[str]] = {broker: [] for broker in topology.brokers}
        for link in topology.links:
            neighbours[link.a].append(link.b)
            neighbours[link.b].append(link.a)
        for broker in topology.brokers:
            self.add_broker(f"broker/{broker}", neighbours[broker], types)
        for link in topology.links:
            options = replace(self._wire, delay_ns=round(link.delay_ms * NS_PER_MS))
            self.link(f"broker/{link.a}", f"broker/{link.b}", options)

    def add_broker(
        self, name: str, neighbours: Iterable[str] = (), event_types: Iterable[EventType] = ()
    ) -> BrokerProcess:
        """A broker; `neighbours` are the ids of those that it will be linked to."""
        types, beside = tuple(event_types), tuple(neighbours)

        def core() -> Broker:
            return Broker(
                name.removeprefix("broker/"),
                routing=self.routing,
                **self._broker_options,
                event_types=types,
                neighbours=beside,
                replay_events=self._replay_events,
                damping=self.damping,
                merging=self.merging,
                merging_budget=self.merging_budget,
            )

        made = BrokerProcess(name, self.clock, core, self._link, self._costs, self.watchers, self._defect)
        self.brokers[name] = made
        return made

    def link(self, a: str, b: str, options: WireOptions | None = None) -> None:
        """Join two brokers, of which the second dials."""
        listener, dialer = self.brokers[a].port(b), self.brokers[b].port(a)
        wire = Wire(self.clock, self._random, listener, dialer, options or self._wire)
        self.links.append((a, b))
        self._wires[a, b] = wire
        wire.dial()

    def _link(self, incarnation: int) -> Link:
        return Link(incarnation, **self._link_options)

    # --- clients --------------------------------------------------------------------------------------------

    def come(self, name: str, broker: str) -> ClientProcess:
        """A new client at a broker; it dials at once."""
        session = ClientSession(
            name.removeprefix("client/"),
            routing=self.routing,
            resubscribe=self.resubscribe,
            engine="naive" if self.engine == POSET_ENGINE else self.engine,
        )
        client = ClientProcess(name, broker, session, self._client_link(name), self.clock, self.watchers)
        self.clients[name] = self._connected[name] = client
        for watcher in self.watchers:
            watcher.came(client)
        self._reach(client)
        return client

    def leave(self, name: str) -> None:
        """A client leaves as soon as all that it has said has arrived."""
        client = self._part_with(name, vanished=False)
        self._when_idle(client, lambda: self._connected.pop(name))

    def vanish(self, name: str) -> None:
        """A client is gone without a word; its broker notices when the lease is over."""
        client = self._part_with(name, vanished=True)
        del self._connected[name]
        wire, broker = client.port.wire, self.brokers[client.broker]
        assert wire is not None
        wire.cut()
        port = wire.listener
        self.clock.after(self._lease_ns, self._lease_over, broker, name, port)

    def _lease_over(self, broker: BrokerProcess, name: str, port: object) -> None:
        if broker.ports.get(name) is port:
            broker.end_session(name)

    def _part_with(self, name: str, vanished: bool) -> ClientProcess:
        client = self.clients.pop(name)
        client.there = False
        for watcher in self.watchers:
            watcher.left(client, vanished)
        return client

    def move(self, name: str, broker: str) -> None:
        """A client says goodbye to its broker, when all that it has said has arrived, and goes to another.

        It publishes under a new identity from then on, since its older events may still be on their way.
        """
        client = self.clients[name]
        if client.broker != broker and not client.moving:
            client.moving = True
            self._when_idle(client, lambda: self._arrive_at(client, broker))

    def _arrive_at(self, client: ClientProcess, broker: str) -> None:
        client.moving = False
        client.broker = broker
        link = self._client_link(client.name)
        moves = link.incarnation
        client.rebind(broker, link, f"{client.name.removeprefix('client/')}~{moves}")
        for watcher in self.watchers:
            watcher.moved(client, broker)
        self._reach(client)

    def _when_idle(self, client: ClientProcess, then: Callable[[], object]) -> None:
        """Say goodbye once everything has arrived, and go on from there."""
        if client.name not in self._connected or self._connected[client.name] is not client:
            return
        port = client.port
        if port.open and port.link.idle:
            assert port.wire is not None
            port.wire.transmit(port, Goodbye.GOODBYE)
            port.open = False
            then()
        else:
            self.clock.after(_LEAVE_POLL_NS, self._when_idle, client, then)

    def _client_link(self, name: str) -> Link:
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return Link(self._incarnations[name], **self._link_options)

    def _reach(self, client: ClientProcess) -> None:
        """Dial the client's broker, if it is alive; a broker that comes back reaches out by itself."""
        broker = self.brokers[client.broker]
        if not broker.alive:
            return
        listener = broker.session_port(client.name)
        Wire(self.clock, self._random, listener, client.port, self._wire).dial()

    # --- what befalls them ----------------------------------------------------------------------------------

    def cut(self, name: str, away_ns: int) -> None:
        """The connection of a client breaks, and is opened again after a time, within the lease."""
        client = self.clients[name]
        wire = client.port.wire
        if wire is not None:
            wire.cut()
            self.clock.after(away_ns, self._redial_client, client, wire)

    def _redial_client(self, client: ClientProcess, wire: Wire) -> None:
        if client.port.wire is wire and self._connected.get(client.name) is client:
            broker = self.brokers[client.broker]
            if broker.alive and broker.ports.get(client.name) is wire.listener:
                wire.dial()

    def part(self, a: str, b: str, away_ns: int) -> None:
        """The link between two brokers breaks, and stays so for a time."""
        wire = self._wires[a, b]
        if not wire.blocked:
            wire.cut()
            wire.blocked = True
            self.clock.after(away_ns, self._mend, a, b)

    def _mend(self, a: str, b: str) -> None:
        self._wires[a, b].blocked = False
        self._redial(a, b)

    def _redial(self, a: str, b: str) -> None:
        wire = self._wires[a, b]
        if not wire.blocked and self.brokers[a].alive and self.brokers[b].alive:
            wire.dial()

    def crash(self, name: str, down_ns: int) -> None:
        """A broker loses its state and is there again after a time; a crash meanwhile changes nothing."""
        broker = self.brokers[name]
        if not broker.alive:
            return
        broker.crash()
        for port in broker.ports.values():
            if port.wire is not None:
                port.wire.cut()
        for watcher in self.watchers:
            watcher.crashed(name)
        self.clock.after(down_ns, self._restart, name)

    def _restart(self, name: str) -> None:
        self.brokers[name].restart()
        for watcher in self.watchers:
            watcher.restarted(name)
        for a, b in self.links:
            if name in (a, b):
                self.clock.after(_REDIAL_NS, self._redial, a, b)
        for client in list(self._connected.values()):
            if client.broker == name:
                self.clock.after(_REDIAL_NS, self._come_back, client, name)

    def _come_back(self, client: ClientProcess, broker: str) -> None:
        here = self._connected.get(client.name) is client and client.broker == broker
        if here and client.name not in self.brokers[broker].ports:
            self._reach(client)

    # --- running --------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None) -> None:
        """Let everything happen up to a time, or until nothing is going to happen any more."""
        self.clock.run(until_ns)

    @property
    def busy_ns(self) -> dict[str, int]:
        """How long each broker has worked until now."""
        return {name: broker.busy_ns for name, broker in self.brokers.items()}

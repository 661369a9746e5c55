"""A whole overlay in virtual time: brokers, clients, wires and faults.

Everything random is drawn from one seed and runs in the order of `clock.py`, so the same calls give the same
run. Brokers and clients are named by their interfaces: `broker/b1`, `client/c1`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.baselines.options import POSET_ENGINE, broker_options
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.link.link import Link
from covey.overlay.core.merging.mergers import MERGING_BUDGET
from covey.overlay.core.routing.broker import Broker
from covey.sim.simulator.broker import SimulatedBroker
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, Clock
from covey.sim.simulator.costs import Costs, Free
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.wire import Goodbye, Wire, WireOptions

if TYPE_CHECKING:
    from covey.matcher import EventType
    from covey.sim.simulator.defects import Defect
    from covey.sim.topology import Topology

_REDIAL_NS = 50 * NS_PER_MS
_LEAVE_POLL_NS = 5 * NS_PER_MS


class Simulation:
    """An overlay. `routing`, `resubscribe`, `engine` and `poset` are those of brokers and clients, `link`
    holds options of `Link`, `options` the limits of brokers, and `wire` the options of wires without a
    topology. `service` is that of brokers (`service.py`). The engine "poset", which implies the poset
    "diagram", is for brokers: clients have no poset.
    `evaluator` and `link_evaluator` make those of a broker at each start. Events keep the time of the call
    that publishes them, since checkers must know it.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        engine: str = "cluster",
        poset: str = "forest",
        costs: Costs | None = None,
        service: str = "broker",
        observers: Iterable[Observer] = (),
        defect: Defect | None = None,
        link: Mapping[str, Any] | None = None,
        wire: WireOptions | None = None,
        options: EndpointOptions | None = None,
        replay_events: int = 0,
        damping: float = 0.0,
        merging: str = "off",
        merging_budget: int = MERGING_BUDGET,
        evaluator: Callable[[], Evaluator] = Evaluator,
        link_evaluator: Callable[[], Evaluator] | None = None,
        share_results: bool = True,
    ) -> None:
        self.clock = Clock()
        self.routing, self.resubscribe, self.engine = routing, resubscribe, engine
        self._broker_options = broker_options(engine, poset)
        self.brokers: dict[str, SimulatedBroker] = {}
        self.clients: dict[str, SimulatedClient] = {}
        """The clients that have not left."""
        self.links: list[tuple[str, str]] = []
        self.observers = list(observers)
        self._connected: dict[str, SimulatedClient] = {}
        self._incarnations: dict[str, int] = {}
        self._wires: dict[tuple[str, str], Wire] = {}
        self._random = random.Random(f"wires {seed}")
        self._costs = costs or Free()
        if service != "broker" and self._costs.measures:
            raise ValueError(f"service is {service!r}: expected costs known before a message is handled")
        self._service = service
        self._defect = defect
        self._link_options: dict[str, Any] = dict(link or {})
        self._wire = wire or WireOptions()
        self._options = replace(options or EndpointOptions(), stamp_ingress=False)
        self._replay_events = replay_events
        self.damping = damping
        self.merging, self.merging_budget = merging, merging_budget
        self._evaluator, self._link_evaluator = evaluator, link_evaluator
        self._share_results = share_results

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
    ) -> SimulatedBroker:
        """Add a broker; `neighbours` are the ids of the brokers that it will be linked to."""
        types, neighbour_ids = tuple(event_types), tuple(neighbours)

        def core() -> Broker:
            return Broker(
                name.removeprefix("broker/"),
                routing=self.routing,
                **self._broker_options,
                event_types=types,
                neighbours=neighbour_ids,
                replay_events=self._replay_events,
                damping=self.damping,
                merging=self.merging,
                merging_budget=self.merging_budget,
                evaluator=self._evaluator(),
                link_evaluator=None if self._link_evaluator is None else self._link_evaluator(),
                share_results=self._share_results,
            )

        broker = self.brokers[name] = SimulatedBroker(
            name,
            self.clock,
            core,
            self._link,
            self._costs,
            self.observers,
            self._defect,
            self._options,
            self._service,
        )
        return broker

    def link(self, a: str, b: str, options: WireOptions | None = None) -> None:
        """Link two brokers; the second dials."""
        listener, dialer = self.brokers[a].port(b), self.brokers[b].port(a)
        wire = Wire(self.clock, self._random, listener, dialer, options or self._wire)
        self.links.append((a, b))
        self._wires[a, b] = wire
        wire.dial()

    def _link(self, incarnation: int) -> Link:
        options: dict[str, Any] = {"join_events": self._options.join_events, **self._link_options}
        return Link(incarnation, **options)

    # --- clients --------------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        broker: str,
        policy: SlowConsumer = SlowConsumer.BLOCK,
        **endpoint_options: int,
    ) -> SimulatedClient:
        """Add a client to a broker, which it dials at once. The options are those of `ClientEndpoint`."""
        session = ClientSession(
            name.removeprefix("client/"),
            routing=self.routing,
            resubscribe=self.resubscribe,
            engine="naive" if self.engine == POSET_ENGINE else self.engine,
        )
        link = self._client_link(name)
        client = SimulatedClient(
            name,
            broker,
            session,
            link,
            self.clock,
            self.observers,
            limits=self._options.limits,
            endpoint_options=endpoint_options,
        )
        client.policy = policy
        self.clients[name] = self._connected[name] = client
        for observer in self.observers:
            observer.joined(client)
        self._dial(client)
        return client

    def leave(self, name: str) -> None:
        """A client leaves as soon as everything it has sent has arrived."""
        client = self._remove(name, vanished=False)
        self._when_idle(client, lambda: self._connected.pop(name))

    def vanish(self, name: str) -> None:
        """A client disappears without a goodbye; its broker ends the session when the lease expires."""
        client = self._remove(name, vanished=True)
        del self._connected[name]
        assert client.port.wire is not None
        client.port.wire.cut()

    def _remove(self, name: str, vanished: bool) -> SimulatedClient:
        client = self.clients.pop(name)
        client.present = False
        for observer in self.observers:
            observer.left(client, vanished)
        return client

    def move(self, name: str, broker: str) -> None:
        """A client leaves its broker once everything it has sent has arrived, and joins another.

        From then on it publishes under a new identity, since its older events may still be on their way.
        """
        client = self.clients[name]
        if client.broker != broker and not client.moving:
            client.moving = True
            self._when_idle(client, lambda: self._rejoin(client, broker))

    def _rejoin(self, client: SimulatedClient, broker: str) -> None:
        client.moving = False
        client.broker = broker
        link = self._client_link(client.name)
        moves = link.incarnation
        client.rebind(broker, link, f"{client.name.removeprefix('client/')}~{moves}")
        for observer in self.observers:
            observer.moved(client, broker)
        self._dial(client)

    def _when_idle(self, client: SimulatedClient, then: Callable[[], object]) -> None:
        """Say goodbye and call `then` once everything has arrived."""
        if client.name not in self._connected or self._connected[client.name] is not client:
            return
        port = client.port
        if port.open and client.endpoint.idle:
            assert port.wire is not None
            port.wire.transmit(port, Goodbye.GOODBYE)
            port.open = False
            then()
        else:
            self.clock.after(_LEAVE_POLL_NS, self._when_idle, client, then)

    def _client_link(self, name: str) -> Link:
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return Link(self._incarnations[name], **self._link_options)

    def _dial(self, client: SimulatedClient) -> None:
        """Dial the client's broker if it is alive; a restarted broker is dialled again (`_restart`)."""
        broker = self.brokers[client.broker]
        if not broker.alive:
            return
        listener = broker.session_port(client.name, client.policy)
        Wire(self.clock, self._random, listener, client.port, self._wire).dial()

    def redial(self, name: str) -> bool:
        """Connect a client again whose connection the broker has ended; whether it was."""
        client = self.clients[name]
        wire = client.port.wire
        if not self.brokers[client.broker].alive or (wire is not None and wire.up):
            return False
        self._dial(client)
        return True

    # --- faults ---------------------------------------------------------------------------------------------

    def disconnect(self, name: str, down_ns: int) -> None:
        """The connection of a client breaks for a time shorter than the lease."""
        client = self.clients[name]
        wire = client.port.wire
        if wire is not None:
            wire.cut()
            self.clock.after(down_ns, self._redial_client, client, wire)

    def _redial_client(self, client: SimulatedClient, wire: Wire) -> None:
        if client.port.wire is wire and self._connected.get(client.name) is client:
            broker = self.brokers[client.broker]
            if broker.alive and broker.ports.get(client.name) is wire.listener:
                wire.dial()

    def partition(self, a: str, b: str, down_ns: int) -> None:
        """The link between two brokers breaks for a time."""
        wire = self._wires[a, b]
        if not wire.blocked:
            wire.cut()
            wire.blocked = True
            self.clock.after(down_ns, self._heal, a, b)

    def _heal(self, a: str, b: str) -> None:
        self._wires[a, b].blocked = False
        self._redial(a, b)

    def _redial(self, a: str, b: str) -> None:
        wire = self._wires[a, b]
        if not wire.blocked and self.brokers[a].alive and self.brokers[b].alive:
            wire.dial()

    def crash(self, name: str, down_ns: int) -> None:
        """A broker loses its state and restarts after a time; it ignores further crashes until then."""
        broker = self.brokers[name]
        if not broker.alive:
            return
        broker.crash()
        for port in broker.ports.values():
            if port.wire is not None:
                port.wire.cut()
        for observer in self.observers:
            observer.crashed(name)
        self.clock.after(down_ns, self._restart, name)

    def _restart(self, name: str) -> None:
        self.brokers[name].restart()
        for observer in self.observers:
            observer.restarted(name)
        for a, b in self.links:
            if name in (a, b):
                self.clock.after(_REDIAL_NS, self._redial, a, b)
        for client in list(self._connected.values()):
            if client.broker == name:
                self.clock.after(_REDIAL_NS, self._reconnect, client, name)

    def _reconnect(self, client: SimulatedClient, broker: str) -> None:
        attached = self._connected.get(client.name) is client and client.broker == broker
        if attached and not self.brokers[broker].has_session(client.name):
            self._dial(client)

    # --- running --------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None) -> None:
        """Advance to a time, or until nothing is scheduled."""
        self.clock.run(until_ns)

    @property
    def busy_ns(self) -> dict[str, int]:
        """Working time of each broker so far."""
        return {name: broker.busy_ns for name, broker in self.brokers.items()}

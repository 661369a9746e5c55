"""A whole overlay in virtual time: brokers, clients, wires and faults. All draws are from one seed and run in
the order of `clock.py`, so the same calls give the same run. Brokers and clients are named by their
interfaces: `broker/b1`, `client/c1`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Link
from covey.overlay.core.merging.budget_merger import MERGING_BUDGET
from covey.overlay.core.repair.uplink import UplinkRule, links_without
from covey.overlay.core.routing.broker import Broker
from covey.sim.baselines.options import POSET_ENGINE, broker_options
from covey.sim.simulator.broker import SimulatedBroker
from covey.sim.simulator.cancelling_session import CANCEL_LATE, CancellingSession
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, Clock
from covey.sim.simulator.costs import Costs, Free
from covey.sim.simulator.defects import CrashPoints
from covey.sim.simulator.moving_links import MovingLinks
from covey.sim.simulator.observer import Observer, Observers
from covey.sim.simulator.storage import SimulatedStorage, StoredEvents
from covey.sim.simulator.wire import Goodbye, Wire, WireOptions

if TYPE_CHECKING:
    from covey.matcher import EventType
    from covey.sim.simulator.defects import Defect
    from covey.sim.topology import Topology

_REDIAL_NS = 50 * NS_PER_MS
_PING_NS = 5_000 * NS_PER_MS
"""How long a connection whose other end is gone may seem open (`overlay/http2`)."""
_LEAVE_POLL_NS = 5 * NS_PER_MS
_DRAIN_NS = 5_000 * NS_PER_MS
"""As `DRAIN_S` of `overlay/node/main.py`."""


class Simulation:
    """`link` has options of `Link`, `options` the limits of brokers, `wire` the options of wires without a
    topology; `service` is from `cores.py`. The engine "poset", which implies the poset "diagram", is for
    brokers; their clients have "naive". `evaluator` and `link_evaluator` are called at each start of a
    broker. With `repair_after_ns` the links of a built topology move around dead brokers (`moving`). Events
    keep the time of the call that publishes them, for the checkers."""

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
        durable: Sequence[str] = (),
        sync_ns: int = NS_PER_MS,
        repair_after_ns: int = 0,
    ) -> None:
        self.durable, self._sync_ns, self._seed = tuple(durable), sync_ns, seed
        self._topology: Topology | None = None
        self.clock = Clock()
        self.routing, self.resubscribe, self.engine = routing, resubscribe, engine
        self._broker_options = broker_options(engine, poset)
        self.brokers: dict[str, SimulatedBroker] = {}
        self.clients: dict[str, SimulatedClient] = {}
        self.links: list[tuple[str, str]] = []
        self.observers = Observers(observers)
        self.crash_points = CrashPoints(lambda name: self.clock.after(0, self._stopped, name))
        self.on_stop: Callable[[str, BaseException | None], None] = lambda broker, error: None
        """Called with a broker that has stopped, at a crash point or because its disk has failed."""
        self.on_damage: Callable[[str, str, StoredEvents], None] = lambda *_: None
        """Called with a broker, a type, and events that damage to the broker's disk may have lost."""
        self._connected: dict[str, SimulatedClient] = {}
        self._abandoned: set[str] = set()
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
        self._options = replace(
            options or EndpointOptions(), stamp_ingress=False, drop_repeats=repair_after_ns > 0
        )
        self._repair_after_ns = repair_after_ns
        self._rule: UplinkRule | None = None
        self._file_links: tuple[tuple[str, str], ...] = ()
        self._departed: set[str] = set()
        self.moving: MovingLinks | None = None
        self._replay_events = replay_events
        self.damping = damping
        self.merging, self.merging_budget = merging, merging_budget
        self._evaluator, self._link_evaluator = evaluator, link_evaluator
        self._share_results = share_results

    # --- shape ----------------------------------------------------------------------------------------------

    def build(self, topology: Topology, event_types: Iterable[EventType] = ()) -> None:
        self._topology = topology
        types = tuple(event_types)
        neighbours: dict[str, list[str]] = {broker: [] for broker in topology.brokers}
        for link in topology.links:
            neighbours[link.a].append(link.b)
            neighbours[link.b].append(link.a)
        if self._repair_after_ns:
            rule = self._rule = UplinkRule(topology.brokers, [(link.a, link.b) for link in topology.links])
            self.moving = MovingLinks(self.clock, self.brokers, self.links, rule, self._random, self._wire)
            self._file_links = tuple((link.a, link.b) for link in topology.links)
        for broker in topology.brokers:
            self.add_broker(f"broker/{broker}", neighbours[broker], types)
        if self.moving is not None:
            for broker in self.brokers:
                self.moving.start(broker)
            return
        for link in topology.links:
            options = replace(self._wire, delay_ns=round(link.delay_ms * NS_PER_MS))
            self.link(f"broker/{link.a}", f"broker/{link.b}", options)

    def add_broker(
        self, name: str, neighbours: Iterable[str] = (), event_types: Iterable[EventType] = ()
    ) -> SimulatedBroker:
        """`neighbours` are the ids of the brokers that it will be linked to."""
        types, neighbour_ids = tuple(event_types), tuple(neighbours)
        broker_id = name.removeprefix("broker/")

        def core() -> Broker:
            known = self.brokers.get(name)
            rule = self._rule if known is None else known.rule
            return Broker(
                broker_id,
                routing=self.routing,
                **self._broker_options,
                event_types=types,
                neighbours=neighbour_ids if rule is None else tuple(rule.neighbours(broker_id)),
                replay_events=self._replay_events,
                damping=self.damping,
                merging=self.merging,
                merging_budget=self.merging_budget,
                evaluator=self._evaluator(),
                link_evaluator=None if self._link_evaluator is None else self._link_evaluator(),
                share_results=self._share_results,
                durable=self.durable,
            )

        def clock_ns() -> int:
            known = self.brokers.get(name)
            return self.clock.now_ns + (0 if known is None else known.clock_offset_ns)

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
            SimulatedStorage(
                self.durable,
                f"{self._seed} {name}",
                clock_ns,
                lambda type_name, events: self.on_damage(name, type_name, events),
            )
            if self.durable
            else None,
            self._sync_ns,
            self._rule,
            self._repair_after_ns,
            points=self.crash_points,
            stopped=self._stopped,
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

    # --- brokers that join and leave, where links move ------------------------------------------------------

    def join_broker(self, name: str, to: str) -> None:
        """Add a broker with a link to `to`. The others have to `reload` the file."""
        assert self._rule is not None
        order = (*self._rule.brokers, name.removeprefix("broker/"))
        self._write_file(order, (*self._file_links, (to.removeprefix("broker/"), order[-1])))
        self.add_broker(name)
        assert self.moving is not None
        self.moving.start(name)

    def leave_broker(self, name: str, then: Callable[[], None]) -> None:
        """A broker drains and ends, with its clients; then calls `then`. The others have to `reload` the
        file."""
        assert self._rule is not None
        left = name.removeprefix("broker/")
        links = links_without(self._rule.brokers, self._file_links, left)
        self._write_file(tuple(each for each in self._rule.brokers if each != left), links)
        self._departed.add(name)
        if self.brokers[name].alive:
            self.brokers[name].drain()
        self._when_drained(name, self.clock.now_ns + _DRAIN_NS, then)

    def _when_drained(self, name: str, until_ns: int, then: Callable[[], None]) -> None:
        broker = self.brokers[name]
        if broker.alive and not broker.endpoint.drained and self.clock.now_ns < until_ns:
            self.clock.after(_LEAVE_POLL_NS, self._when_drained, name, until_ns, then)
            return
        self.crash(name, 0)
        self.abandon(name)
        then()

    def _write_file(self, brokers: tuple[str, ...], links: tuple[tuple[str, str], ...]) -> None:
        assert self.moving is not None
        self._file_links = links
        self._rule = self.moving.rule = UplinkRule(brokers, links)

    def reload(self, name: str) -> None:
        assert self._rule is not None
        if name not in self._departed:
            self.brokers[name].set_rule(self._rule)

    # --- clients --------------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        broker: str,
        policy: SlowConsumer = SlowConsumer.BLOCK,
        *,
        durable: bool = False,
        policies: Mapping[str, str] | None = None,
        **endpoint_options: int,
    ) -> SimulatedClient:
        """Add a client, which dials at once. `policies` has a filter of the permitted events for each
        permitted type. The options are for `ClientEndpoint`."""
        publisher = name.removeprefix("client/")
        engine = "naive" if self.engine == POSET_ENGINE else self.engine
        if self.routing == "static" and self.resubscribe == CANCEL_LATE:
            session: ClientSession = CancellingSession(publisher, engine=engine)
        else:
            session = ClientSession(
                publisher, routing=self.routing, resubscribe=self.resubscribe, engine=engine
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
        client.policy, client.durable, client.policies = policy, durable, policies
        self.clients[name] = self._connected[name] = client
        self.observers.joined(client)
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
        if client.port.wire is not None:
            client.port.wire.cut()

    def abandon(self, broker: str) -> None:
        """The clients of a broker that stays dead vanish, as will those that move there."""
        self._abandoned.add(broker)
        for client in list(self._connected.values()):
            if client.broker == broker and client.name in self.clients:
                self.vanish(client.name)
            elif client.broker == broker:
                del self._connected[client.name]

    def _remove(self, name: str, vanished: bool) -> SimulatedClient:
        client = self.clients.pop(name)
        client.present = False
        self.observers.left(client, vanished)
        return client

    def move(self, name: str, broker: str) -> None:
        """A client leaves its broker once everything it has sent has arrived, and joins another; with a
        durable session without a goodbye, once its events are accepted.

        From then on it publishes under a new identity, since older events may still be under way.
        """
        client = self.clients[name]
        if client.broker == broker or client.moving:
            return
        if client.durable and not client.endpoint.outbox.pending:
            if client.port.wire is not None:
                client.port.wire.cut()
            self._rejoin(client, broker)
            return
        client.moving = True
        self._when_idle(client, lambda: self._rejoin(client, broker))

    def _rejoin(self, client: SimulatedClient, broker: str) -> None:
        client.moving = False
        client.broker = broker
        link = self._client_link(client.name)
        moves = link.incarnation
        client.rebind(broker, link, f"{client.name.removeprefix('client/')}/{moves}")
        self.observers.moved(client, broker)
        if broker in self._abandoned:
            self.vanish(client.name)
        else:
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
        """Dial the client's broker if it is alive; `restart` dials again."""
        broker = self.brokers[client.broker]
        if not broker.alive:
            return
        listener = broker.session_port(client.name, client.policy, client.durable, client.rights)
        wire = Wire(self.clock, self._random, listener, client.port, self._wire)
        wire.dial()
        self._insist(client, wire)

    def _insist(self, client: SimulatedClient, wire: Wire) -> None:
        """Dial again after a refusal: the session may be under way, or ending in parts."""
        current = client.port.wire is wire and self._connected.get(client.name) is client
        if not current or client.port.open or not self.brokers[client.broker].alive:
            return
        if wire.up:
            self.clock.after(_REDIAL_NS, self._insist, client, wire)
        else:
            self._dial(client)

    def redial(self, name: str) -> bool:
        """Connect a client again whose connection the broker has ended; return whether it had."""
        client = self.clients[name]
        wire = client.port.wire
        if not self.brokers[client.broker].alive or (wire is not None and wire.up):
            return False
        self._dial(client)
        return True

    # --- faults ---------------------------------------------------------------------------------------------

    def disconnect(self, name: str, down_ns: int) -> None:
        """The connection of a client, even one that leaves, breaks for a time shorter than the lease."""
        client = self.clients.get(name) or self._connected.get(name)
        wire = None if client is None else client.port.wire
        if client is not None and wire is not None:
            wire.cut()
            self.clock.after(down_ns, self._redial_client, client, wire)

    def _redial_client(self, client: SimulatedClient, wire: Wire) -> None:
        if client.port.wire is wire and self._connected.get(client.name) is client:
            broker = self.brokers[client.broker]
            if broker.alive and broker.ports.get(client.name) is wire.listener:
                wire.dial()
                self._insist(client, wire)

    def partition(self, a: str, b: str, down_ns: int) -> None:
        if not self._wires[a, b].blocked:
            self.block(a, b)
            self.clock.after(down_ns, self.unblock, a, b)

    def block(self, a: str, b: str) -> None:
        wire = self._wires[a, b]
        if not wire.blocked:
            wire.cut()
            wire.blocked = True

    def unblock(self, a: str, b: str) -> None:
        self._wires[a, b].blocked = False
        self._redial(a, b)

    def connections(self) -> list[Wire]:
        links = self._wires if self.moving is None else self.moving.wires
        clients = [client.port.wire for client in self._connected.values()]
        return [wire for wire in (*links.values(), *clients) if wire is not None and wire.up]

    def repeat_connection(self, wire: Wire) -> None:
        """The dialer opens another connection. A client's broker notices the old one's end by its PINGs."""
        port = wire.dialer
        if isinstance(port.owner, SimulatedClient):
            port.open = False
            port.broken()
            self.clock.after(_PING_NS, wire.cut)
            self._dial(port.owner)
        elif self.moving is not None:
            wire.cut()  # whoever is to have the link opens it again
        else:
            wire.dial()

    def _redial(self, a: str, b: str) -> None:
        wire = self._wires[a, b]
        if not wire.blocked and self.brokers[a].alive and self.brokers[b].alive:
            wire.dial()

    def crash(self, name: str, down_ns: int, *, power: bool = True) -> None:
        """A broker loses its state and restarts after `down_ns`, 0 for never; it ignores further crashes
        until then. Without `power` only its process is killed: its sent messages arrive, and its writes stay.
        """
        broker = self.brokers[name]
        if not broker.alive:
            return
        broker.crash(power=power)
        for port in broker.ports.values():
            if port.wire is None:
                continue
            if power or not port.wire.up:
                port.wire.cut()
            else:
                port.wire.end(port)
        self.observers.crashed(name)
        if down_ns:
            self.clock.after(down_ns, self.restart, name)

    def _stopped(self, name: str, error: BaseException | None = None) -> None:
        self.crash(name, 0, power=False)
        self.on_stop(name, error)

    def restart(self, name: str) -> None:
        if self.brokers[name].alive or name in self._departed:
            return
        for port in self.brokers[name].ports.values():
            if port.wire is not None and port.wire.up:
                port.wire.cut()
        self.brokers[name].restart()
        self._abandoned.discard(name)
        self.observers.restarted(name)
        if self.moving is not None:
            self.moving.start(name)
        for a, b in self.links if self.moving is None else ():
            if name in (a, b):
                self.clock.after(_REDIAL_NS, self._redial, a, b)
        for client in list(self._connected.values()):
            if client.broker == name:
                self.clock.after(_REDIAL_NS, self._reconnect, client, name)

    def _reconnect(self, client: SimulatedClient, broker: str) -> None:
        attached = self._connected.get(client.name) is client and client.broker == broker
        if attached and not self.brokers[broker].has_session(client.name):
            self._dial(client)

    # --- another one ----------------------------------------------------------------------------------------

    def rebuilt(self) -> Simulation:
        """A new overlay of the same brokers, links, clients, advertisements and subscriptions, without
        faults, past, damping and merging to a budget."""
        assert self._topology is not None
        fresh = Simulation(
            routing=self.routing,
            resubscribe=self.resubscribe,
            engine=self.engine,
            merging="off" if self.merging == "budget" else self.merging,
            link=self._link_options,
            options=self._options,
            replay_events=self._replay_events,
            durable=self.durable,
        )
        fresh._broker_options = self._broker_options
        fresh.build(self._topology)
        for client in self.clients.values():
            again = fresh.join(
                client.name, client.broker, client.policy, durable=client.durable, policies=client.policies
            )
            for advertised in client.session.advertised.values():
                again.advertise(advertised.event_type, advertised.filter)
            for subscription_id, filter in client.session.subscriptions.items():
                begin = again.view if subscription_id in client.views else again.subscribe
                begin(filter, client.session.values(subscription_id))  # without an end
        return fresh

    # --- running --------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None) -> None:
        """Advance to a time, or until nothing is scheduled."""
        self.clock.run(until_ns)

    @property
    def busy_ns(self) -> dict[str, int]:
        return {name: broker.busy_ns for name, broker in self.brokers.items()}

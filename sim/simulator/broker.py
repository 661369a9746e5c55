"""A broker in virtual time: the endpoint of the broker process, its ports, and the time that messages take.
Frames of one interface that have arrived when the broker becomes free are handled together, in the order of
arrival; their actions leave when their cost has passed. Other services are models (`cores.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from covey.overlay.core.access.rights import Rights
from covey.overlay.core.budget import Budget
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.endpoint.repairing import MOVED, Repairing
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Frame, Hello, Link
from covey.overlay.core.messages import Action, Interface, Message
from covey.overlay.core.repair.uplink import UplinkRule
from covey.overlay.core.routing.broker import Broker
from covey.overlay.storage.files import StorageError
from covey.sim.simulator.clock import NS_PER_MS, Clock
from covey.sim.simulator.cores import ObservedCore, ServedCore
from covey.sim.simulator.costs import Costs
from covey.sim.simulator.defects import CrashPoints
from covey.sim.simulator.disk import SimulatedCrash
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.storage import SimulatedStorage
from covey.sim.simulator.wire import Goodbye, Packet, Port

if TYPE_CHECKING:
    from covey.sim.simulator.defects import Defect

MakeLink = Callable[[int], Link]

_Method = TypeVar("_Method", bound=Callable[..., None])


def _enters(method: _Method) -> _Method:
    """For methods called by the clock, wires and other brokers: the broker stops if its disk fails, and
    crashes at a crash point."""

    @wraps(method)
    def entered(self: SimulatedBroker, *arguments: Any) -> None:
        if self.entered:
            method(self, *arguments)
            return
        self.entered = True
        error: BaseException | None = None
        try:
            method(self, *arguments)
        except (StorageError, SimulatedCrash) as failure:
            error = failure
        finally:
            self.entered = False
        if error is not None:
            self.stopped(self.name, error)

    return cast("_Method", entered)


class BrokerPort(Port):
    """A connection, as its endpoint sees it. `policy`, `durable` and `rights` are those of the client."""

    __slots__ = ("_broker", "_budget", "_charged", "durable", "life", "policy", "rights")

    def __init__(
        self,
        interface: Interface,
        owner: SimulatedBroker,
        policy: SlowConsumer = SlowConsumer.BLOCK,
        durable: bool = False,
        rights: Rights | None = None,
    ) -> None:
        super().__init__(interface, owner)
        self._broker = owner
        self.life = owner.incarnation
        """The broker's life. A port that another has replaced is used until its connection ends, since a
        goodbye may be under way."""
        self.policy = policy
        self.durable = durable
        self.rights = rights
        self._charged = -1
        """The generation of the connection that `_budget` belongs to."""

    def hello(self) -> Hello:
        return self._broker.endpoint.hello_for(self.interface)

    def pump(self) -> None:
        if not self.open:
            return
        if self._broker.busy:
            self._broker.touch(self)
            return
        assert self.wire is not None
        while (frame := self._broker.endpoint.next_frame(self.interface, self)) is not None:
            self.wire.transmit(self, frame)

    def broken(self) -> None:
        self._broker.broken(self)

    # --- what the endpoint calls ----------------------------------------------------------------------------

    def opened(self, answer: Hello, resumed: bool) -> None:
        assert self.wire is not None
        self.wire.transmit(self, answer)
        self.open = True

    def wake(self) -> None:
        self._broker.touch(self)

    def charge(self, permits: float) -> None:
        wire, now_ns = self.wire, self._broker.now_ns
        assert wire is not None
        if self._charged != wire.generation:  # another connection, with a budget of its own
            self._charged, self._budget = wire.generation, Budget(now_ns, trusted=True)
        if not self._budget.take(permits, now_ns):
            wire.end(self)

    def close(self, status: str, reason: str) -> None:
        if self.wire is not None and status == MOVED and self.open:
            self.open = False
            self.wire.transmit(self, Goodbye.GOODBYE)
        elif self.wire is not None:
            self.wire.cut()


class SimulatedBroker:
    """`name` is its interface, `broker/b1`. `make_core` creates its core at each start. With a `rule` its
    links move (`repairing`), after `repair_after_ns`."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        make_core: Callable[[], Broker],
        make_link: MakeLink,
        costs: Costs,
        observers: Observer,
        defect: Defect | None = None,
        options: EndpointOptions | None = None,
        service: str = "broker",
        storage: SimulatedStorage | None = None,
        sync_ns: int = NS_PER_MS,
        rule: UplinkRule | None = None,
        repair_after_ns: int = 0,
        *,
        points: CrashPoints | None = None,
        stopped: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self.entered = False
        self.stopped = stopped
        self.clock_offset_ns = 0
        """Its clock, which stamps events, minus virtual time."""
        self._points = points
        self.storage = storage
        self._sync_ns = sync_ns
        self.ports: dict[str, BrokerPort] = {}
        self.alive = True
        self.busy = False
        self.incarnation = 1
        self._charged_ns = 0
        self._busy_until_ns = 0
        self._armed_ns: list[int | None] = [None, None]
        self._late = False
        """Whether the timer fired while the broker was busy."""
        self._clock = clock
        self._make_core = make_core
        self._make_link = make_link
        self._costs = costs
        self._observers = observers
        self._defect = defect
        self._options = options or EndpointOptions()
        self._service = service
        self.rule = rule
        """The rule of the overlay file that it has read last."""
        self._repair_after_ns = repair_after_ns
        self.repairing: Repairing | None = None
        self._lanes: ServedCore | None = None
        """The core, if the service is not "broker"."""
        self._inbox: deque[tuple[BrokerPort, int, Packet]] = deque()
        self._unread: dict[BrokerPort, list[tuple[BrokerPort, int, Packet]]] = {}
        """Packets of clients that have to wait (`BrokerEndpoint.delay_ns`)."""
        self._touched: dict[str, BrokerPort] = {}
        self._start(())

    def _start(self, neighbours: Sequence[Interface]) -> None:
        self.core = self._make_core()
        name, rule = self.name.removeprefix("broker/"), self.rule
        if rule is not None:
            neighbours = [f"broker/{neighbour}" for neighbour in rule.neighbours(name)]
        observed = self.core, self.name, self._costs, self._observers, self._defect, self._points
        if self._service == "broker":
            self._observed = ObservedCore(*observed)
        else:
            self._observed = self._lanes = ServedCore(
                *observed, service=self._service, clock=self._clock, serve=self._served
            )
        self.endpoint: BrokerEndpoint[Message] = BrokerEndpoint(
            self._observed,
            neighbours,
            self._options,
            new_link=self._make_link,
            life=self.incarnation,
            decode=lambda message, _: message,
            warn=lambda *_: None,
            now_ns=self._clock.now_ns,
            clock_offset_ns=self.clock_offset_ns,
            storage=None if self.storage is None else self.storage.start(),
        )
        if rule is not None:
            self.repairing = Repairing(self.endpoint, name, rule, self._repair_after_ns, self._released)

    def _released(self, interface: Interface) -> None:
        self._observers.released(self.name, interface)

    @property
    def now_ns(self) -> int:
        return self._clock.now_ns

    @property
    def busy_ns(self) -> int:
        """Its working time so far; with two lanes the sum of both."""
        lanes_ns = 0 if self._lanes is None else self._lanes.busy_ns
        return lanes_ns + self._charged_ns - max(self._busy_until_ns - self._clock.now_ns, 0)

    # --- ports ----------------------------------------------------------------------------------------------

    def port(self, interface: str) -> BrokerPort:
        port = self.ports[interface] = BrokerPort(interface, self)
        self.endpoint.add_neighbour(interface)
        return port

    def moving_port(self, interface: str) -> BrokerPort:
        port = self.ports[interface] = BrokerPort(interface, self)
        return port

    def session_port(
        self, interface: str, policy: SlowConsumer, durable: bool = False, rights: Rights | None = None
    ) -> BrokerPort:
        port = self.ports[interface] = BrokerPort(interface, self, policy, durable, rights)
        return port

    def has_session(self, interface: str) -> bool:
        queue = self.endpoint.queues.get(interface)
        return queue is not None and queue.connected

    # --- crash and restart ----------------------------------------------------------------------------------

    def crash(self, *, power: bool = True) -> None:
        """Lose all state and pending packets, including the current one; with `power` unsynced writes too."""
        self._charged_ns, self._busy_until_ns = self.busy_ns, self._clock.now_ns
        if self._lanes is not None:
            self._lanes.stop()
            self._lanes = None
        if self.storage is not None:
            self.storage.crash(power=power)
        self.alive = self.busy = self._late = False
        self._inbox.clear()
        self._unread.clear()
        self._touched.clear()

    def restart(self) -> None:
        """Start again, with new links to the neighbours; clients reconnect by themselves."""
        self.alive = True
        self.incarnation += 1
        self._armed_ns = [None, None]
        self.ports = {name: port for name, port in self.ports.items() if name.startswith("broker/")}
        for port in self.ports.values():
            port.life = self.incarnation
        self._start(list(self.ports))

    def pause(self, pause_ns: int) -> None:
        """Handle nothing for a time, as a stopped process; packets wait. The time counts as busy."""
        if self.alive and self._lanes is not None:
            self._lanes.pause(pause_ns)
        elif self.alive:
            self._charge(pause_ns)

    def step_clock(self, step_ns: int) -> None:
        self.clock_offset_ns += step_ns
        self.endpoint.clock.offset_ns = self.clock_offset_ns
        if self.alive:
            self._arm()

    # --- packets --------------------------------------------------------------------------------------------

    @_enters
    def arrive(self, port: Port, generation: int, packet: Packet) -> None:
        assert isinstance(port, BrokerPort)
        if not self.alive:
            return
        self._inbox.append((port, generation, packet))
        if not self.busy:
            self._work()

    @_enters
    def broken(self, port: BrokerPort) -> None:
        if self.alive:
            self.endpoint.lost(port.interface, port, self._clock.now_ns)
            self._settle()

    @_enters
    def repair(self, probes: Callable[[str], bool]) -> None:
        """Advance its moving links, if it has any; `probes(broker)` is whether a broker answers."""
        if self.repairing is not None:
            now_ns = self._clock.now_ns
            for name in self.repairing.to_probe():
                self.repairing.probed(name, probes(f"broker/{name}"), now_ns)
            self.repairing.advance(now_ns)
            self._settle()

    def set_rule(self, rule: UplinkRule) -> None:
        """A broker that is down reads the rule when it starts."""
        self.rule = rule
        if self.alive and self.repairing is not None:
            self.repairing.set_rule(rule, self._clock.now_ns)
            self._settle()

    def drain(self) -> None:
        self.endpoint.drain()
        self._settle()

    def touch(self, port: BrokerPort) -> None:
        """Pump this port as soon as the broker is not busy."""
        self._touched[port.interface] = port

    def _work(self) -> None:
        while not self.busy and self._inbox and not (self._lanes is not None and self._lanes.full):
            port, generation, packet = self._inbox.popleft()
            wire = port.wire
            if wire is None or wire.generation != generation or port.life != self.incarnation:
                continue  # its connection has ended
            if port in self._unread:
                self._unread[port].append((port, generation, packet))
                continue
            delay_ns = 0
            if isinstance(packet, Frame):
                delay_ns = self.endpoint.delay_ns(port.interface, self._clock.now_ns)
            if delay_ns:
                self._leave(port, generation, [packet], delay_ns)
                continue
            left = self._handle(port, packet)
            self._settle()
            spent_ns = max(self._busy_until_ns - self._clock.now_ns, 0)
            if isinstance(packet, Frame) and packet.messages:
                self.endpoint.took(port.interface, spent_ns, self._clock.now_ns + spent_ns)
            if left:
                self._leave(port, generation, left, spent_ns)

    def _leave(self, port: BrokerPort, generation: int, frames: Sequence[Packet], delay_ns: int) -> None:
        self._unread[port] = [(port, generation, frame) for frame in frames]
        self._clock.after(delay_ns, self._read, self.incarnation, port)

    @_enters
    def _read(self, incarnation: int, port: BrokerPort) -> None:
        if self.alive and incarnation == self.incarnation:
            self._inbox.extendleft(reversed(self._unread.pop(port)))
            if not self.busy:
                self._work()

    def _settle(self) -> None:
        """After a call of the endpoint: serve the sessions, charge the cost of the call, write."""
        if self.endpoint.deferred:
            self.endpoint.deliver()
        self._arm()
        if self.endpoint.wants_sync and self.storage is not None and self.storage.open is not None:
            self.endpoint.begin_sync()
            self.storage.open.begin_sync()
            self._clock.after(self._sync_ns, self._synced, self.incarnation)
        cost_ns = self._observed.take_cost()
        if cost_ns:
            self._charge(cost_ns)
        elif not self.busy:
            self._observed.finish()
            self._flush()

    @_enters
    def _synced(self, incarnation: int) -> None:
        if self.alive and incarnation == self.incarnation:
            assert self.storage is not None
            assert self.storage.open is not None
            self.storage.open.run_sync()
            self.storage.open.end_sync()
            self.endpoint.synced(self._clock.now_ns)
            self._settle()

    @_enters
    def _served(self, source: Interface, actions: list[Action]) -> None:
        self.endpoint.perform(actions, source, self._clock.now_ns)
        self._settle()
        if self._inbox:
            self._work()

    def _charge(self, cost_ns: int) -> None:
        self.busy = True
        self._charged_ns += cost_ns
        self._busy_until_ns = max(self._busy_until_ns, self._clock.now_ns) + cost_ns
        self._clock.at(self._busy_until_ns, self._done, self.incarnation)

    @_enters
    def _done(self, incarnation: int) -> None:
        if not self.alive or incarnation != self.incarnation or self._busy_until_ns > self._clock.now_ns:
            return
        self.busy = False
        self._observed.finish()
        self._flush()
        if self._late:
            self._late = False
            self._handle_timer()
        self._work()

    def _flush(self) -> None:
        touched, self._touched = self._touched, {}
        for port in touched.values():
            port.pump()

    def _handle(self, port: BrokerPort, packet: Packet) -> Sequence[Packet]:
        endpoint, now_ns, interface = self.endpoint, self._clock.now_ns, port.interface
        if self._points is not None:
            self._points.received(self.name, packet)
        wire = port.wire
        assert wire is not None
        if isinstance(packet, Goodbye):
            if interface.startswith("broker/") and self.repairing is not None:
                self.repairing.left(interface, now_ns)
            else:
                endpoint.goodbye(interface, port, now_ns)
            wire.cut()
            if self.ports.get(interface) is port:
                del self.ports[interface]
        elif not isinstance(packet, Hello):
            frames = self._together(port, packet) if self._lanes is None else [packet]
            return frames[endpoint.receive(interface, port, frames, now_ns) :]
        elif port is wire.listener:
            repairing = self.repairing if interface.startswith("broker/") else None
            if repairing is not None and not repairing.admit(interface, now_ns):
                wire.cut()
                return ()
            try:
                peer = ConnectRequest(interface, packet, port.policy, port.durable, port.rights)
                endpoint.accept(peer, port, now_ns)
            except ConnectionRefusedError:
                wire.cut()
        else:
            port.open = True
            try:
                endpoint.answer(interface, packet, port, now_ns)
            except (ConnectionRefusedError, KeyError):
                wire.cut()
        return ()

    def _together(self, port: BrokerPort, frame: Frame[Message]) -> list[Frame[Message]]:
        """The frame and those that have arrived behind it over the same connection, which leave the inbox."""
        frames, others = [frame], deque[tuple[BrokerPort, int, Packet]]()
        ended = False
        for entry in self._inbox:
            packet = entry[2]
            if entry[0] is port and not ended and isinstance(packet, Frame):
                frames.append(packet)
            else:
                ended = ended or entry[0] is port
                others.append(entry)
        self._inbox = others
        return frames

    # --- time -----------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Ticks of the core are polls, which do not keep a simulation from being at rest; deadlines do."""
        tick_ns = self.core.next_timer()
        if tick_ns is not None:
            tick_ns -= self.clock_offset_ns
        for key, due_ns, at in (
            (0, self.endpoint.next_deadline(), self._clock.at),
            (1, tick_ns, self._clock.poll_at),
        ):
            armed_ns = self._armed_ns[key]
            if due_ns is not None and (armed_ns is None or due_ns < armed_ns):
                self._armed_ns[key] = due_ns
                at(due_ns, self._on_timer, self.incarnation, key, due_ns)

    def _handle_timer(self) -> None:
        self.endpoint.handle_timer(self._clock.now_ns)
        self._settle()
        spent_ns = max(self._busy_until_ns - self._clock.now_ns, 0)
        self.endpoint.timers_took(spent_ns, self._clock.now_ns + spent_ns)

    @_enters
    def _on_timer(self, incarnation: int, key: int, due_ns: int) -> None:
        if not self.alive or incarnation != self.incarnation or due_ns != self._armed_ns[key]:
            return
        self._armed_ns[key] = None
        if self.busy:
            self._late = True
        else:
            self._handle_timer()

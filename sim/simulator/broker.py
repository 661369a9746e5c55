"""A broker in virtual time: the routing core, its ports, and the time that its messages take.

It does what `overlay/node/node.py` does, without sockets: it handles frames one at a time, in the order of
arrival; the resulting messages leave when the frame's cost has passed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import Action, Connect, Disconnect, Drop, Message, Send, Tick
from covey.overlay.core.routing.broker import Broker
from covey.sim.simulator.clock import Clock
from covey.sim.simulator.costs import Costs, Sample
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.wire import Goodbye, Packet, Port

if TYPE_CHECKING:
    from covey.sim.simulator.defects import Defect

MakeLink = Callable[[int], Link]


class SimulatedBroker:
    """A broker; `name` is its interface, `broker/b1`. `make_core` creates its core at each start."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        make_core: Callable[[], Broker],
        make_link: MakeLink,
        costs: Costs,
        observers: Iterable[Observer],
        defect: Defect | None = None,
    ) -> None:
        self.name = name
        self.core = make_core()
        self.ports: dict[str, Port] = {}
        self.alive = True
        self.busy = False
        self._armed = False
        self._charged_ns = 0
        """The cost of all its messages, the current one included."""
        self._busy_until_ns = 0
        self.incarnation = 1
        self._clock = clock
        self._make_core = make_core
        self._make_link = make_link
        self._costs = costs
        self._observers = observers
        self._defect = defect
        self._inbox: deque[tuple[Port, int, Packet]] = deque()
        self._touched: dict[str, Port] = {}

    @property
    def busy_ns(self) -> int:
        """Its working time so far."""
        return self._charged_ns - max(self._busy_until_ns - self._clock.now_ns, 0)

    # --- ports ----------------------------------------------------------------------------------------------

    def port(self, interface: str) -> Port:
        """A new port towards an interface."""
        port = self.ports[interface] = Port(interface, self._make_link(self.incarnation), self)
        return port

    def session_port(self, interface: str) -> Port:
        """A port for a client that dials; ends its previous session here."""
        if interface in self.ports:
            self.end_session(interface)
        return self.port(interface)

    def end_session(self, interface: str) -> None:
        """Remove a client and its state."""
        port = self.ports.pop(interface, None)
        if port is not None and self.alive:
            port.open = False
            self._perform(interface, Disconnect())
            self._flush()

    # --- crash and restart ----------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose all state and all pending packets, the current one included."""
        self._charged_ns, self._busy_until_ns = self.busy_ns, self._clock.now_ns
        self.alive = self.busy = False
        self._inbox.clear()
        self._touched.clear()

    def restart(self) -> None:
        """Start again, with new links to the neighbours; clients reconnect by themselves."""
        self.alive = True
        self._armed = False
        self.incarnation += 1
        self.core = self._make_core()
        self.ports = {name: port for name, port in self.ports.items() if name.startswith("broker/")}
        for port in self.ports.values():
            port.link = self._make_link(self.incarnation)

    # --- messages -------------------------------------------------------------------------------------------

    def arrive(self, port: Port, generation: int, packet: Packet) -> None:
        """Queue a packet that has arrived."""
        self._inbox.append((port, generation, packet))
        if not self.busy:
            self._handle_packets()

    def touch(self, port: Port) -> None:
        """Pump this port as soon as the broker is no longer busy."""
        self._touched[port.interface] = port

    def _handle_packets(self) -> None:
        while self._inbox:
            port, generation, packet = self._inbox.popleft()
            wire = port.wire
            if wire is None or wire.generation != generation or self.ports.get(port.interface) is not port:
                continue  # its connection has ended
            cost_ns = self._handle(port, packet)
            if cost_ns:
                self.busy = True
                self._charged_ns += cost_ns
                self._busy_until_ns = self._clock.now_ns + cost_ns
                self._clock.after(cost_ns, self._done, self.incarnation)
                return
            self._flush()

    def _done(self, incarnation: int) -> None:
        if self.alive and incarnation == self.incarnation:
            self.busy = False
            self._flush()
            self._handle_packets()

    def _flush(self) -> None:
        if self.busy:
            return
        touched, self._touched = self._touched, {}
        for port in touched.values():
            port.pump()

    def _handle(self, port: Port, packet: Packet) -> int:
        """Handle one packet and return its cost."""
        self._touched[port.interface] = port
        if isinstance(packet, Hello):
            return self._open(port, packet)
        if isinstance(packet, Goodbye):
            wire = port.wire
            assert wire is not None
            wire.cut()
            del self.ports[port.interface], self._touched[port.interface]
            return self._perform(port.interface, Disconnect())
        cost_ns = 0
        for message in port.link.receive(packet, self._clock.now_ns):
            if events_in(message):
                port.link.consume(size_of(message))
            for observer in self._observers:
                observer.received(port.interface, self.name, message)
            cost_ns += self._perform(port.interface, message)
        return cost_ns

    def _open(self, port: Port, hello: Hello) -> int:
        wire = port.wire
        assert wire is not None
        answer = port.link.hello()
        resumed = port.link.resume(hello)
        if port is wire.listener:
            wire.transmit(port, answer)
        port.open = True
        return 0 if resumed else self._perform(port.interface, Connect())

    def _perform(self, interface: str, message: Message) -> int:
        started = time.thread_time_ns() if self._costs.measures else 0
        actions = self.core.handle(message, interface, self._clock.now_ns)
        took_ns = time.thread_time_ns() - started if self._costs.measures else 0
        if self._defect is not None:
            actions = self._defect.apply(self.core, interface, message, actions)
        self._do(actions)
        self._arm()
        kind, subscriptions = type(message).__name__, len(self.core.tables.registry)
        return self._costs.charge(Sample(kind, events_in(message), len(actions), subscriptions, took_ns))

    def _arm(self) -> None:
        """Schedule the core's timer."""
        due_ns = self.core.next_timer()
        if due_ns is not None and not self._armed:
            self._armed = True
            self._clock.poll_at(due_ns, self._tick, self.incarnation)

    def _tick(self, incarnation: int) -> None:
        if self.alive and incarnation == self.incarnation:
            self._armed = False
            self._perform("", Tick())
            self._flush()

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                port = self.ports.get(action.interface)
                if port is not None:
                    port.link.send(action.message)
                    self._touched[action.interface] = port
            elif isinstance(action, Drop):
                for observer in self._observers:
                    observer.dropped(self.name, action)

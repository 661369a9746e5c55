"""A routing core whose calls are observed, charged for, and altered by a defect; and models of services.

The service "broker" is the broker process (`broker.py`). Under the others a frame is accepted on arrival and
its messages wait in lanes. A server takes the first message of its first lane that has one and is busy for
its cost; then, at one instant, the core handles the message and its actions leave.

- fifo: one lane and one server
- control-first: one server; events wait while control does, but no service is interrupted
- two-lanes: a server for control and one for events, the paper's brokers of two cores, which filter and
  forward while they change their posets (Jayaram et al., sections 5.3 and 5.6)

Dependent messages of a source keep their order. Events behind an Advertise of their source wait in the
control lane, as do later ones. Such an event, or an Unadvertise, whose turn comes while earlier events of its
source wait moves behind them; while a moved control message waits, so do the source's later ones. When a
session begins or ends, the waiting messages of its interface are handled first, and their cost delays the
messages behind them. Beyond `FULL` messages in a lane frames are left unread, so that their senders stop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.overlay.core.link.size import events_in
from covey.overlay.core.messages import (
    Action,
    Advertise,
    Connect,
    Disconnect,
    Drop,
    Interface,
    Message,
    Publish,
    Unadvertise,
    Withdraw,
)
from covey.overlay.core.routing.broker import Broker
from covey.overlay.core.routing.tables import Tables
from covey.sim.simulator.clock import Clock
from covey.sim.simulator.costs import Costs, Sample
from covey.sim.simulator.defects import CrashPoints
from covey.sim.simulator.observer import Observer

if TYPE_CHECKING:
    from covey.sim.simulator.defects import Defect


class ObservedCore:
    """What a `BrokerEndpoint` uses of a core. It serves sessions with neighbours in one call, so that the
    whole cost is known. With a defect it handles one message at a time."""

    deferred: Sequence[object] = ()

    def __init__(
        self,
        core: Broker,
        name: str,
        costs: Costs,
        observers: Observer,
        defect: Defect | None,
        points: CrashPoints | None = None,
    ) -> None:
        self._points = points
        self._core = core
        self._name = name
        self._costs = costs
        self._observers = observers
        self._defect = defect
        self._cost_ns = 0
        self._unfinished: list[tuple[Interface, Sequence[Message], list[Action]]] = []

    def finish(self) -> None:
        """Call when the cost of all calls so far has passed."""
        unfinished, self._unfinished = self._unfinished, []
        for source, messages, actions in unfinished:
            self._observers.handled(self._name, source, messages, actions)
            if self._points is not None:
                self._points.sending(self._name, actions)

    def take_cost(self) -> int:
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    @property
    def tables(self) -> Tables:
        return self._core.tables

    @property
    def synced(self) -> bool:
        return self._core.synced

    def unsettled(self, interface: Interface) -> int:
        return self._core.unsettled(interface)

    def next_timer(self) -> int | None:
        return self._core.next_timer()

    def handle(self, message: Message, source: Interface, now_ns: int) -> list[Action]:
        return self._altered((message,), source, now_ns)

    def handle_all(
        self, messages: Sequence[Message], source: Interface, now_ns: int, *, defer: bool = False
    ) -> list[Action]:
        for message in messages:
            self._arrived(message, source)
        return self._altered(messages, source, now_ns)

    def _arrived(self, message: Message, source: Interface) -> None:
        self._observers.received(source, self._name, message)
        if self._points is not None:
            self._points.received(self._name, message)

    def _altered(self, messages: Sequence[Message], source: Interface, now_ns: int) -> list[Action]:
        if self._defect is None:
            actions = self._handle(messages, source, now_ns)
        else:
            actions = []
            for message in messages:
                actions += self._defect.apply(
                    self._core, source, message, self._handle((message,), source, now_ns)
                )
        self._unfinished.append((source, messages, actions))
        return actions

    def deliver(self) -> list[Action]:
        return []

    def _handle(self, messages: Sequence[Message], source: Interface, now_ns: int) -> list[Action]:
        measures = self._costs.measures
        started_ns = time.thread_time_ns() if measures else 0
        actions = self._core.handle_all(messages, source, now_ns)
        took_ns = time.thread_time_ns() - started_ns if measures else 0
        self._charge(messages, took_ns)
        for action in actions:
            if isinstance(action, Drop):
                self._observers.dropped(self._name, action)
        return actions

    def _charge(self, messages: Sequence[Message], took_ns: int) -> None:
        count = max(1, len(messages))
        for message in messages:
            self._cost_ns += self._costs.charge(self._sample(message, took_ns // count))

    def _sample(self, message: Message, took_ns: int = 0) -> Sample:
        filters = len(self._core.tables.registry)
        return Sample(self._name, type(message).__name__, events_in(message), filters, took_ns)


SERVICES = ("broker", "fifo", "control-first", "two-lanes")
FULL = 10_000


@dataclass(slots=True, eq=False)
class _Waiting:
    """`counted` is the number of such messages by source, None where they are not counted."""

    serial: int
    message: Message
    source: Interface
    counted: dict[Interface, int] | None
    moved: bool = False
    handled: bool = False


_Lane = deque[_Waiting]


@dataclass(slots=True, eq=False)
class _Server:
    """`lanes` are in the order of their priority; `debt_ns` is worked before the next message."""

    lanes: tuple[_Lane, ...]
    current: _Waiting | None = None
    busy: bool = False
    debt_ns: int = 0
    charged_ns: int = 0
    until_ns: int = 0


class ServedCore(ObservedCore):
    """A core whose messages wait in lanes. `serve` gets the source and actions of each handled message."""

    def __init__(
        self,
        core: Broker,
        name: str,
        costs: Costs,
        observers: Observer,
        defect: Defect | None,
        points: CrashPoints | None = None,
        *,
        service: str,
        clock: Clock,
        serve: Callable[[Interface, list[Action]], None],
    ) -> None:
        super().__init__(core, name, costs, observers, defect, points)
        self._clock = clock
        self._serve = serve
        control: _Lane = deque()
        events: _Lane = control if service == "fifo" else deque()
        self._control, self._events = control, events
        if service == "two-lanes":
            self._servers = [_Server((control,)), _Server((events,))]
        else:
            self._servers = [_Server((control,) if service == "fifo" else (control, events))]
        self._ahead: dict[Interface, int] = {}
        """By source, its messages in the control lane behind which its events wait."""
        self._behind: dict[Interface, int] = {}
        """By source, its messages in the event lane."""
        self._moved: dict[Interface, int] = {}
        """By source, its control messages in the event lane."""
        self._two = service == "two-lanes"
        self._serial = 0
        self._stopped = False

    @property
    def full(self) -> bool:
        return len(self._control) > FULL or len(self._events) > FULL

    @property
    def busy_ns(self) -> int:
        now_ns = self._clock.now_ns
        return sum(server.charged_ns - max(server.until_ns - now_ns, 0) for server in self._servers)

    def stop(self) -> None:
        self._stopped = True

    def pause(self, pause_ns: int) -> None:
        for server in self._servers:
            server.debt_ns += pause_ns
            self._begin(server)

    # --- what the endpoint calls ----------------------------------------------------------------------------

    def handle_all(
        self, messages: Sequence[Message], source: Interface, now_ns: int, *, defer: bool = False
    ) -> list[Action]:
        for message in messages:
            self._arrived(message, source)
            self._put(message, source)
        return []

    def handle(self, message: Message, source: Interface, now_ns: int) -> list[Action]:
        actions: list[Action] = []
        if isinstance(message, Connect | Disconnect | Withdraw):
            actions = self._flush(source, now_ns)
        self._owe(self._servers[0], message)
        return actions + self._altered((message,), source, now_ns)

    def _charge(self, messages: Sequence[Message], took_ns: int) -> None:
        """Messages are charged when their service begins."""

    # --- lanes ----------------------------------------------------------------------------------------------

    def _put(self, message: Message, source: Interface) -> None:
        self._serial += 1
        is_events = isinstance(message, Publish)
        lane, counted = self._control, None
        if is_events and not (self._two and source in self._ahead):
            lane, counted = self._events, self._behind
        elif is_events or isinstance(message, Advertise):
            counted = self._ahead
        if counted is not None:
            _add(counted, source)
        lane.append(_Waiting(self._serial, message, source, counted))
        for server in self._servers:
            if lane in server.lanes:
                self._begin(server)

    def _begin(self, server: _Server) -> None:
        if server.busy:
            return
        waiting = self._next(server)
        cost_ns, server.debt_ns = server.debt_ns, 0
        if waiting is not None:
            cost_ns += self._costs.charge(self._sample(waiting.message))
        elif not cost_ns:
            return
        server.busy, server.current = True, waiting
        server.charged_ns += cost_ns
        server.until_ns = self._clock.now_ns + cost_ns
        self._clock.at(server.until_ns, self._end, server)

    def _next(self, server: _Server) -> _Waiting | None:
        for lane in server.lanes:
            while lane:
                waiting = lane.popleft()
                if lane is self._events or not self._moves(waiting):
                    return waiting
                if waiting.counted is not None:
                    _take(waiting.counted, waiting.source)
                waiting.counted = self._behind
                _add(self._behind, waiting.source)
                if not isinstance(waiting.message, Publish):
                    waiting.moved = True
                    _add(self._moved, waiting.source)
                self._events.append(waiting)
        return None

    def _moves(self, waiting: _Waiting) -> bool:
        """Whether a message of its source in the event lane has to be handled before it."""
        awaited = self._behind if isinstance(waiting.message, Publish | Unadvertise) else self._moved
        return waiting.source in awaited

    def _end(self, server: _Server) -> None:
        if self._stopped:
            return
        waiting, server.current, server.busy = server.current, None, False
        if waiting is not None and not waiting.handled:
            self._serve(waiting.source, self._handled(waiting, self._clock.now_ns))
        self._begin(server)

    def _handled(self, waiting: _Waiting, now_ns: int) -> list[Action]:
        waiting.handled = True
        source = waiting.source
        if waiting.counted is not None:
            _take(waiting.counted, source)
        if waiting.moved:
            _take(self._moved, source)
        return self._altered((waiting.message,), source, now_ns)

    def _flush(self, source: Interface, now_ns: int) -> list[Action]:
        found: list[_Waiting] = []
        for server in self._servers:
            if server.current is not None and server.current.source == source:
                found.append(server.current)
            for lane in server.lanes:
                mine = [waiting for waiting in lane if waiting.source == source]
                if mine:
                    others = [waiting for waiting in lane if waiting.source != source]
                    lane.clear()
                    lane.extend(others)
                for waiting in mine:
                    self._owe(server, waiting.message)
                found += mine
        actions: list[Action] = []
        for waiting in sorted(found, key=lambda each: each.serial):
            if not waiting.handled:
                actions += self._handled(waiting, now_ns)
        return actions

    def _owe(self, server: _Server, message: Message) -> None:
        server.debt_ns += self._costs.charge(self._sample(message))
        self._begin(server)


def _add(counts: dict[Interface, int], source: Interface) -> None:
    counts[source] = counts.get(source, 0) + 1


def _take(counts: dict[Interface, int], source: Interface) -> None:
    counts[source] -= 1
    if not counts[source]:
        del counts[source]

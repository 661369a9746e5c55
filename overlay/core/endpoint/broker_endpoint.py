"""The endpoint of a broker: everything between its routing core and the bytes of its connections, without
I/O.

What arrives goes in with the time (`accept`, `receive`, `lost`, `handle_timer`); frames come out
(`next_frame`), and so does the time of the next `handle_timer`. It passes messages to the core in the order
of arrival and queues the core's messages in the order of its actions. It decides who may send how much
(credit, holds), which connection has an interface, how long a session outlives its connection (lease), what a
full queue does (`interface_queue.py`), and when a restarted broker takes events again. The node moves its
frames over sockets, the simulator over wires in virtual time.

Times are nanoseconds of a clock that never jumps; `clock_offset_ns` added to one gives the time of the clock
that stamps events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Generic, TypeVar

from covey.overlay.core.endpoint.admission import Undecodable, admit, refuse_held
from covey.overlay.core.endpoint.challenges import Challenges
from covey.overlay.core.endpoint.connections import (
    Connection,
    ConnectionRefusedError,
    IncomingConnection,
    Peer,
)
from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.dialling import NEVER_LINKED_NS, NOT_DIALLED, both_dial, own_prevails
from covey.overlay.core.endpoint.holds import Holds
from covey.overlay.core.endpoint.interface_queue import STALLED, DropCounts, InterfaceQueue
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.endpoint.quotas import Quotas
from covey.overlay.core.endpoint.recovery import Recovery
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.endpoint.windows import Windows
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.link import Frame, Hello, Link, LinkError
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    AwaitClients,
    Connect,
    Disconnect,
    Hold,
    Interface,
    Message,
    Publish,
    Refuse,
    Send,
    Tick,
    Unsubscribe,
    Update,
)

M = TypeVar("M")

NS_PER_S = 1_000_000_000
BLOCK_WHILE_AWAY_NS = 2 * NS_PER_S
"""How long the full queue of a disconnected interface goes on holding the sources."""
_FEW_TYPES = 1_000
_BATCHED = (Publish, Update, Acknowledge)
"""Messages after which the next one is decoded the same way, so that several are handled in one call."""


class BrokerEndpoint(Generic[M]):
    """One broker. `new_link` makes a link of an incarnation; `life`, of 31 bits, differs from that of the
    broker's earlier lives. `decode` turns a message of a frame, from a neighbour or not, into one of the
    core. `warn` gets one sentence for the operator: an interface and what is wrong with it. `dialled` are the
    neighbours to which this broker opens the connection.
    """

    def __init__(
        self,
        core: Core,
        neighbours: Sequence[Interface],
        options: EndpointOptions,
        *,
        new_link: Callable[[int], Link],
        life: int,
        decode: Callable[[M, bool], Message | Undecodable],
        warn: Callable[[Interface, str], None],
        now_ns: int,
        dialled: Collection[Interface] = (),
    ) -> None:
        self.core = core
        self.options = options
        self.clock_offset_ns = 0
        self.queues: dict[Interface, InterfaceQueue] = {}
        self.drops = DropCounts()
        self.refused = 0
        self.draining = False
        self.deferred = False
        """Whether `deliver` is to be called, once the frames for neighbours are on their way."""
        self.holds = Holds(self._tell_hold)
        self._new_link = new_link
        self._quotas = Quotas(core.tables, options.bounds)
        self._links = 0
        self._decode = decode
        self._warn = warn
        self._now_ns = now_ns
        self._timers: Timers[tuple[str, Interface]] = Timers()
        self._challenges = Challenges(self._timers)
        self._ending: list[tuple[InterfaceQueue, str, str]] = []
        self._windows = Windows(options.windows)
        self._recovery = Recovery(life, now_ns, self._timers)
        self._source: InterfaceQueue | None = None
        self._neighbours: dict[Interface, InterfaceQueue] = {}
        self._most_types = _FEW_TYPES
        self._dialled = frozenset(dialled)
        for interface in neighbours:
            self.add_neighbour(interface)
            self._await_neighbour(interface)

    def _queue(self, interface: Interface, policy: SlowConsumer = SlowConsumer.BLOCK) -> InterfaceQueue:
        session = not interface.startswith("broker/")
        # Each link has an incarnation of its own, so that a client whose session has ended cannot resume the
        # next session of that name. A link that gives up control takes one of the next thousand.
        self._links = (self._links + 1) % (1 << 22)
        queue = InterfaceQueue(
            interface,
            self._new_link(self._recovery.incarnation(self._links)),
            changed=self._fullness_changed,
            warn=lambda sentence: self._warn(interface, sentence),
            policy=policy,
            limits=self.options.queue_limits(session=session),
        )
        queue.since_ns = self._now_ns
        if session:
            self._windows.opened(interface, queue.link)
        queue.link.withhold_credit(self.draining or self._recovery.going_on)
        return queue

    @property
    def recovering(self) -> bool:
        """Whether it takes no events yet, having lost its state."""
        return self._recovery.going_on

    def add_neighbour(self, interface: Interface) -> None:
        """A broker that this one is linked to, besides those it was made with."""
        if interface not in self.queues:
            self.queues[interface] = self._neighbours[interface] = self._queue(interface)

    # --- changes while it runs ------------------------------------------------------------------------------

    def set_options(self, options: EndpointOptions) -> None:
        """From now on other options, but for the sizes of events and frames, in which neighbours agree."""
        self.options = options
        self._quotas.bounds = options.bounds
        for queue in self.queues.values():
            queue.limits = options.queue_limits(session=not queue.is_broker)

    def set_dialled(self, dialled: Collection[Interface], now_ns: int) -> None:
        """To which of its neighbours this broker opens the connection from now on."""
        self._now_ns = now_ns
        self._dialled = frozenset(dialled)
        for interface, queue in self._neighbours.items():
            if interface in self._dialled:
                self._timers.cancel(("unlinked", interface))
            elif not queue.connected and ("unlinked", interface) not in self._timers:
                self._await_neighbour(interface)

    def release_neighbour(self, interface: Interface, now_ns: int) -> None:
        """Route nothing more to a neighbour, for good. What is queued for it still leaves."""
        self._now_ns = now_ns
        if interface not in self.core.tables.peers:  # the core waits for its first connection
            self._tell_core(Connect(), interface)
        self._tell_core(Disconnect(), interface)
        self._finish()

    def remove_neighbour(self, interface: Interface, reason: str, now_ns: int) -> None:
        """End the link to a released neighbour, with a goodbye. Events that are queued for it are dropped."""
        self._now_ns = now_ns
        queue = self._neighbours.pop(interface)
        self._remove(queue, "neighbour removed")
        self._detach(queue, "UNAVAILABLE", reason)
        self._end_challenge(interface, won=False)

    # --- connections ----------------------------------------------------------------------------------------

    def accept(self, peer: Peer, connection: IncomingConnection, now_ns: int) -> None:
        """A connection was opened by its peer. It is opened now, or after the holder of its name has had the
        time to answer, or closed.

        `ConnectionRefusedError` if the broker is shutting down, or others compete for the name already;
        `LinkError` for a hello that makes no sense.
        """
        self._now_ns = now_ns
        if self.draining:
            raise ConnectionRefusedError("UNAVAILABLE", "the broker is shutting down")
        queue = self.queues.get(peer.interface)
        if queue is not None and queue.is_broker:
            self._arbitrate(queue, peer)
        if queue is not None and queue.connected:
            if queue.link.peer_incarnation != peer.hello.incarnation:
                self._challenges.begin(peer, connection, now_ns)
                queue.link.probe()
                queue.wake()
                return
            self._detach(queue, "ABORTED", "a newer connection replaces this one")
            self._disconnected(queue)
        self._open(peer, connection)
        self._finish()

    def answer(self, interface: Interface, hello: Hello, connection: Connection, now_ns: int) -> bool:
        """A connection that this broker has opened to a neighbour, with `hello_for`, was answered; whether
        the link resumes. `LinkError` for an answer that makes no sense, `ConnectionRefusedError` if the
        neighbour has connected meanwhile.
        """
        self._now_ns = now_ns
        queue = self.queues[interface]
        if queue.connected or not queue.handshake:
            # The neighbour took a hello from before the other connection, and may have reset its end for it.
            queue.link.forget_peer()
            own, name = self.core.tables.broker_id, interface.removeprefix("broker/")
            raise ConnectionRefusedError("ALREADY_EXISTS", both_dial(own, name))
        resumed = self._attach(queue, hello, connection)
        self._finish()
        return resumed

    def _arbitrate(self, queue: InterfaceQueue, peer: Peer) -> None:
        """`ConnectionRefusedError` if a connection that this broker opens to the neighbour stays instead."""
        own, name = self.core.tables.broker_id, queue.interface.removeprefix("broker/")
        again = queue.link.peer_incarnation == peer.hello.incarnation
        if own_prevails(own, name) and (queue.handshake or (queue.connected and queue.dialled and again)):
            raise ConnectionRefusedError("ALREADY_EXISTS", both_dial(own, name))

    def hello_for(self, interface: Interface) -> Hello:
        """The hello for a connection that this broker opens; until it is answered or has failed
        (`handshake`), the link keeps its incarnation.
        """
        queue = self.queues[interface]
        queue.handshake = True
        return queue.link.hello()

    def _end_challenge(self, interface: Interface, *, won: bool) -> None:
        challenge = self._challenges.end(interface)
        if challenge is None:
            return
        if not won:
            challenge.refuse()
            return
        queue = self.queues.get(interface)
        if queue is not None and queue.connected:
            self._detach(queue, "ABORTED", "it did not answer when another claimed its name")
        try:
            self._open(challenge.peer, challenge.connection)
        except LinkError as error:
            challenge.connection.close("INVALID_ARGUMENT", str(error))
        except ConnectionRefusedError as error:
            challenge.connection.close(error.status, str(error))

    def _open(self, peer: Peer, connection: IncomingConnection) -> None:
        queue = self.queues.get(peer.interface)
        if (
            queue is not None
            and not queue.is_broker
            and queue.link.peer_incarnation != peer.hello.incarnation
        ):
            self._end_session(queue, "replaced by a new client of that name", "ABORTED")
            queue = None
        if queue is None:
            refusal = self._quotas.session_refusal(len(self.queues) - len(self._neighbours))
            if refusal is not None:
                raise ConnectionRefusedError("RESOURCE_EXHAUSTED", refusal)
            queue = self._queue(peer.interface, peer.slow_consumer)
        answer = queue.link.hello()
        self._attach(queue, peer.hello, connection, opened=partial(connection.opened, answer))

    def _attach(
        self,
        queue: InterfaceQueue,
        hello: Hello,
        connection: Connection,
        opened: Callable[[bool], None] | None = None,
    ) -> bool:
        """Resume or reset the link of an interface with a connection; whether it resumes. `LinkError` if the
        hello does not fit.
        """
        queue.handshake = False
        queue.since_ns = self._now_ns
        queue.dialled = opened is None
        resumed = queue.link.resume(hello)
        interface = queue.interface
        self.queues[interface] = queue
        if opened is not None:
            opened(resumed)
        taken = queue.attach(connection)
        self._timers.cancel(("unlinked", interface))
        self._timers.cancel(("away", interface))
        self._timers.cancel(("lease", interface))
        if taken:
            self._rearm_stall(queue)
        if not resumed:
            self.holds.forget_source(interface)
            if queue.is_broker:
                self._recovery.neighbour_connected(hello)
            if self._recovery.begins(hello, self._now_ns):
                self._withhold_credit()
                self._tell_core(AwaitClients(True), "")
            self._tell_core(Connect(), interface)
        queue.wake()
        return resumed

    def _detach(self, queue: InterfaceQueue, status: str, reason: str) -> None:
        connection, queue.connection = queue.connection, None
        if connection is not None:
            connection.close(status, reason)

    def lost(self, interface: Interface, connection: Connection, now_ns: int) -> None:
        """A connection has ended. Nothing changes if the interface has another one by then."""
        self._now_ns = now_ns
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection:
            self._challenges.withdraw(interface, connection)
            return
        queue.connection = None
        self._disconnected(queue)
        self._end_challenge(interface, won=True)
        self._finish()

    def _await_neighbour(self, interface: Interface) -> None:
        if interface not in self._dialled:
            self._timers.set(("unlinked", interface), self._now_ns + NEVER_LINKED_NS)

    def _disconnected(self, queue: InterfaceQueue) -> None:
        interface = queue.interface
        queue.since_ns = self._now_ns
        self._timers.cancel(("ack", interface))
        self._timers.set(("away", interface), self._now_ns + BLOCK_WHILE_AWAY_NS)
        if queue.is_broker:
            self._await_neighbour(interface)
        else:
            lease_ns = round(self.options.sessions.lease_s * NS_PER_S)
            self._timers.set(("lease", interface), self._now_ns + lease_ns)

    def goodbye(self, interface: Interface, connection: Connection, now_ns: int) -> None:
        """A client leaves: its session ends."""
        self._now_ns = now_ns
        queue = self.queues.get(interface)
        if queue is not None and queue.connection is connection:
            queue.connection = None
            self._end_session(queue, "it left", "OK")
            self._end_challenge(interface, won=True)
            self._finish()

    def _end_session(self, queue: InterfaceQueue, why: str, status: str) -> None:
        """Drop a client's session and its state in the core."""
        if self.queues.get(queue.interface) is not queue:
            return
        self._remove(queue, "session ended")
        self._detach(queue, status, f"session ended: {why}")
        self._tell_core(Disconnect(), queue.interface)

    def _remove(self, queue: InterfaceQueue, why: str) -> None:
        """Drop an interface, all but its state in the core."""
        interface = queue.interface
        del self.queues[interface]
        for name in ("ack", "away", "lease", "stall", "unlinked"):
            self._timers.cancel((name, interface))
        self._windows.forget(interface)
        self._quotas.forget(interface)
        queue.discard(why)
        self.holds.forget_source(interface)
        for reason, events in queue.drops.by_reason.items():
            self.drops.add(reason, events)

    # --- frames ---------------------------------------------------------------------------------------------

    def receive(
        self, interface: Interface, connection: Connection, frames: Sequence[Frame[M]], now_ns: int
    ) -> None:
        """Handle frames that arrived together on a connection, in order, if it is still the interface's.
        `LinkError` where a frame breaks the protocol: those before it were handled.
        """
        self._now_ns = now_ns
        if self.deferred:
            self.deliver()
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection:
            return
        link = queue.link
        messages: list[M | Acknowledge] = []
        error: LinkError | None = None
        try:
            for frame in frames:
                arrived = link.receive(frame, now_ns)
                messages.extend(arrived)
        except LinkError as broken:
            error = broken
        if messages:
            self._take(queue, messages)
        if queue.received():
            self._rearm_stall(queue)
        if interface in self._challenges:
            self._end_challenge(interface, won=False)
        due_ns = link.next_timer()
        if due_ns is not None:
            self._timers.set(("ack", interface), due_ns)
        if link.ready:
            queue.wake()
        self._finish()
        if error is not None:
            raise error

    def ready(self, interface: Interface, connection: Connection) -> bool:
        """Whether `next_frame` returns a frame."""
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection or (self.deferred and queue is self._source):
            return False
        return queue.link.ready

    def next_frame(self, interface: Interface, connection: Connection) -> Frame[Message] | None:
        """The next frame for a connection, None if there is none or the interface has another one by now."""
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection or (self.deferred and queue is self._source):
            return None  # a frame would acknowledge events with which sessions have yet to be served
        return queue.link.next_frame()

    def busy(self, interface: Interface) -> bool:
        """Whether what has arrived from a client is better left where it is for some milliseconds: it has
        many changes on their way, and a neighbour cannot keep up.
        """
        options = self.options
        if interface.startswith("broker/") or self.core.unsettled(interface) <= options.max_unsettled:
            return False
        return any(
            queue.connected and queue.link.queued_control > options.max_queued_control
            for queue in self._neighbours.values()
        )

    def _take(self, queue: InterfaceQueue, messages: Sequence[M | Acknowledge]) -> None:
        """Consecutive events go into one call of the core, and so do updates and acknowledgements."""
        pending: list[Message] = []
        for wire in messages:
            message = wire if isinstance(wire, Acknowledge) else self._decoded(queue, wire)
            if message is None:
                continue
            if pending and isinstance(message, Publish) is not isinstance(pending[0], Publish):
                self._handle(queue, pending)
                pending = []
            pending.append(message)
            if not isinstance(message, _BATCHED):
                self._handle(queue, pending)
                pending = []
        if pending:
            self._handle(queue, pending)

    def _decoded(self, queue: InterfaceQueue, wire: M) -> Message | None:
        """The message, or the admitted part of it; None if it was refused, or was for this endpoint."""
        message = self._decode(wire, queue.is_broker)
        if isinstance(message, Undecodable):
            queue.link.consume(message.size)
            refuse = message.refuse
            if queue.is_broker and refuse.count:
                self.drops.add("malformed or of unknown type", refuse.count)
                return None
            return self._refused(queue, refuse)
        if isinstance(message, Hold):
            if queue.is_broker:  # a client limits what it gets by its credit, and that for a time only
                queue.set_held(message.type_name, message.held)
            return None
        if not isinstance(message, Publish):
            over_quota = None if queue.is_broker else self._quotas.refusal(message, queue.interface)
            return message if over_quota is None else self._refused(queue, over_quota)
        size = size_of(message)
        queue.link.consume(size)
        since_hold = self.holds.sent(queue.interface, message.batch.event_type.name, size)
        if self.holds.types > self._most_types:
            self._forget_types()
        if queue.is_broker:
            return message
        if since_hold > self.options.after_hold_bytes:
            self._enqueue(queue, refuse_held(message.batch))
            return None
        self._windows.published(queue.interface, queue.link)
        options = self.options
        ingress_ns = self._clock_ns if options.stamp_ingress else message.batch.ingress_ns
        batch, refusals = admit(message.batch, options.limits, ingress_ns)
        for refusal in refusals:
            self._enqueue(queue, refusal)
        return None if batch is None else Publish(batch)

    def _forget_types(self) -> None:
        """Event types come and go: what is noted of those that have gone is dropped, now and then."""
        known = self.core.tables.types
        self.holds.forget_types(known)
        for queue in self.queues.values():
            queue.forget_types(known)
        self._most_types = max(_FEW_TYPES, 2 * self.holds.types)

    def _refused(self, queue: InterfaceQueue, refuse: Refuse) -> Message | None:
        """Answer a message that the core never gets; an Unsubscribe of no subscription settles its epoch."""
        self._enqueue(queue, refuse)
        return Unsubscribe(refuse.epoch, 0) if refuse.epoch else None

    def _handle(self, queue: InterfaceQueue, messages: list[Message]) -> None:
        """Pass messages to the core in one call: events only, or no events."""
        if isinstance(messages[0], Publish):
            options = self.options
            messages = join(messages, options.join_events, options.limits.max_frame_bytes // 2)
        if self.deferred:
            self.deliver()
        actions = self.core.handle_all(messages, queue.interface, self._clock_ns, defer=True)
        self._perform(actions, queue)
        self.deferred = self.core.deferred
        self._source = queue

    def deliver(self) -> None:
        """Serve the sessions with the events that have gone to neighbours."""
        self.deferred = False
        self._perform(self.core.deliver(), self._source)
        self._finish()
        if self._source is not None and self._source.link.ready:
            self._source.wake()

    def perform(self, actions: list[Action], interface: Interface, now_ns: int) -> None:
        """Queue the actions of a core that answers messages of an interface later than in the call."""
        self._now_ns = now_ns
        self._perform(actions, self.queues.get(interface))
        self._finish()

    def _tell_core(self, message: Message, interface: Interface) -> None:
        if self.deferred:
            self.deliver()
        self._perform(self.core.handle(message, interface, self._clock_ns))

    @property
    def _clock_ns(self) -> int:
        """The time of the clock that stamps events."""
        return self._now_ns + self.clock_offset_ns

    def _perform(self, actions: list[Action], source: InterfaceQueue | None = None) -> None:
        for action in actions:
            if isinstance(action, Send):
                queue = self.queues.get(action.interface)
                if queue is not None:
                    self._enqueue(queue, action.message, own=queue is source)
            else:
                self.drops.add(action.reason, action.events)

    def _enqueue(self, queue: InterfaceQueue, message: Message, *, own: bool = False) -> None:
        """Queue a message for an interface; ends a session that does not keep up."""
        if isinstance(message, Refuse):
            self.refused += 1
            self._warn(queue.interface, f"refused: {message.reason.partition(chr(10))[0]}")
        if not queue.send(message, own=own):
            queue.drops.add("queue full, session ended", events_in(message))
            self._ending.append((queue, "it does not keep up", "RESOURCE_EXHAUSTED"))

    def _finish(self) -> None:
        """What a call has left to do when all else is consistent."""
        if self._recovery.going_on and self.core.synced and self._recovery.synchronised(self._now_ns):
            self._recovery.end()
            self._withhold_credit()
        while self._ending:
            self._end_session(*self._ending.pop())

    # --- holding sources ------------------------------------------------------------------------------------

    def _fullness_changed(self, queue: InterfaceQueue) -> None:
        types = queue.full_types
        self.holds.set_full(queue.interface, types)
        key = ("stall", queue.interface)
        if not types or queue.is_broker:
            self._timers.cancel(key)
        elif key not in self._timers and queue.connected:
            self._rearm_stall(queue)

    def _rearm_stall(self, queue: InterfaceQueue) -> None:
        """A client with a full queue has taken something, or its queue has become full."""
        if queue.full and not queue.is_broker:
            limit_ns = round(self.options.sessions.stall_limit_s * NS_PER_S)
            self._timers.set(("stall", queue.interface), self._now_ns + limit_ns)

    def _tell_hold(self, source: Interface, hold: Hold) -> None:
        queue = self.queues.get(source)
        if queue is not None:
            queue.send(hold)

    # --- time -----------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """When `handle_timer` is due, in nanoseconds; None if it is not."""
        due_ns, tick_ns = self._timers.next_ns(), self._tick_ns()
        if due_ns is None or tick_ns is None:
            return tick_ns if due_ns is None else due_ns
        return min(due_ns, tick_ns)

    def next_deadline(self) -> int | None:
        """As `next_timer`, without what the core repeats."""
        return self._timers.next_ns()

    def _tick_ns(self) -> int | None:
        due_ns = self.core.next_timer()
        return None if due_ns is None else due_ns - self.clock_offset_ns

    def handle_timer(self, now_ns: int) -> None:
        """Whatever is due by now."""
        self._now_ns = now_ns
        tick_ns = self._tick_ns()
        if tick_ns is not None and tick_ns <= now_ns:
            self._tell_core(Tick(), "")
        for what, interface in self._timers.take(now_ns):
            queue = self.queues.get(interface)
            if what == "clients":
                self._tell_core(AwaitClients(False), "")
            elif what == "recovery":
                self._recovery.end()
                self._withhold_credit()
            elif what == "probe":
                self._end_challenge(interface, won=True)
            elif queue is not None:
                self._handle_timer_of(queue, what)
        self._finish()

    def _handle_timer_of(self, queue: InterfaceQueue, what: str) -> None:
        if what == "ack":
            queue.link.handle_timer(self._now_ns)
            due_ns = queue.link.next_timer()
            if due_ns is not None:
                self._timers.set(("ack", queue.interface), due_ns)
            queue.wake()
        elif what == "away":
            queue.stop_blocking("out of reach")
        elif what == "unlinked":
            self._warn(queue.interface, NOT_DIALLED)
        elif what == "lease":
            self._warn(queue.interface, "session ended: its lease has expired")
            self._end_session(queue, "its lease has expired", "ABORTED")
        elif what == "stall" and queue.full:
            queue.stop_blocking(STALLED)
            seconds = self.options.sessions.stall_limit_s
            self._warn(queue.interface, f"took nothing for {seconds:g} s: its oldest events are dropped")

    # --- ending ---------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no more events and no more connections."""
        self.draining = True
        if self.deferred:
            self.deliver()
        self._withhold_credit()
        for queue in self.queues.values():
            queue.link.ask()

    def _withhold_credit(self) -> None:
        """While the broker drains or recovers; else grant it."""
        withhold = self.draining or self._recovery.going_on
        for queue in self.queues.values():
            queue.link.withhold_credit(withhold)
            queue.wake()

    def fail(self) -> None:
        """The core is not used any more. What it may not have handled is not acknowledged."""
        self.draining, self.deferred = True, False
        if self._source is not None:
            self._detach(self._source, "UNAVAILABLE", "the broker has failed")

    @property
    def drained(self) -> bool:
        """Whether the events that were taken have reached the next broker or client."""
        return all(queue.link.idle or not queue.connected for queue in self.queues.values())

    def close_connections(self, reason: str) -> None:
        """End every connection with a goodbye."""
        for queue in list(self.queues.values()):
            self._detach(queue, "UNAVAILABLE", reason)

"""The interfaces of a broker's endpoint: who has one, which connection it has, and when it ends.

Invariant: an interface has at most one connection. A neighbour's interface stays while it is a neighbour; a
client's is its session, which ends with a goodbye, its lease, or a new client of its name. A durable session
in use has no lease."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from covey.overlay.core.access.rights import AUTHENTICATION
from covey.overlay.core.endpoint.connections import (
    NEVER_LINKED_NS,
    NOT_DIALLED,
    PROBE_NS,
    Connection,
    ConnectionRefusedError,
    ConnectRequest,
    IncomingConnection,
    both_dial,
    taken,
)
from covey.overlay.core.endpoint.interface_queue import STALLED, InterfaceQueue
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.endpoint.state import EndpointOptions, EndpointState
from covey.overlay.core.link.link import Hello, LinkError
from covey.overlay.core.messages import AwaitClients, Connect, Interface
from covey.overlay.core.warnings import WarningKind

NS_PER_S = 1_000_000_000
BLOCK_WHILE_AWAY_NS = 2 * NS_PER_S
"""How long the full queue of a disconnected interface goes on holding the sources."""


class Interfaces(EndpointState):
    """Begins and ends interfaces. Sets their timers "away", "expiry", "lease", "probe", "stall" and
    "unlinked"."""

    # --- beginning ------------------------------------------------------------------------------------------

    def _queue(
        self, interface: Interface, policy: SlowConsumer = SlowConsumer.BLOCK, *, durable: bool = False
    ) -> InterfaceQueue:
        session = not interface.startswith("broker/")
        queue = InterfaceQueue(
            interface,
            self.new_link(self.new_number()),
            changed=self._fullness_changed,
            warn=partial(self.warn, interface),
            policy=policy,
            limits=self.options.queue_limits(session=session),
            durable=durable and self.durability is not None,
            key_of=self.tables.key_of,
        )
        queue.since_ns = self.clock.now_ns
        if session:
            queue.link.window_bytes = min(queue.link.window_bytes, self.options.windows.first)
        queue.link.withhold_credit(self.credit_withheld)
        return queue

    def new_number(self) -> int:
        """A number that no other link or move of a session has, so a client whose session has ended cannot
        resume the next one of that name. `forget_peer` uses the next thousand."""
        self.links = (self.links + 1) % (1 << 22)
        return self.recovery.incarnation(self.links)

    def restored(self, interface: Interface) -> InterfaceQueue:
        if interface in self.endings:
            self.endings.finish(interface)
        self.queues[interface] = queue = self._queue(interface, durable=True)
        return queue

    def add_neighbour(
        self, interface: Interface, now_ns: int | None = None, *, restored: bool = False
    ) -> None:
        """A broker that this one is linked to. Unless `restored`, no stored records are for it."""
        if now_ns is not None:
            self.clock.now_ns = now_ns
        if interface not in self.queues:
            self.queues[interface] = self.neighbours[interface] = queue = self._queue(interface)
            if self.durability is not None and restored:
                self.durability.restore(queue)
            elif self.durability is not None:
                self.durability.begin(queue)

    def remove_neighbour(
        self, interface: Interface, reason: str, now_ns: int, *, status: str = "UNAVAILABLE"
    ) -> None:
        """End the link to a released neighbour, with a goodbye. Events that are queued for it are dropped."""
        self.clock.now_ns = now_ns
        queue = self.neighbours.pop(interface)
        self._remove(queue, "neighbour removed")
        self.detach(queue, status, reason)
        self.end_challenge(interface, won=False)

    def set_options(self, options: EndpointOptions) -> None:
        """All may change but the sizes of events and frames, in which neighbours agree."""
        self.options = options
        self.quotas.bounds = options.bounds
        for queue in self.queues.values():
            queue.limits = options.queue_limits(session=not queue.is_broker)

    def set_dialled(self, dialled: Collection[Interface], now_ns: int) -> None:
        """The neighbours to which this broker opens the connection from now on."""
        self.clock.now_ns = now_ns
        self.dialled = frozenset(dialled)
        for interface, queue in self.neighbours.items():
            if interface in self.dialled:
                self.timers.cancel(("unlinked", interface))
            elif not queue.connected and ("unlinked", interface) not in self.timers:
                self.await_neighbour(interface)

    def await_neighbour(self, interface: Interface) -> None:
        if interface not in self.dialled:
            self.timers.set(("unlinked", interface), self.clock.now_ns + NEVER_LINKED_NS)

    def opened(self, now_ns: int) -> None:
        """Connections are possible from now on: all waiting periods begin again. Call at most once, first."""
        self.clock.now_ns = now_ns
        self.recovery.opened(now_ns)
        for interface, queue in self.queues.items():
            queue.since_ns = now_ns
            if queue.is_broker:
                self.await_neighbour(interface)
            elif ("lease", interface) in self.timers:
                self.await_lease(queue)
        if ("restored", "") in self.timers:
            self.timers.set(("restored", ""), self.lease_ends_ns())

    # --- connections ----------------------------------------------------------------------------------------

    def accept(self, peer: ConnectRequest, connection: IncomingConnection, now_ns: int) -> None:
        """A connection was opened by its peer. It is accepted now, or after the holder of its name has had
        time to answer, or closed. `ConnectionRefusedError` if the broker is shutting down, or another claims
        the name already; `LinkError` for an invalid hello."""
        self.clock.now_ns = now_ns
        if self.draining:
            raise ConnectionRefusedError("UNAVAILABLE", "the broker is shutting down")
        self._check_name(peer.interface)
        self._admit(peer)
        queue = self.queues.get(peer.interface)
        if queue is not None and queue.is_broker:
            self._arbitrate(queue, peer)
        self._check_durable(queue, peer)
        if queue is not None and queue.connected and queue.link.peer_incarnation != peer.hello.incarnation:
            self._challenge(queue, peer, connection)
        else:
            if queue is not None and queue.connected:
                self.disconnect_queue(queue, "ABORTED", "a newer connection replaces this one")
            self._open(peer, connection)
        self.finish()

    def hello_for(self, interface: Interface) -> Hello:
        """Until it is answered or has failed (`handshake`), the link keeps its incarnation."""
        queue = self.queues[interface]
        queue.handshake = True
        return queue.link.hello()

    def answer(self, interface: Interface, hello: Hello, connection: Connection, now_ns: int) -> bool:
        """A neighbour has answered this broker's hello; True if the link resumes. `LinkError` for an invalid
        answer, `ConnectionRefusedError` if the neighbour has connected meanwhile."""
        self.clock.now_ns = now_ns
        queue = self.queues[interface]
        if queue.connected or not queue.handshake:
            # The neighbour has a hello from before the other connection, and may have reset its end for it.
            queue.link.forget_peer()
            own, name = self.tables.broker_id, interface.removeprefix("broker/")
            raise ConnectionRefusedError("ALREADY_EXISTS", both_dial(own, name))
        resumed = self._attach(queue, hello, connection)
        self.finish()
        return resumed

    def _arbitrate(self, queue: InterfaceQueue, peer: ConnectRequest) -> None:
        """`ConnectionRefusedError` if a connection that this broker opens to the neighbour stays instead."""
        own, name = self.tables.broker_id, queue.interface.removeprefix("broker/")
        again = queue.link.peer_incarnation == peer.hello.incarnation
        if own < name and (queue.handshake or (queue.connected and queue.dialled and again)):
            raise ConnectionRefusedError("ALREADY_EXISTS", both_dial(own, name))

    def _challenge(
        self, holder: InterfaceQueue, peer: ConnectRequest, connection: IncomingConnection
    ) -> None:
        interface = holder.interface
        if interface in self.challenges:
            raise ConnectionRefusedError("ALREADY_EXISTS", taken(interface))
        self.challenges[interface] = peer, connection
        self.timers.set(("probe", interface), self.clock.now_ns + PROBE_NS)
        holder.link.probe()
        holder.wake()

    def end_challenge(self, interface: Interface, *, won: bool) -> None:
        """The holder of a name has answered, or if `won`, has not: then the claimant gets it."""
        self.timers.cancel(("probe", interface))
        challenge = self.challenges.pop(interface, None)
        if challenge is None:
            return
        peer, connection = challenge
        if not won:
            connection.close("ALREADY_EXISTS", taken(interface))
            return
        queue = self.queues.get(interface)
        if queue is not None and queue.connected:
            self.disconnect_queue(queue, "ABORTED", "it did not answer when another claimed its name")
        try:
            self._admit(peer)  # again: its session may be at another broker
            self._open(peer, connection)
        except LinkError as error:
            connection.close("INVALID_ARGUMENT", str(error))
        except ConnectionRefusedError as error:
            connection.close(error.status, str(error))

    def _admit(self, peer: ConnectRequest) -> None:
        if self.admit is not None and not peer.interface.startswith("broker/"):
            self.admit(peer)

    def _open(self, peer: ConnectRequest, connection: IncomingConnection) -> None:
        queue = self.queues.get(peer.interface)
        self._check_durable(queue, peer)
        if queue is not None:
            renewed = queue.durable or queue.link.peer_incarnation == peer.hello.incarnation
            goes_on = self._may_go_on(queue, peer)
            if not renewed or not goes_on:
                self.end_session(queue, "replaced by a new client of that name", "ABORTED")
                queue = None
        if queue is None:
            self._check_name(peer.interface)
            refusal = self.session_refusal(peer.principal)
            if refusal is not None:
                raise ConnectionRefusedError("RESOURCE_EXHAUSTED", refusal)
            queue = self._queue(peer.interface, peer.slow_consumer, durable=peer.durable)
        self.quotas.session_opened(queue.interface, peer.principal)
        if queue.rights != peer.rights:
            self.guard.forget(queue.interface)
        queue.rights = peer.rights
        if not queue.is_broker:  # a resumed or restored session may have had another policy
            queue.policy = peer.slow_consumer
        answer = queue.link.hello()
        if queue.durable and self.durability is not None:
            if not queue.identity:
                queue.identity = f"{self.tables.broker_id}/{queue.link.incarnation:x}"
                self.durability.opened(queue)
            answer = replace(answer, ticket=self.ticket(queue))
        self._attach(queue, peer.hello, connection, opened=partial(connection.opened, answer))
        self._await_expiry(queue)

    def _check_name(self, interface: Interface) -> None:
        """`ConnectionRefusedError` while a session of this name is ending."""
        if interface in self.endings:
            reason = f"the last session of {interface} has many subscriptions, which are being withdrawn"
            raise ConnectionRefusedError("UNAVAILABLE", reason)

    def session_refusal(self, principal: str, others: int = 0) -> str | None:
        """Why no other session of a client may begin, with `others` that are about to; None if it may."""
        sessions = len(self.queues) - len(self.neighbours) + len(self.endings)
        return self.quotas.session_refusal(sessions + others, principal)

    def _check_durable(self, queue: InterfaceQueue | None, peer: ConnectRequest) -> None:
        """`ConnectionRefusedError` if the rights do not permit a durable session, or the present one."""
        if not peer.durable:
            return
        refusal = self.guard.durable_refusal(peer.rights)
        if refusal is not None:
            raise ConnectionRefusedError("FAILED_PRECONDITION", refusal)
        if queue is not None and queue.durable and not self._may_go_on(queue, peer):
            raise ConnectionRefusedError("PERMISSION_DENIED", self.guard.session_denial(peer.rights))

    def _may_go_on(self, queue: InterfaceQueue, peer: ConnectRequest) -> bool:
        """Whether a session goes on with a client's rights. With other rights it is a new client, unless it
        is durable and they permit all its subscriptions, whatever their content."""
        if not queue.durable:
            return queue.rights == peer.rights
        permitted = self.guard.durable_refusal(peer.rights) is None
        return permitted and self.guard.permits_session(queue.interface, peer.rights)

    def _attach(
        self,
        queue: InterfaceQueue,
        hello: Hello,
        connection: Connection,
        opened: Callable[[bool], None] | None = None,
    ) -> bool:
        """Resume or reset an interface's link; True if it resumes. `LinkError` for an invalid hello."""
        now_ns = self.clock.now_ns
        queue.handshake = False
        queue.since_ns = now_ns
        queue.dialled = opened is None
        resumed = queue.link.resume(hello)
        interface = queue.interface
        self.queues[interface] = queue
        if opened is not None:
            opened(resumed)
        taken = queue.attach(connection)
        self.timers.cancel(("unlinked", interface))
        self.timers.cancel(("away", interface))
        self.timers.cancel(("lease", interface))
        if taken:
            self.rearm_stall(queue)
        if not resumed:
            self.forget(interface)
            if queue.is_broker:
                self.recovery.neighbour_connected(hello)
            if self.recovery.begins(hello, now_ns):
                self.withhold_credit()
                self.tell(AwaitClients(True), "")
            self.tell(Connect(), interface)
        if self.durability is not None:
            if queue.durable and not queue.is_broker and not hello.peer_incarnation:
                recalled = self.durability.sessions.recalled(interface)
                queue.recalled = len(recalled)
                for message in recalled:
                    queue.send(message)
            self.durability.refill(queue, now_ns)
        queue.wake()
        return resumed

    def detach(self, queue: InterfaceQueue, status: str, reason: str) -> None:
        connection, queue.connection = queue.connection, None
        if connection is not None:
            connection.close(status, reason)

    def lost(self, interface: Interface, connection: Connection, now_ns: int) -> None:
        """A connection has ended. Ignored if the interface has another one by then."""
        self.clock.now_ns = now_ns
        queue = self.queues.get(interface)
        if queue is not None and queue.connection is connection:
            queue.connection = None
            self.disconnected(queue)
            self.end_challenge(interface, won=True)
        elif interface in self.challenges and self.challenges[interface][1] is connection:
            del self.challenges[interface]
            self.timers.cancel(("probe", interface))
        self.finish()

    def disconnect(self, interface: Interface, reason: str, now_ns: int) -> None:
        """End a client's connection, and refuse whoever claims its name: both are to come again."""
        self.clock.now_ns = now_ns
        self.end_challenge(interface, won=False)
        queue = self.queues.get(interface)
        if queue is not None and queue.connected:
            self.disconnect_queue(queue, "UNAVAILABLE", reason)
        self.finish()

    def disconnect_queue(self, queue: InterfaceQueue, status: str, reason: str) -> None:
        self.detach(queue, status, reason)
        self.disconnected(queue)

    def disconnected(self, queue: InterfaceQueue) -> None:
        interface, now_ns = queue.interface, self.clock.now_ns
        queue.since_ns = now_ns
        self.timers.cancel(("ack", interface))
        self.timers.cancel(("expiry", interface))
        self.timers.set(("away", interface), now_ns + BLOCK_WHILE_AWAY_NS)
        if self.durability is not None and queue.durable:
            # Its client may restart without watermarks.
            self.durability.disconnected(interface, now_ns)
        if queue.is_broker:
            self.await_neighbour(interface)
        else:
            self.await_lease(queue)

    def await_lease(self, queue: InterfaceQueue) -> None:
        """The session of a disconnected client ends with its lease, unless it is durable and in use."""
        if not (queue.durable and self.in_use(queue.interface)):
            self.timers.set(("lease", queue.interface), self.lease_ends_ns())

    def lease_ends_ns(self) -> int:
        return self.clock.now_ns + round(self.options.sessions.lease_s * NS_PER_S)

    def withhold_credit(self) -> None:
        """While the broker drains or recovers; else grant it."""
        withhold = self.credit_withheld
        for queue in self.queues.values():
            queue.link.withhold_credit(withhold)
            queue.wake()

    # --- timers ---------------------------------------------------------------------------------------------

    def handle_interface_timer(self, queue: InterfaceQueue, what: str) -> None:
        if what == "away":
            queue.stop_blocking("out of reach")
        elif what == "unlinked":
            self.warn(queue.interface, WarningKind.NEVER_LINKED, NOT_DIALLED)
        elif what == "lease":
            sentence = "session ended: its lease has expired"
            self.warn(queue.interface, WarningKind.LEASE_EXPIRED, sentence)
            self.end_session(queue, "its lease has expired", "ABORTED")
        elif what == "expiry":
            self._handle_expiry(queue)
        elif what == "stall" and queue.full:
            queue.stop_blocking(STALLED)
            seconds = self.options.sessions.stall_limit_s
            sentence = f"took nothing for {seconds:g} s: its oldest events are dropped"
            self.warn(queue.interface, WarningKind.STALLED, sentence)

    def _await_expiry(self, queue: InterfaceQueue) -> None:
        """Set a timer for the end of a client's rights: at most a minute, since the clock may be set."""
        if queue.rights is not None and queue.rights.expires_ns is not None:
            due_ns = queue.rights.expires_ns - self.clock.offset_ns
            due_ns = min(due_ns, self.clock.now_ns + 60 * NS_PER_S)
            self.timers.set(("expiry", queue.interface), due_ns)

    def _handle_expiry(self, queue: InterfaceQueue) -> None:
        """A client whose rights have ended is disconnected; within its lease it may return with new ones."""
        if not queue.connected or queue.rights is None or queue.rights.expires_ns is None:
            return
        if self.clock.stamp_ns < queue.rights.expires_ns:
            self._await_expiry(queue)
            return
        self.guard.denials[AUTHENTICATION] += 1
        self.disconnect_queue(queue, "UNAUTHENTICATED", "the token or certificate has expired")
        self.end_challenge(queue.interface, won=True)

    def _fullness_changed(self, queue: InterfaceQueue) -> None:
        types = queue.full_types
        self.holds.set_full(queue.interface, types)
        key = ("stall", queue.interface)
        if not types or queue.is_broker:
            self.timers.cancel(key)
        elif key not in self.timers and queue.connected:
            self.rearm_stall(queue)

    def rearm_stall(self, queue: InterfaceQueue) -> None:
        """A client with a full queue has taken something, or its queue has become full."""
        if queue.full and not queue.is_broker:
            limit_ns = round(self.options.sessions.stall_limit_s * NS_PER_S)
            self.timers.set(("stall", queue.interface), self.clock.now_ns + limit_ns)

    # --- ending ---------------------------------------------------------------------------------------------

    def in_use(self, interface: Interface) -> bool:
        peer = self.tables.peers.get(interface)
        return peer is not None and bool(peer.subscriptions or peer.advertised)

    def goodbye(self, interface: Interface, connection: Connection, now_ns: int) -> bool:
        """A client leaves: its session ends, unless it is durable and in use; True if it ends."""
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection or (queue.durable and self.in_use(interface)):
            self.lost(interface, connection, now_ns)
            return queue is None
        self.clock.now_ns = now_ns
        queue.connection = None
        self.end_session(queue, "it left", "OK")
        self.end_challenge(interface, won=True)
        self.finish()
        return True

    def end_session(self, queue: InterfaceQueue, why: str, status: str) -> None:
        """Drop a client's session and its state in the core; many subscriptions in parts unless it is
        durable."""
        interface = queue.interface
        if self.queues.get(interface) is not queue:
            return
        self._remove(queue, "session ended")
        self.detach(queue, status, f"session ended: {why}")
        if queue.durable:
            self.endings.finish(interface)
        else:
            self.endings.begin(interface, self.clock.now_ns)

    def _remove(self, queue: InterfaceQueue, why: str) -> None:
        interface = queue.interface
        del self.queues[interface]
        for name in ("ack", "away", "expiry", "lease", "move", "refill", "stall", "unlinked"):
            self.timers.cancel((name, interface))
        self.forget(interface)
        self.publishers -= queue.publishers is not None
        self.guard.forget(interface)
        self.validity.forget(interface)
        self.ended(interface)
        if self.durability is not None:
            self.durability.ended(queue, self.clock.now_ns)
        queue.discard(why)
        for reason, events in queue.drops.by_reason.items():
            self.drops.add(reason, events)

"""The endpoint of a broker: everything between its routing core and the bytes of its connections, without
I/O.

What arrives goes in with the time (`accept`, `receive`, `lost`, `handle_timer`); frames come out
(`next_frame`), and the time of the next `handle_timer`. Times are nanoseconds of a monotonic clock;
`clock_offset_ns` added gives the clock that stamps events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from covey.overlay.core.access.identity import Tickets
from covey.overlay.core.budget import IDLE_FRAME
from covey.overlay.core.endpoint.connections import Connection
from covey.overlay.core.endpoint.flow import Turns
from covey.overlay.core.endpoint.intake import Intake, ReceivedFrames, Repeats
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.interfaces import Interfaces
from covey.overlay.core.endpoint.limits import Undecodable
from covey.overlay.core.endpoint.observing import Timings, Tracing
from covey.overlay.core.endpoint.session_moves import SessionMoves
from covey.overlay.core.endpoint.state import Core, EndpointOptions
from covey.overlay.core.endpoint.storage import Storage
from covey.overlay.core.endpoint.timers import EndpointClock
from covey.overlay.core.link.link import Frame, Link
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    AwaitClients,
    Connect,
    Disconnect,
    EndRestored,
    Expire,
    Interface,
    Message,
    Publish,
    SessionMove,
    SyncEnd,
    Tick,
    Update,
)
from covey.overlay.core.warnings import Warn, WarningKind

M = TypeVar("M")

_CONGESTED_NS = 5_000_000
_BATCHED = (Publish, Update, Acknowledge)
"""Messages that gather with the next one, so that several are handled in one call."""


class BrokerEndpoint(Interfaces, Generic[M]):
    """One broker. `new_link` creates a link of an incarnation; `life`, of 31 bits, differs from earlier
    lives. `decode` turns a message of a frame, from a neighbour or not, into one of the core; `weigh` is its
    weight in a client's turn. `warn` gets an interface and a sentence for the operator. To `dialled`
    neighbours this broker opens the connection."""

    def __init__(
        self,
        core: Core,
        neighbours: Sequence[Interface],
        options: EndpointOptions,
        *,
        new_link: Callable[[int], Link],
        life: int,
        decode: Callable[[M, bool], Message | Undecodable],
        warn: Warn,
        now_ns: int,
        weigh: Callable[[M], int] = lambda _: 1,
        dialled: Collection[Interface] = (),
        timings: Timings | None = None,
        tracing: Tracing | None = None,
        storage: Storage | None = None,
        tickets: Tickets | None = None,
        clock_offset_ns: int = 0,
    ) -> None:
        super().__init__(
            core,
            options,
            new_link=new_link,
            life=life,
            warn=warn,
            clock=EndpointClock(now_ns, clock_offset_ns),
            dialled=dialled,
            timings=timings,
            tracing=tracing,
            storage=storage,
        )
        self._weigh = weigh
        self._turns = Turns()
        self._more_than_events = False
        """Whether the last frames received had more than admitted events."""
        self.turn_weight = 0
        """The weight of the last messages received."""
        self._intake = Intake(self, decode)
        if self.durability is not None and storage is not None:
            self.durability.restore_keys(self.tell, self.lease_ends_ns())
            self.recovery.begin(now_ns, storage.awaited())
        for interface in neighbours:
            self.add_neighbour(interface, restored=True)
            self.await_neighbour(interface)
        if self.durability is not None:
            self.durability.restore_sessions(core.handle, self.restored, self.clock.stamp_ns)
            self._moves = SessionMoves(self, self.durability, tickets or Tickets(""))
        if self.recovery.awaits_clients:
            self.tell(AwaitClients(True), "")
        self.finish()

    @property
    def recovering(self) -> bool:
        """Whether it takes no events yet, having lost its state."""
        return self.recovery.going_on

    @property
    def repeats(self) -> Repeats | None:
        return self._intake.repeats

    def release_neighbour(self, interface: Interface, now_ns: int) -> None:
        """Route nothing more to a neighbour, for good. What is queued for it still leaves."""
        self.clock.now_ns = now_ns
        if interface not in self.core.tables.peers:  # the core waits for its first connection
            self.tell(Connect(), interface)
        self.tell(Disconnect(), interface)
        self.finish()

    # --- frames ---------------------------------------------------------------------------------------------

    def receive(
        self, interface: Interface, connection: Connection, frames: Sequence[Frame[M]], now_ns: int
    ) -> int:
        """Handle frames that arrived together on the interface's connection, in order: one turn (`flow.py`),
        of a neighbour at least one frame. Returns how many were handled whole: receive the others again in
        the next turn (`delay_ns`). While draining, only their acknowledgements count, so their messages will
        be sent again. `LinkError` if a frame breaks the protocol, after handling those before it."""
        self.clock.now_ns = now_ns
        if self.deferred:
            self.deliver()
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection:
            return len(frames)
        draining = self.draining
        if draining:
            frames = [replace(frame, sequence=0, messages=(), settled=0) for frame in frames]
        link = queue.link
        received, acknowledged = link.received, link.acknowledged
        most = self.options.turn_messages
        if len(frames) > 1 or len(frames[0].messages) > 1:
            most = self._turns.messages(queue.share, now_ns, most)
        arrival = ReceivedFrames(link, frames, now_ns, most, None if queue.is_broker else self._weigh)
        self.turn_weight = arrival.weight
        self._more_than_events = arrival.idle > 0
        idle = arrival.idle
        if arrival.messages:
            batches, changes = self._intake.batches, self.core.tables.changes
            again = self._take(queue, arrival.messages)
            if (
                batches == self._intake.batches
                and not queue.is_broker
                and link.acknowledged == acknowledged
                and self.core.tables.changes == changes
            ):
                idle = max(1, arrival.handled)
            if again is not None:
                arrival.leave(again)
            if self.durability is not None:
                self.durability.hold(queue, received)
        if idle and not draining:
            connection.charge(IDLE_FRAME * idle)
        if (link.acknowledged, link.credit) != queue.progress and queue.received():
            if queue.full:
                self.rearm_stall(queue)
            if self.durability is not None:
                self.durability.refill(queue, self.clock.now_ns)
        if interface in self.challenges:
            self.end_challenge(interface, won=False)
        if link.ready:
            connection.wake()  # its next frame acknowledges
        elif link.due_ns is not None:
            self.timers.set(queue.acknowledging, link.due_ns, earlier=True)
        if self.ending or self.durability is not None or self.recovery.going_on:
            self.finish()
        if arrival.error is not None:
            raise arrival.error
        return arrival.handled

    def next_frame(self, interface: Interface, connection: Connection) -> Frame[Message] | None:
        """The next frame for a connection, which is woken if there is another one. None also for a
        replaced connection, or a frame that would acknowledge events that sessions have yet to get."""
        queue = self.queues.get(interface)
        if queue is None or queue.connection is not connection:
            return None
        if self.deferred and queue is self.source:
            return None
        link = queue.link
        frame = link.next_frame()
        if link.more:
            connection.wake()
        elif frame is None and link.due_ns is not None:
            self.timers.set(queue.acknowledging, link.due_ns, earlier=True)
        return frame

    def dropped(self) -> Counter[str]:
        """Dropped events by reason, of all present and ended interfaces."""
        dropped = Counter(self.drops.by_reason)
        for queue in self.queues.values():
            if queue.drops.by_reason:
                dropped.update(queue.drops.by_reason)
        return dropped

    def delay_ns(self, interface: Interface, now_ns: int) -> int:
        """How long to leave what has arrived from an interface: a client waits for its turn, and while a
        neighbour cannot keep up with changes."""
        queue = self.queues.get(interface)
        if queue is None or queue.is_broker:
            return 0
        peer, share = self.tables.peers.get(interface), queue.share
        unsettled = 0 if peer is None else peer.received - peer.acknowledged
        if unsettled > self.options.max_unsettled and self._congested():
            return _CONGESTED_NS
        if share.place_ns is None and share.dear_until_ns <= now_ns:
            return 0
        return self._turns.delay_ns(share, now_ns)

    def took(self, interface: Interface, spent_ns: int, now_ns: int, worked_ns: int | None = None) -> None:
        """A turn of the interface ended now and took `spent_ns`, of it `worked_ns` of processor time."""
        queue = self.queues.get(interface)
        if queue is not None:
            if self.turn_weight and (self._more_than_events or not queue.is_broker):
                worked_ns = spent_ns if worked_ns is None else worked_ns
                self._turns.measure(queue.share, self.turn_weight, worked_ns)
            # Credit and holds bound events, whose publishers do not rest.
            self._turns.took(queue.share, spent_ns if self._more_than_events else 0, now_ns)

    def _congested(self) -> bool:
        return any(
            queue.connected and queue.link.queued_control > self.options.max_queued_control
            for queue in self.neighbours.values()
        )

    def _take(self, queue: InterfaceQueue, messages: Sequence[M | Acknowledge]) -> int | None:
        """Consecutive events go into one call of the core, as do updates and acknowledgements. Returns the
        index of the first message that has to come again; None if all were taken."""
        intake, handle, is_broker = self._intake, self.handle, queue.is_broker
        clock_ns = self.clock.now_ns + self.clock.offset_ns
        pending: list[Message] = []
        for index, wire in enumerate(messages):
            message: Message | None
            if isinstance(wire, Acknowledge):
                message = wire
            else:
                decoded = intake.decode(wire, is_broker)
                if decoded.__class__ is Publish:
                    message = intake.events(queue, decoded, clock_ns)
                else:
                    message = intake.control(queue, decoded, clock_ns)
            is_events = message.__class__ is Publish
            if not is_events:
                self._more_than_events = True
            if message is None:
                continue
            alone = message.__class__ is SessionMove or (message.__class__ is SyncEnd and not is_broker)
            if pending and (alone or is_events is not (pending[0].__class__ is Publish)):
                handle(queue, pending)
                pending = []
            if message.__class__ is SessionMove:
                if is_broker and self.durability is not None:
                    self._moves.receive(message, queue.interface)
                continue
            if alone and self.endings.withdraw_void(queue.interface):
                return index
            pending.append(message)
            if message.__class__ not in _BATCHED:
                handle(queue, pending)
                pending = []
        if pending:
            handle(queue, pending)
        return None

    def perform(self, actions: list[Action], interface: Interface, now_ns: int) -> None:
        """Queue the actions of a core that answers messages of an interface later than in the call."""
        self.clock.now_ns = now_ns
        self.execute(actions, self.queues.get(interface))
        self.finish()

    def finish(self) -> None:
        if self.recovery.going_on and self.core.synced and self.recovery.synchronised(self.clock.now_ns):
            self.recovery.end(self.clock.now_ns)
            self.withhold_credit()
        if self.durability is not None:
            self._moves.advance()
        while self.ending:
            self.end_session(*self.ending.pop())

    # --- durable types --------------------------------------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        """Whether the storage is to be synced: call `begin_sync`, sync it, call `synced`."""
        return self.durability is not None and self.durability.wants_sync

    def begin_sync(self) -> None:
        assert self.durability is not None
        self.durability.begin_sync()

    def synced(self, now_ns: int) -> None:
        self.clock.now_ns = now_ns
        assert self.durability is not None
        for queue, message in self.durability.synced(now_ns):
            self.enqueue(queue, message)
        self.finish()

    def backlog(self, queue: InterfaceQueue) -> int:
        """Stored records since the first unacknowledged one, 0 if the interface is not durable."""
        return self.durability.backlog(queue) if self.durability is not None and queue.durable else 0

    def save_progress(self) -> None:
        if self.durability is not None:
            self.durability.save_progress()

    # --- time -----------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """When `handle_timer` is due, in nanoseconds; None if it is not."""
        due_ns = self.timers.next_ns
        tables = self.tables
        tick_ns = self.core.next_timer() if tables.moving.next_ns or tables.key_ages.next_ns else None
        if tick_ns is None:
            return due_ns
        tick_ns -= self.clock.offset_ns
        return tick_ns if due_ns is None else min(due_ns, tick_ns)

    def next_deadline(self) -> int | None:
        """As `next_timer`, without the core's periodic work."""
        return self.timers.next_ns

    def handle_timer(self, now_ns: int) -> None:
        self.clock.now_ns = now_ns
        tick_ns = self.core.next_timer()
        if tick_ns is not None and tick_ns <= self.clock.stamp_ns:
            self.tell(Tick(), "")
        for what, interface in self.timers.take(now_ns):
            queue = self.queues.get(interface)
            if what == "ack":
                if queue is not None and queue.link.due_ns is not None:
                    queue.link.handle_timer(now_ns)
                    if queue.link.due_ns is not None:
                        self.timers.set((what, interface), queue.link.due_ns)
                    elif queue.connection is not None:
                        queue.connection.wake()
            elif what == "move":
                self._moves.handle_timer(interface)
            elif what == "progress":
                self.save_progress()
            elif what == "leaving" and self.durability is not None:
                self.durability.save_leaving()
            elif what == "validity":
                self._expire()
            elif what == "clients":
                self.tell(AwaitClients(False), "")
            elif what == "restored":
                self.tell(EndRestored(), "")
            elif what == "recovery":
                if self.durability is not None and not self.core.synced:
                    self.recovery.wait(now_ns)
                    self._warn_unsynced()
                    continue
                self.recovery.end(self.clock.now_ns)
                self.withhold_credit()
            elif what == "ending":
                self.endings.advance(interface, now_ns)
            elif what == "probe":
                self.end_challenge(interface, won=True)
            elif what == "refill" and self.durability is not None and queue is not None:
                self.durability.refill(queue, now_ns)
            elif queue is not None:
                self.handle_interface_timer(queue, what)
        if self.ending or self.durability is not None or self.recovery.going_on:
            self.finish()

    def timers_took(self, spent_ns: int, now_ns: int) -> None:
        """`handle_timer` has taken so long, until now."""
        if self.endings.worked:
            self.endings.took(spent_ns, now_ns)

    def _expire(self) -> None:
        for interface, subscription_id in self.validity.take():
            self.tell(Expire(subscription_id), interface)
            queue = self.queues.get(interface)
            if queue is None:
                continue
            if self.durability is not None:
                self.durability.expired(queue, subscription_id, self.clock.now_ns)
            if queue.durable and not queue.connected and not self._moves.arrives(interface):
                self.await_lease(queue)

    def _warn_unsynced(self) -> None:
        """A durable event must not pass before all neighbours have sent their interest."""
        for interface in self.neighbours:
            peer = self.core.tables.peers.get(interface)
            if peer is None or not peer.synced:
                sentence = "events wait until it has sent its interest, since types are durable"
                self.warn(interface, WarningKind.INTEREST_AWAITED, sentence)

    # --- ending ---------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no more messages and connections: what comes waits with its sender, for the next life of this
        broker."""
        self.draining = True
        if self.deferred:
            self.deliver()
        self.withhold_credit()
        for queue in self.queues.values():
            queue.link.ask()

    def fail(self) -> None:
        """The core failed and is unusable. What it may not have handled is not acknowledged."""
        self.draining, self.deferred = True, False
        if self.source is not None:
            self.detach(self.source, "UNAVAILABLE", "the broker has failed")

    @property
    def drained(self) -> bool:
        """Whether the events that were taken have reached the next broker or client."""
        return all(queue.link.idle or not queue.connected for queue in self.queues.values())

    @property
    def promised(self) -> dict[Interface, int]:
        backlogs = ((name, self.backlog(queue)) for name, queue in self.neighbours.items())
        return {name: records for name, records in backlogs if records}

    def close_connections(self, reason: str) -> None:
        for queue in list(self.queues.values()):
            self.detach(queue, "UNAVAILABLE", reason)

"""One broker at work: feeds the routing core with the messages that arrive, and performs its actions.

It decides nothing about routing: messages go into `Broker.handle` in the order of arrival, and actions are
performed in the order in which they are returned. It does decide who may send how much (credit), how long the
session of a client outlives its connection (lease), and what a full queue does (`interface_queue.py`).
Everything runs on one event loop, between two awaits, so nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from dataclasses import replace

from covey.overlay.core.endpoint.admission import admit
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Connect,
    Disconnect,
    Interface,
    Message,
    Publish,
    Refuse,
    Send,
    Tick,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.broker import Broker
from covey.overlay.http2.frames import ErrorCode
from covey.overlay.node.interface_queue import BLOCK_WHILE_AWAY_S, SESSION_BYTES, InterfaceQueue
from covey.overlay.node.overlay import Overlay
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes
from covey.overlay.transport.errors import MessageError
from covey.overlay.transport.packets import Greeting, Role

log = logging.getLogger("covey.broker")

_MAX_QUEUED_CONTROL = 50_000
"""While more is queued for a neighbour, the broker reads nothing from clients."""
_BATCHED = (Publish, Update, Acknowledge)
"""Messages after which the next one is decoded the same way, so that several are handled in one call."""


class Node:
    """The state of one broker process: its core, and a queue for every neighbour and every session."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self.overlay = overlay
        self.name = name
        self.started_ns = time.time_ns()
        self.core = Broker(
            name,
            routing=overlay.routing,
            engine=overlay.engine,
            event_types=overlay.event_types,
            neighbours=overlay.neighbours(name),
            replay_events=overlay.replay_events,
            damping=overlay.damping,
            merging=overlay.merging,
            merging_budget=overlay.merging_budget,
        )
        self.queues: dict[Interface, InterfaceQueue] = {}
        self.draining = False
        self._leases: dict[Interface, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._full: dict[Interface, InterfaceQueue] = {}
        self.dropped: dict[str, int] = {}
        self.refused = 0
        self.wire_faults: Counter[ErrorCode] = Counter()
        """Rules of HTTP/2 that peers broke, by code."""
        for neighbour in overlay.neighbours(name):
            interface = f"broker/{neighbour}"
            self.queues[interface] = InterfaceQueue(interface, self._link(), changed=self._fullness_changed)
        self._neighbours = list(self.queues.values())

    def _link(self, **options: int) -> Link:
        limits = self.overlay.limits
        # Each link has an incarnation of its own, so that a client whose session has ended cannot resume the
        # next session of that name.
        return Link(
            secrets.randbits(63) | 1,
            max_frame_bytes=limits.max_frame_bytes,
            join_events=limits.max_batch_events,
            **options,
        )

    # --- connections ------------------------------------------------------------------

    def greeting(self, queue: InterfaceQueue) -> Greeting:
        """The hello for this interface."""
        return Greeting(
            Role.BROKER,
            self.name,
            queue.link.hello(),
            self.overlay.name,
            limits=self.overlay.limits,
            options=self.overlay.shared_options() if queue.is_broker else {},
        )

    def session(self, peer: Greeting) -> InterfaceQueue:
        """The session of a client, created if there is none; ends that of an earlier incarnation."""
        interface = f"client/{peer.id}"
        queue = self.queues.get(interface)
        if queue is not None and queue.link.peer_incarnation != peer.hello.incarnation:
            self.end_session(queue, "replaced by a new client of that name")
            queue = None
        if queue is None:
            queue = self.queues[interface] = InterfaceQueue(
                interface,
                self._link(),
                changed=self._fullness_changed,
                policy=peer.slow_consumer,
                max_events=self.overlay.sessions.queue_events,
                max_bytes=SESSION_BYTES,
            )
            self._balance(queue)
        return queue

    def resume(self, queue: InterfaceQueue, peer: Greeting) -> None:
        """Resume or reset the link with an interface whose connection has opened. `LinkError` if its hello
        does not fit the link.
        """
        resumed = queue.link.resume(peer.hello)
        if not resumed:
            self._perform(self.core.handle(Connect(), queue.interface, time.time_ns()))
        queue.progressed()
        lease = self._leases.pop(queue.interface, None)
        if lease is not None:
            lease.cancel()
        log.info("%s connected%s", queue.interface, ", resumed" if resumed else "")

    def disconnected(self, queue: InterfaceQueue, why: str) -> None:
        """The connection of an interface has ended. Nothing changes for one that was disconnected already."""
        if self.queues.get(queue.interface) is not queue or queue.interface in self._leases:
            return
        log.info("%s disconnected: %s", queue.interface, why)
        loop = asyncio.get_running_loop()
        if queue.is_broker:
            self._leases[queue.interface] = loop.call_later(BLOCK_WHILE_AWAY_S, queue.stop_blocking)
            return
        lease_s = self.overlay.sessions.lease_s
        if lease_s > BLOCK_WHILE_AWAY_S:
            self._leases[queue.interface] = loop.call_later(
                BLOCK_WHILE_AWAY_S, self._await_lease, queue, lease_s - BLOCK_WHILE_AWAY_S
            )
        else:
            self._leases[queue.interface] = loop.call_later(
                lease_s, self.end_session, queue, "its lease has expired"
            )

    def _await_lease(self, queue: InterfaceQueue, rest_s: float) -> None:
        queue.stop_blocking()
        loop = asyncio.get_running_loop()
        self._leases[queue.interface] = loop.call_later(
            rest_s, self.end_session, queue, "its lease has expired"
        )

    def end_session(self, queue: InterfaceQueue, why: str, status: str = "ABORTED") -> None:
        """Drop a client's session and its state in the core."""
        if self.queues.get(queue.interface) is not queue:
            return
        log.info("%s: session ended: %s", queue.interface, why)
        del self.queues[queue.interface]
        lease = self._leases.pop(queue.interface, None)
        if lease is not None:
            lease.cancel()
        queue.discard()
        for reason, events in queue.drops.by_reason.items():
            self._count_drop(reason, events)
        if queue.pump is not None:
            queue.pump.close(status, f"session ended: {why}")
        self._perform(self.core.handle(Disconnect(), queue.interface, time.time_ns()))

    def overloaded(self) -> bool:
        """Whether so much control is queued for a neighbour that clients must not add to it."""
        return any(
            queue.link.queued_control > _MAX_QUEUED_CONTROL and queue.connected for queue in self._neighbours
        )

    def close_connections(self) -> None:
        """End every connection with a goodbye."""
        for queue in self.queues.values():
            if queue.pump is not None:
                queue.pump.close("UNAVAILABLE", f"broker {self.name} is shutting down")

    def _arm(self) -> None:
        """Set a timer for the core's next deadline."""
        due_ns = self.core.next_timer()
        if due_ns is not None and self._timer is None:
            delay_s = max(0, due_ns - time.time_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.core.handle(Tick(), "", time.time_ns()))

    def close(self) -> None:
        """Stop all timers."""
        if self._timer is not None:
            self._timer.cancel()
        for lease in self._leases.values():
            lease.cancel()
        self._leases.clear()

    # --- messages ---------------------------------------------------------------------------------

    def take(self, queue: InterfaceQueue, messages: tuple[WireMessage | Acknowledge, ...]) -> None:
        """Handle the messages of one frame. Consecutive events go into one call of the core, and so do
        updates and acknowledgements.
        """
        pending: list[Message] = []
        for wire in messages:
            message = wire if isinstance(wire, Acknowledge) else self._decode(queue, wire)
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

    def _decode(self, queue: InterfaceQueue, wire: WireMessage) -> Message | None:
        """The message, or the admitted part of it; None if it was refused."""
        try:
            message = decode_message(wire, self.core.event_type, from_broker=queue.is_broker)
        except MessageError as error:
            queue.link.consume(event_bytes(wire))
            if queue.is_broker and error.refuse.count:
                self._count_drop("malformed or of unknown type", error.refuse.count)
                return None
            self._refuse(queue, error.refuse)
            # The core never gets an undecodable message; an Unsubscribe of no subscription settles its epoch.
            return Unsubscribe(error.refuse.epoch, 0) if error.refuse.epoch else None
        if not isinstance(message, Publish):
            return message
        queue.link.consume(size_of(message))
        if queue.is_broker:
            return message
        batch, refusals = admit(message.batch, self.overlay.limits, time.time_ns())
        for refusal in refusals:
            self._refuse(queue, refusal)
        return None if batch is None else Publish(batch)

    def _handle(self, queue: InterfaceQueue, messages: list[Message]) -> None:
        """Pass messages to the core in one call: events only, or no events."""
        if isinstance(messages[0], Publish):
            limits = self.overlay.limits
            messages = join(messages, limits.max_batch_events, limits.max_frame_bytes // 2)
        self._perform(self.core.handle_all(messages, queue.interface, time.time_ns()), queue)

    def _refuse(self, queue: InterfaceQueue, refusal: Refuse) -> None:
        if refusal.status == "NOT_FOUND":
            refusal = replace(refusal, reason=self.unknown_type(refusal.type_name))
        self._enqueue(queue, refusal)

    def _perform(self, actions: list[Action], source: InterfaceQueue | None = None) -> None:
        for action in actions:
            if isinstance(action, Send):
                queue = self.queues.get(action.interface)
                if queue is not None:
                    self._enqueue(queue, action.message, own=queue is source)
            else:
                self._count_drop(action.reason, action.events)
        self._arm()

    def _enqueue(self, queue: InterfaceQueue, message: Message, *, own: bool = False) -> None:
        """Queue a message for an interface; ends a session that does not keep up."""
        if isinstance(message, Refuse):
            self.refused += 1
            log.warning("refused to %s: %s", queue.interface, message.reason.partition("\n")[0])
        if not queue.send(message, own=own):
            queue.drops.add("queue full, session ended", events_in(message))
            asyncio.get_running_loop().call_soon(
                self.end_session, queue, "it does not keep up", "RESOURCE_EXHAUSTED"
            )

    def _count_drop(self, reason: str, events: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + events

    # --- credit -----------------------------------------------------------------------------------

    def _fullness_changed(self, queue: InterfaceQueue) -> None:
        if queue.full:
            self._full[queue.interface] = queue
        else:
            self._full.pop(queue.interface, None)
        for source in self.queues.values():
            self._balance(source)

    def _balance(self, source: InterfaceQueue) -> None:
        """Block a source while another interface that its events may go to is full.

        Events of a neighbour never go back to it, so neighbours cannot block each other in a circle. Nor does
        a client block itself, which may publish what it computes from what it reads.
        """
        blocking = len(self._full) - (source.interface in self._full)
        source.link.withhold_credit(blocking > 0 or self.draining)
        if source.pump is not None:
            source.pump.wake()

    # --- ending -----------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Accept no more events, and wait until the accepted ones have reached the next broker or client, or
        time is up."""
        self.draining = True
        for queue in self.queues.values():
            self._balance(queue)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(queue.link.idle or not queue.connected for queue in self.queues.values()):
                return
            await asyncio.sleep(0.02)

    def unknown_type(self, name: str) -> str:
        """The error message for an event type that this broker does not have."""
        known = ", ".join(self.core.known_types()) or "none yet"
        return f"broker {self.name} has no event type {name!r}; it has {known}"

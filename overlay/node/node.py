"""One broker at work: feeds the routing core with what arrives, and does what the core says.

It decides nothing about routing: messages go into `Broker.handle` in the order in which they arrived, and
actions are carried out in the order in which they come back. What it does decide is who may send how much
(credit), how long the session of a client outlives its connection (lease), and what a full queue means
(`interface_queue.py`). Everything happens on one event loop, between two waits, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from dataclasses import replace
from typing import Any

from covey.matcher import EventType
from covey.overlay.core.introspection.explaining import explain, follow
from covey.overlay.core.introspection.views import inspect, render
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
from covey.overlay.kernel_loader import loader
from covey.overlay.node.interface_queue import PATIENCE_S, SESSION_BYTES, InterfaceQueue
from covey.overlay.node.overlay import Overlay
from covey.overlay.transport.admission import admit
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes
from covey.overlay.transport.errors import MessageError
from covey.overlay.transport.packets import Greeting, Role

log = logging.getLogger("covey.broker")

_FLOOD = 50_000
_TOGETHER = (Publish, Update, Acknowledge)


class Node:
    """The state of one broker process: its core, and an queue for every neighbour and every session."""

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
        self._dropped: dict[str, int] = {}
        self._refused = 0
        for neighbour in overlay.neighbours(name):
            interface = f"broker/{neighbour}"
            self.queues[interface] = InterfaceQueue(interface, self._link(), changed=self._fullness_changed)
        self._neighbours = list(self.queues.values())

    def _link(self, **options: int) -> Link:
        limits = self.overlay.limits
        # Each link has an incarnation of its own: a client whose session was given up is not to take up the
        # session that comes after it.
        return Link(
            secrets.randbits(63) | 1,
            max_frame_bytes=limits.max_frame_bytes,
            join_events=limits.max_batch_events,
            **options,
        )

    # --- connections come and go ------------------------------------------------------------------

    def greeting(self, queue: InterfaceQueue) -> Greeting:
        """What to say first to this interface."""
        return Greeting(
            Role.BROKER, self.name, queue.link.hello(), self.overlay.name, limits=self.overlay.limits
        )

    def session(self, peer: Greeting) -> InterfaceQueue:
        """The session of a client, made if there is none; that of an earlier life of the client ends."""
        interface = f"client/{peer.id}"
        queue = self.queues.get(interface)
        if queue is not None and queue.link.peer_incarnation != peer.hello.incarnation:
            self.end_session(queue, "a new client of that name")
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
        """Take up the link with an interface whose connection has opened, or start afresh. `LinkError` if its
        hello does not fit the link.
        """
        resumed = queue.link.resume(peer.hello)
        if not resumed:
            self._perform(self.core.handle(Connect(), queue.interface, time.time()))
        queue.progressed()
        lease = self._leases.pop(queue.interface, None)
        if lease is not None:
            lease.cancel()
        log.info("%s is here%s", queue.interface, ", resumed" if resumed else "")

    def lost(self, queue: InterfaceQueue, why: str) -> None:
        """The connection of an interface is gone. Nothing changes for one that is away already."""
        if self.queues.get(queue.interface) is not queue or queue.interface in self._leases:
            return
        log.info("%s is away: %s", queue.interface, why)
        loop = asyncio.get_running_loop()
        if queue.is_broker:
            self._leases[queue.interface] = loop.call_later(PATIENCE_S, queue.lose_patience)
            return
        lease_s = self.overlay.sessions.lease_s
        if lease_s > PATIENCE_S:
            self._leases[queue.interface] = loop.call_later(
                PATIENCE_S, self._await_lease, queue, lease_s - PATIENCE_S
            )
        else:
            self._leases[queue.interface] = loop.call_later(lease_s, self.end_session, queue, "lease over")

    def _await_lease(self, queue: InterfaceQueue, left_s: float) -> None:
        queue.lose_patience()
        loop = asyncio.get_running_loop()
        self._leases[queue.interface] = loop.call_later(left_s, self.end_session, queue, "lease over")

    def end_session(self, queue: InterfaceQueue, why: str, status: str = "ABORTED") -> None:
        """Forget a client and all it said."""
        if self.queues.get(queue.interface) is not queue:
            return
        log.info("%s has left: %s", queue.interface, why)
        del self.queues[queue.interface]
        lease = self._leases.pop(queue.interface, None)
        if lease is not None:
            lease.cancel()
        queue.discard()
        for reason, events in queue.losses.events.items():
            self._count_drop(reason, events)
        if queue.pump is not None:
            queue.pump.close(status, f"the session ends: {why}")
        self._perform(self.core.handle(Disconnect(), queue.interface, time.time()))

    def flooded(self) -> bool:
        """Whether so much control waits for some neighbour that clients must not be listened to for a
        while."""
        return any(queue.link.queued_control > _FLOOD and queue.connected for queue in self._neighbours)

    def dismiss(self) -> None:
        """End every connection, and say why."""
        for queue in self.queues.values():
            if queue.pump is not None:
                queue.pump.close("UNAVAILABLE", f"broker {self.name} is shutting down")

    def _arm(self) -> None:
        """Have the core called at the time that it asks for."""
        due = self.core.timer()
        if due is not None and self._timer is None:
            delay_s = max(0.0, due - time.time())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.core.handle(Tick(), "", time.time()))

    def close(self) -> None:
        """Stop all timers."""
        if self._timer is not None:
            self._timer.cancel()
        for lease in self._leases.values():
            lease.cancel()
        self._leases.clear()

    # --- messages ---------------------------------------------------------------------------------

    def take(self, queue: InterfaceQueue, messages: tuple[WireMessage, ...]) -> None:
        """Handle the messages of one frame from an interface; events that follow each other go together, and
        so do updates and acknowledgements, of which none says how to read the next.
        """
        together: list[Message] = []
        for wire in messages:
            message = self._understand(queue, wire)
            if message is None:
                continue
            if together and isinstance(message, Publish) is not isinstance(together[0], Publish):
                self._feed(queue, together)
                together = []
            together.append(message)
            if not isinstance(message, _TOGETHER):
                self._feed(queue, together)
                together = []
        if together:
            self._feed(queue, together)

    def _understand(self, queue: InterfaceQueue, wire: WireMessage) -> Message | None:
        """The message, or what was admitted of it; None if it was refused."""
        try:
            message = decode_message(wire, self.core.event_type, from_broker=queue.is_broker)
        except MessageError as error:
            queue.link.consume(event_bytes(wire))
            if queue.is_broker and error.refuse.count:
                self._count_drop("malformed or of unknown type", error.refuse.count)
                return None
            self._refuse(queue, error.refuse)
            # The core never sees what could not be decoded; an Unsubscribe of nothing settles its epoch.
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

    def _feed(self, queue: InterfaceQueue, messages: list[Message]) -> None:
        """Messages that may be handled together: events only, or no events."""
        if isinstance(messages[0], Publish):
            limits = self.overlay.limits
            messages = join(messages, limits.max_batch_events, limits.max_frame_bytes // 2)
        self._perform(self.core.handle_all(messages, queue.interface, time.time()), queue)

    def _refuse(self, queue: InterfaceQueue, refusal: Refuse) -> None:
        if refusal.status == "NOT_FOUND":
            refusal = replace(refusal, reason=self.unknown_type(refusal.type_name))
        self._post(queue, refusal)

    def _perform(self, actions: list[Action], source: InterfaceQueue | None = None) -> None:
        for action in actions:
            if isinstance(action, Send):
                queue = self.queues.get(action.interface)
                if queue is not None:
                    self._post(queue, action.message, own=queue is source)
            else:
                self._count_drop(action.reason, action.events)
        self._arm()

    def _post(self, queue: InterfaceQueue, message: Message, *, own: bool = False) -> None:
        """Queue a message for an interface; a session that does not keep up ends."""
        if isinstance(message, Refuse):
            self._refused += 1
            log.warning("refused to %s: %s", queue.interface, message.reason.partition("\n")[0])
        if not queue.send(message, own=own):
            queue.losses.add("queue full, session ended", events_in(message))
            asyncio.get_running_loop().call_soon(
                self.end_session, queue, "it does not keep up", "RESOURCE_EXHAUSTED"
            )

    def _count_drop(self, reason: str, events: int) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + events

    # --- credit -----------------------------------------------------------------------------------

    def _fullness_changed(self, queue: InterfaceQueue) -> None:
        if queue.full:
            self._full[queue.interface] = queue
        else:
            self._full.pop(queue.interface, None)
        for source in self.queues.values():
            self._balance(source)

    def _balance(self, source: InterfaceQueue) -> None:
        """Hold back a source while another interface that its events may go to is full.

        Events of a neighbour never go back to it, so neighbours do not wait for each other in a circle. Nor
        does a client wait for itself, who publishes what it makes of what it reads.
        """
        waiting = len(self._full) - (source.interface in self._full)
        source.link.withhold_credit(waiting > 0 or self.draining)
        if source.pump is not None:
            source.pump.wake()

    # --- ending -----------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Take no more events, and wait until all that was accepted has reached the next stop, or time is
        up."""
        self.draining = True
        for queue in self.queues.values():
            self._balance(queue)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(queue.link.idle or not queue.connected for queue in self.queues.values()):
                return
            await asyncio.sleep(0.02)

    # --- looking at it ----------------------------------------------------------------------------

    def event_type(self, name: str) -> EventType | None:
        return self.core.event_type(name)

    def unknown_type(self, name: str) -> str:
        """One sentence on a type that this broker has not heard of."""
        known = ", ".join(self.core.known_types()) or "none yet"
        return f"event type {name!r} is not known at broker {self.name}: it knows {known}"

    def explain(self, interface: str, subscription_id: int, event: dict[str, object]) -> dict[str, Any]:
        """See `explaining.explain`; with where neighbours are, and whether they are connected."""
        answer = explain(self.core, interface, subscription_id, event, time.time_ns())
        return answer | {"neighbours": self._where()}

    def follow(self, type_name: str, publisher: str, sequence: int) -> dict[str, Any]:
        """See `explaining.follow`; with where neighbours are, and whether they are connected."""
        return follow(self.core, type_name, publisher, sequence) | {"neighbours": self._where()}

    def _where(self) -> dict[str, dict[str, Any]]:
        return {
            name: {
                "address": self.overlay.brokers[name].address,
                "connected": self.queues[f"broker/{name}"].connected,
            }
            for name in self.overlay.neighbours(self.name)
        }

    def inspect(self, listed: int | None = None) -> dict[str, Any]:
        """The core's state (`listed` as there) and the node's counters, as plain values for JSON."""
        return {
            "broker": self.name,
            "overlay": self.overlay.name,
            "routing": self.overlay.routing,
            "process": os.getpid(),
            "kernels": loader.state,
            "uptime_s": round((time.time_ns() - self.started_ns) / 1e9, 3),
            "core": inspect(self.core, listed),
            "interfaces": {name: queue.inspect() for name, queue in self.queues.items()},
            "dropped": dict(self._dropped),
            "refused": self._refused,
        }

    def render(self, listed: int | None = None) -> str:
        """The core's state (`listed` as there) and the interfaces, for people."""
        lines = [render(self.core, listed).rstrip(), "", "interfaces"]
        for name, queue in self.queues.items():
            state = "here" if queue.connected else "away"
            waits = queue.link.queued_events
            lines.append(f"  {name}: {state}" + (f", {waits} events wait" if waits else ""))
            lines += [f"    {events} events lost: {why}" for why, events in queue.losses.events.items()]
        lines += [f"  {events} events dropped: {why}" for why, events in self._dropped.items()]
        return "\n".join(lines) + "\n"

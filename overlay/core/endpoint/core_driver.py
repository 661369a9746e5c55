"""What passes between the interfaces of an endpoint and its core: messages in, and what its actions say out.

Messages go to the core in the order of arrival, and the core's messages into queues in the order of its
actions. Events go to neighbours first; the sessions are served with them in `deliver`, before anything else
is handled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from covey.overlay.core.access.guard import Guard
from covey.overlay.core.endpoint.clock import EndpointClock
from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.durability import Durability
from covey.overlay.core.endpoint.interface_queue import DropCounts, InterfaceQueue
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.endpoint.recovery import Recovery
from covey.overlay.core.endpoint.timings import Timings
from covey.overlay.core.endpoint.tracing import Tracing
from covey.overlay.core.endpoint.validity import Validity
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.size import events_in
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    AwaitClients,
    Hold,
    Interface,
    Message,
    Publish,
    Refuse,
    Send,
    Store,
    SyncEnd,
)
from covey.overlay.core.warnings import Warn, WarningKind


class CoreDriver:
    """That of one endpoint, with what it has there; `finish` is called where events have been delivered."""

    def __init__(
        self,
        core: Core,
        queues: Mapping[Interface, InterfaceQueue],
        options: EndpointOptions,
        *,
        clock: EndpointClock,
        recovery: Recovery,
        validity: Validity,
        durability: Durability | None,
        guard: Guard,
        drops: DropCounts,
        timings: Timings | None,
        tracing: Tracing | None,
        warn: Warn,
        finish: Callable[[], None],
    ) -> None:
        self.options = options
        self.refused: Counter[str] = Counter()
        """Refusals, by status."""
        self.deferred = False
        """Whether sessions have yet to be served with events that have gone to neighbours."""
        self.source: InterfaceQueue | None = None
        """Whose messages were handled last."""
        self.ending: list[tuple[InterfaceQueue, str, str]] = []
        """Sessions that do not keep up and are to be ended, why, and with which status."""
        self._core = core
        self._queues = queues
        self._clock = clock
        self._recovery = recovery
        self._validity = validity
        self._durability = durability
        self._guard = guard
        self._drops = drops
        self._timings = timings
        self._tracing = tracing
        self._warn = warn
        self._finish = finish

    def handle(self, queue: InterfaceQueue, messages: list[Message]) -> None:
        """Pass messages to the core in one call: events only, or no events."""
        timings, events = self._timings, isinstance(messages[0], Publish)
        if events and len(messages) > 1:
            options = self.options
            messages = join(messages, options.join_events, options.limits.max_frame_bytes // 2)
        if self.deferred:
            self.deliver()
        start_ns = 0 if timings is None else timings.clock_ns()
        if timings is not None and not events:
            timings.arrived(queue.interface, messages)
        if self._tracing is not None:
            messages = self._tracing.arrived(queue.interface, messages)
        actions = self._core.handle_all(messages, queue.interface, self._clock.stamp_ns, defer=True)
        if not queue.is_broker and not events:
            peer = self._core.tables.peers.get(queue.interface)
            self._validity.handled(queue.interface, messages, actions, peer.subscriptions if peer else ())
            if self._durability is not None:
                self._durability.handled(queue, messages, self._clock.now_ns)
        self.perform(actions, queue)
        if timings is not None and events:
            timings.matched(timings.links, start_ns)
        self.deferred = self._core.deferred
        if self._tracing is not None and not self.deferred:
            self._tracing.handled()
        self.source = queue
        if events or not self._recovery.going_on:
            return
        if any(isinstance(message, SyncEnd) for message in messages):
            self._returned(queue.interface)

    def _returned(self, interface: Interface) -> None:
        """An interface has sent all that it wants and publishes."""
        if self._recovery.returned(interface):
            self.tell(AwaitClients(False), "")

    def deliver(self) -> None:
        """Serve the sessions with the events that have gone to neighbours."""
        self.deferred = False
        timings = self._timings
        start_ns = 0 if timings is None else timings.clock_ns()
        self.perform(self._core.deliver(), self.source)
        if timings is not None:
            timings.matched(timings.sessions, start_ns)
        if self._tracing is not None:
            self._tracing.handled()
        self._finish()
        if self.source is not None and self.source.link.ready:
            self.source.wake()

    def tell(self, message: Message, interface: Interface) -> None:
        """Pass a message of the endpoint, or of a session, to the core."""
        if self.deferred:
            self.deliver()
        self.perform(self._core.handle(message, interface, self._clock.stamp_ns))

    def perform(self, actions: list[Action], source: InterfaceQueue | None = None) -> None:
        """Queue and store what the core has returned for messages of a source."""
        for action in actions:
            if isinstance(action, Send):
                receiver = self._queues.get(action.interface)
                if receiver is not None:
                    message = action.message
                    if isinstance(message, Refuse):
                        message = self._guard.without_policy(message, receiver.rights)
                    elif isinstance(message, Acknowledge) and self._held(receiver, message):
                        continue
                    self.enqueue(receiver, message, own=receiver is source)
            elif isinstance(action, Store):
                assert self._durability is not None
                for queue, stored in self._durability.store(action):
                    self.enqueue(queue, stored, own=queue is source)
            else:
                self._drops.add(action.reason, action.events)

    def _held(self, receiver: InterfaceQueue, answer: Acknowledge) -> bool:
        return self._durability is not None and self._durability.holds(receiver, answer)

    def enqueue(self, queue: InterfaceQueue, message: Message, *, own: bool = False) -> None:
        """Queue a message for an interface; ends a session that does not keep up."""
        if isinstance(message, Refuse):
            self.refused[message.status] += 1
            sentence = f"refused: {message.reason.partition(chr(10))[0]}"
            self._warn(queue.interface, WarningKind.REFUSED, sentence)
        elif isinstance(message, Acknowledge):
            if self._timings is not None:
                self._timings.settled(queue.interface, message.epoch)
            if self._tracing is not None:
                self._tracing.settled(queue.interface, message.epoch)
        if not queue.send(message, own=own):
            queue.drops.add("queue full, session ended", events_in(message))
            self.ending.append((queue, "it does not keep up", "RESOURCE_EXHAUSTED"))

    def tell_hold(self, source: Interface, hold: Hold) -> None:
        """Have a source hold a type, or send it again."""
        queue = self._queues.get(source)
        if queue is not None:
            queue.send(hold)

"""What passes between the interfaces of an endpoint and its core: messages in, and what its actions say out.

Messages go to the core in the order of arrival, and the core's messages into queues in the order of its
actions. Events go to neighbours first; the sessions are served with them in `deliver`, before anything else
is handled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.state import EndpointState
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.size import events_in
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    AwaitClients,
    Drop,
    Interface,
    Message,
    Publish,
    Refuse,
    Send,
    Store,
    SyncEnd,
)
from covey.overlay.core.warnings import WarningKind


class CoreDriver:
    """That of one endpoint; `finish` is called where events have been delivered."""

    def __init__(self, state: EndpointState, finish: Callable[[], None]) -> None:
        self._state = state
        self.refused: Counter[str] = Counter()
        """Refusals, by status."""
        self.deferred = False
        """Whether sessions have yet to be served with events that have gone to neighbours."""
        self.source: InterfaceQueue | None = None
        """Whose messages were handled last."""
        self.ending: list[tuple[InterfaceQueue, str, str]] = []
        """Sessions that do not keep up and are to be ended, why, and with which status."""
        self._finish = finish

    def handle(self, queue: InterfaceQueue, messages: list[Message]) -> None:
        """Pass messages to the core in one call: events only, or no events."""
        state, events = self._state, messages[0].__class__ is Publish
        timings, core, clock = state.timings, state.core, state.clock
        if events and len(messages) > 1:
            options = state.options
            messages = join(messages, options.join_events, options.limits.max_frame_bytes // 2)
        if self.deferred:
            self.deliver()
        start_ns = 0 if timings is None else timings.clock_ns()
        if timings is not None and not events:
            timings.arrived(queue.interface, messages)
        if state.tracing is not None:
            messages = state.tracing.arrived(queue.interface, messages)
        actions = core.handle_all(messages, queue.interface, clock.now_ns + clock.offset_ns, defer=True)
        if not queue.is_broker and not events:
            peer = core.tables.peers.get(queue.interface)
            state.validity.handled(queue.interface, messages, actions, peer.subscriptions if peer else ())
            if state.durability is not None:
                state.durability.handled(queue, messages, clock.now_ns)
        self.perform(actions, queue)
        if timings is not None and events:
            timings.matched(timings.links, start_ns)
        self.deferred = bool(core.deferred)
        if state.tracing is not None and not self.deferred:
            state.tracing.handled()
        self.source = queue
        if events or not state.recovery.going_on:
            return
        if any(isinstance(message, SyncEnd) for message in messages):
            self._returned(queue.interface)

    def _returned(self, interface: Interface) -> None:
        """An interface has sent all that it wants and publishes."""
        if self._state.recovery.returned(interface):
            self.tell(AwaitClients(False), "")

    def deliver(self) -> None:
        """Serve the sessions with the events that have gone to neighbours."""
        self.deferred = False
        timings = self._state.timings
        start_ns = 0 if timings is None else timings.clock_ns()
        self.perform(self._state.core.deliver(), self.source)
        if timings is not None:
            timings.matched(timings.sessions, start_ns)
        if self._state.tracing is not None:
            self._state.tracing.handled()
        self._finish()
        if self.source is not None and self.source.link.ready:
            self.source.wake()

    def tell(self, message: Message, interface: Interface) -> None:
        """Pass a message of the endpoint, or of a session, to the core."""
        if self.deferred:
            self.deliver()
        self.perform(self._state.core.handle(message, interface, self._state.clock.stamp_ns))

    def perform(self, actions: list[Action], source: InterfaceQueue | None = None) -> None:
        """Queue and store what the core has returned for messages of a source."""
        durability = self._state.durability
        for action in actions:
            if action.__class__ is Send:
                receiver = self._state.queues.get(action.interface)
                if receiver is None:
                    continue
                message = action.message
                if message.__class__ is Refuse:
                    message = self._state.guard.without_policy(message, receiver.rights)
                elif message.__class__ is Acknowledge and durability and durability.holds(receiver, message):
                    continue
                self.enqueue(receiver, message, own=receiver is source)
            elif isinstance(action, Store):
                assert durability is not None
                for queue, stored in durability.store(action):
                    self.enqueue(queue, stored, own=queue is source)
            elif isinstance(action, Drop):
                self._state.drops.add(action.reason, action.events)

    def enqueue(self, queue: InterfaceQueue, message: Message, *, own: bool = False) -> None:
        """Queue a message for an interface; ends a session that does not keep up."""
        if message.__class__ is Refuse:
            self.refused[message.status] += 1
            sentence = f"refused: {message.reason.partition(chr(10))[0]}"
            self._state.warn(queue.interface, WarningKind.REFUSED, sentence)
        elif message.__class__ is Acknowledge:
            if self._state.timings is not None:
                self._state.timings.settled(queue.interface, message.epoch)
            if self._state.tracing is not None:
                self._state.tracing.settled(queue.interface, message.epoch)
        if not queue.send(message, own=own):
            queue.drops.add("queue full, session ended", events_in(message))
            self.ending.append((queue, "it does not keep up", "RESOURCE_EXHAUSTED"))

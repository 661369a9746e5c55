"""The state of one broker's endpoint that its parts share, and the way between its interfaces and its core.

Messages go to the core in the order of arrival, and the core's messages into queues in the order of its
actions. Events go to neighbours first; sessions get them in `deliver`, before anything else is handled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from covey.overlay.core.access.guard import Guard
from covey.overlay.core.endpoint.connections import ConnectRequest, IncomingConnection
from covey.overlay.core.endpoint.durability import Durability
from covey.overlay.core.endpoint.ending import PART, Endings, Validity
from covey.overlay.core.endpoint.flow import TURN_MESSAGES, Holds, WindowSizes
from covey.overlay.core.endpoint.interface_queue import DropCounts, InterfaceQueue
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, QueueLimits, SessionLimits
from covey.overlay.core.endpoint.observing import Timings, Tracing
from covey.overlay.core.endpoint.quotas import Bounds, Quotas
from covey.overlay.core.endpoint.recovery import Recovery
from covey.overlay.core.endpoint.storage import Storage
from covey.overlay.core.endpoint.timers import EndpointClock, Timers
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import events_in
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    AwaitClients,
    Deliver,
    Drop,
    Hold,
    Interface,
    Message,
    Publish,
    Refuse,
    Send,
    Store,
    SyncEnd,
    Update,
)
from covey.overlay.core.routing.tables import Tables
from covey.overlay.core.warnings import Warn, WarningKind

REFUSAL_CHARACTERS = 4_000
"""Of a refusal's sentence, and of the type in it, both of which may repeat what a client has sent."""


def _shortened(text: str) -> str:
    return text if len(text) <= REFUSAL_CHARACTERS else f"{text[:REFUSAL_CHARACTERS]} ..."


class Core(Protocol):
    """The calls of `routing.Broker` that an endpoint makes."""

    @property
    def tables(self) -> Tables: ...

    @property
    def deferred(self) -> Sequence[object]: ...

    @property
    def synced(self) -> bool: ...

    def next_timer(self) -> int | None: ...
    def handle(self, message: Message, source: Interface, now_ns: int) -> list[Action]: ...
    def handle_all(
        self, messages: Sequence[Message], source: Interface, now_ns: int, *, defer: bool = False
    ) -> list[Action]: ...
    def deliver(self) -> list[Action]: ...


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Up to `join_events` events of several messages are matched as one batch. Without `stamp_ingress`,
    events of clients keep their ingress time, for simulations. While more than `max_queued_control` messages
    are queued for a neighbour, the broker reads nothing from clients with more than `max_unsettled` changes
    on their way. More than `after_hold_bytes` of a held type is refused: a client that ignores holds would
    fill queues that only holds bound. `drop_repeats` is for links that move (`Repeats`). `ending_part`
    subscriptions that end together are withdrawn at once (`ending.py`)."""

    limits: Limits = field(default_factory=Limits)
    sessions: SessionLimits = field(default_factory=SessionLimits)
    links: LinkLimits = field(default_factory=LinkLimits)
    bounds: Bounds = field(default_factory=Bounds)
    join_events: int = Limits().max_batch_events
    stamp_ingress: bool = True
    windows: WindowSizes = field(default_factory=WindowSizes)
    max_queued_control: int = 50_000
    max_unsettled: int = 1_000
    after_hold_bytes: int = 16 << 20
    drop_repeats: bool = False
    turn_messages: int = TURN_MESSAGES
    ending_part: int = PART

    def queue_limits(self, *, session: bool) -> QueueLimits:
        sessions, links = self.sessions, self.links
        if session:
            return QueueLimits(sessions.queue_bytes, links.held_bytes, sessions.queue_events)
        return QueueLimits(links.queue_bytes, links.held_bytes)


class EndpointState(ABC):
    """`queues` has every interface, `neighbours` the brokers among them; `durability` is None without a
    storage."""

    def __init__(
        self,
        core: Core,
        options: EndpointOptions,
        *,
        new_link: Callable[[int], Link],
        life: int,
        warn: Warn,
        clock: EndpointClock,
        dialled: Collection[Interface],
        timings: Timings | None,
        tracing: Tracing | None,
        storage: Storage | None,
    ) -> None:
        self.core, self.tables, self.options = core, core.tables, options
        self.warn, self.clock, self.new_link = warn, clock, new_link
        self.links = 0
        self.dialled = frozenset(dialled)
        self.timers: Timers[tuple[str, Interface]] = Timers()
        self.queues: dict[Interface, InterfaceQueue] = {}
        self.neighbours: dict[Interface, InterfaceQueue] = {}
        self.draining = False
        """Whether it takes no more events and no more connections."""
        self.drops = DropCounts()
        self.guard = Guard(core.tables, warn)
        self.quotas = Quotas(core.tables, options.bounds)
        self.publishers = 0
        """Clients that have published, which share `options.windows`."""
        self.holds = Holds(self._tell_hold)
        self.recovery = Recovery(life, clock.now_ns, self.timers)
        self.validity = Validity(clock, self.timers)
        self.endings = Endings(
            core.tables,
            part=options.ending_part,
            timers=self.timers,
            tell_core=self.tell,
            ended=self.quotas.forget,
        )
        self.challenges: dict[Interface, tuple[ConnectRequest, IncomingConnection]] = {}
        """Claims to the name of a connected interface, until its holder has answered."""
        self.admit: Callable[[ConnectRequest], None] | None = None
        """Raises `ConnectionRefusedError`; this and the next two are set by `SessionMoves`."""
        self.ticket: Callable[[InterfaceQueue], str] = lambda _: ""
        self.ended: Callable[[Interface], object] = lambda _: None
        """Called at the end of a session."""
        self.timings, self.tracing = timings, tracing
        self.durability: Durability | None = None
        if storage is not None:
            self.durability = Durability(storage, core.tables, self.queues, self.timers, self.validity)
        self.refused: Counter[str] = Counter()
        self.deferred = False
        """Whether `deliver` is to be called, once the frames for neighbours are on their way."""
        self.source: InterfaceQueue | None = None
        self.ending: list[tuple[InterfaceQueue, str, str]] = []
        """Sessions to end since they do not keep up, why, and with which status."""

    @property
    def credit_withheld(self) -> bool:
        return self.draining or self.recovery.going_on

    def _tell_hold(self, source: Interface, hold: Hold) -> None:
        queue = self.queues.get(source)
        if queue is not None:
            queue.send(hold)

    def forget(self, interface: Interface) -> None:
        """An interface has ended, or has lost its state: nothing more is observed or held for it."""
        if self.timings is not None:
            self.timings.forget(interface)
        if self.tracing is not None:
            self.tracing.forget(interface)
        self.holds.forget_source(interface)

    # --- to the core ----------------------------------------------------------------------------------------

    def handle(self, queue: InterfaceQueue, messages: list[Message]) -> None:
        """Pass messages of an interface to the core in one call: events only, or no events."""
        events, timings, tracing = messages[0].__class__ is Publish, self.timings, self.tracing
        core, clock = self.core, self.clock
        if events and len(messages) > 1:
            options = self.options
            messages = join(messages, options.join_events, options.limits.max_frame_bytes // 2)
        if self.deferred:
            self.deliver()
        start_ns = 0
        if timings is not None:
            start_ns = timings.clock_ns()
            if not events:
                timings.arrived(queue.interface, messages)
        if tracing is not None:
            messages = tracing.arrived(queue.interface, messages)
        actions = core.handle_all(messages, queue.interface, clock.now_ns + clock.offset_ns, defer=True)
        if not queue.is_broker and not events:
            for message in messages:
                if not (message.__class__ is Update and not message.valid_for_ns):
                    peer = self.tables.peers.get(queue.interface)
                    subscriptions = peer.subscriptions if peer else ()
                    self.validity.handled(queue.interface, messages, actions, subscriptions)
                    break
            if self.durability is not None:
                self.durability.handled(queue, messages, clock.now_ns)
        self.execute(actions, queue)
        if timings is not None and events:
            timings.matched(timings.links, start_ns)
        self.deferred = bool(core.deferred)
        if tracing is not None and not self.deferred:
            tracing.handled()
        self.source = queue
        if self.recovery.going_on and not events:
            synced = any(each.__class__ is SyncEnd for each in messages)
            if synced and self.recovery.returned(queue.interface):
                self.tell(AwaitClients(False), "")

    @abstractmethod
    def finish(self) -> None:
        """What remains at the end of a call, when all else is consistent."""

    def deliver(self) -> None:
        self.deferred = False
        timings = self.timings
        start_ns = 0 if timings is None else timings.clock_ns()
        self.execute(self.core.deliver(), self.source)
        if timings is not None:
            timings.matched(timings.sessions, start_ns)
        if self.tracing is not None:
            self.tracing.handled()
        self.finish()
        if self.source is not None and self.source.link.ready:
            self.source.wake()

    def tell(self, message: Message, interface: Interface) -> None:
        if self.deferred:
            self.deliver()
        self.execute(self.core.handle(message, interface, self.clock.stamp_ns))

    # --- from the core --------------------------------------------------------------------------------------

    def execute(self, actions: list[Action], source: InterfaceQueue | None = None) -> None:
        """Queue and store what the core has returned for messages of a source."""
        queues, durability = self.queues, self.durability
        for action in actions:
            if action.__class__ is Send:
                queue = queues.get(action.interface)
                if queue is None:
                    continue
                message = action.message
                if message.__class__ is Refuse:
                    self.enqueue(queue, self.guard.without_policy(message, queue.rights))
                    continue
                if message.__class__ is Acknowledge:
                    if durability is not None and durability.holds(queue, message):
                        continue
                    if self.timings is not None or self.tracing is not None:
                        self._settled(queue, message)
                if (message.__class__ is Publish or message.__class__ is Deliver) and message.batch.count:
                    alive = queue.send_events(message, own=queue is source)
                else:
                    alive = queue.send(message)
                if not alive:
                    self._overrun(queue, message)
            elif isinstance(action, Store):
                assert durability is not None
                for queue, stored in durability.store(action):
                    if not queue.send_events(stored, own=queue is source):
                        self._overrun(queue, stored)
            elif isinstance(action, Drop):
                self.drops.add(action.reason, action.events)

    def enqueue(self, queue: InterfaceQueue, message: Message) -> None:
        """Queue a control message for an interface; ends a session that does not keep up."""
        if message.__class__ is Refuse:
            self.refused[message.status] += 1
            if not queue.is_broker:
                reason, name = _shortened(message.reason), _shortened(message.type_name)
                message = replace(message, reason=reason, type_name=name)
            sentence = f"refused: {message.reason.partition(chr(10))[0]}"
            self.warn(queue.interface, WarningKind.REFUSED, sentence)
        elif message.__class__ is Acknowledge:
            self._settled(queue, message)
        if not queue.send(message):
            self._overrun(queue, message)

    def _settled(self, queue: InterfaceQueue, message: Acknowledge) -> None:
        if self.timings is not None:
            self.timings.settled(queue.interface, message.epoch)
        if self.tracing is not None:
            self.tracing.settled(queue.interface, message.epoch)

    def _overrun(self, queue: InterfaceQueue, message: Message) -> None:
        queue.drops.add("queue full, session ended", events_in(message))
        self.ending.append((queue, "it does not keep up", "RESOURCE_EXHAUSTED"))

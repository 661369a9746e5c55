"""The queue of one interface of a broker: its link, its connection, and the policy for a full queue.

Invariant: the queue is bounded. While it is full, the sources of its types are held, except where a client
chose to lose events or its session instead. A client that takes nothing for the stall limit, or an interface
that has been away for a moment, holds nobody any longer: its oldest events are dropped. Every dropped event
is counted, and reported to the client in its stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from covey.overlay.core.access.rights import Rights
from covey.overlay.core.endpoint.connections import Connection
from covey.overlay.core.endpoint.flow import Share
from covey.overlay.core.endpoint.limits import QueueLimits, SlowConsumer
from covey.overlay.core.link.joining import part, pieces
from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import events_in
from covey.overlay.core.messages import Deliver, Expired, Gap, Interface, Message, Publish
from covey.overlay.core.warnings import WarningKind

MAX_SESSION_CONTROL = 50_000
"""Control pending for a connected client. One that reads has few: only refusals are messages of their own."""
ANSWER_BYTES = 64 << 20
"""What a client may have requested, and not read, beyond its full queue: all last events of a type."""


STALLED = "stalled"
_CONFLATED_FROM = 1_024
"""Fewer waiting events, without a narrower bound of the session, are normal for a client that keeps up."""


@dataclass(slots=True)
class DropCounts:
    by_reason: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, events: int) -> None:
        if events:
            self.by_reason[reason] = self.by_reason.get(reason, 0) + events


@dataclass(slots=True)
class Copies:
    """Records stored for a session at another broker: those with `receiver` from `next` on, below `end`."""

    receiver: Interface
    next: int
    end: int


@dataclass(slots=True)
class WaitingEnd:
    """To be sent in this `life` of the link behind the records below `until`; None: not yet known."""

    message: Expired
    life: tuple[int, int]
    until: int | None = None


class InterfaceQueue:
    """One interface. `full` turns true when more events or bytes than `limits` has are pending, and false
    when half of that is left. Of a type that the peer holds, `held_bytes` may wait before the type is full by
    itself; they do not count as pending. `changed` is called when `full_types` may have changed, `warn` with
    one sentence. `key_of` returns an event type's key."""

    __slots__ = """
        _changed _conflated_from _full_held _key_of _stalled _types _warn _warned _why_dropping
        acknowledging behind blocking connection connections copies dialled drops durable ends full
        handshake identity interface is_broker last_stored limits link moved_to policy progress publisher
        publishers recalled rights share since_ns widest_window
    """.split()

    def __init__(
        self,
        interface: Interface,
        link: Link,
        *,
        changed: Callable[[InterfaceQueue], None],
        warn: Callable[[WarningKind, str], None],
        policy: SlowConsumer = SlowConsumer.BLOCK,
        limits: QueueLimits,
        durable: bool = False,
        key_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.interface = interface
        self.link = link
        self.connection: Connection | None = None
        self.since_ns = 0
        self.handshake = False
        """Whether a hello of this side is unanswered: until then the link must not give up control."""
        self.dialled = False
        """Whether this side opened the connection."""
        self.acknowledging = "ack", interface
        self.policy = policy
        self.limits = limits
        self.rights: Rights | None = None
        """What a client may do; None for everything."""
        self.publisher: str | None = None
        """The last publisher name that was permitted."""
        self.full = False
        self.blocking = True
        self.is_broker = interface.startswith("broker/")
        self.durable = self.is_broker or durable
        """Whether it gets all events of durable types."""
        self.behind: dict[str, int] = {}
        """By durable type, the first record that is only stored, since this queue has no room."""
        self.ends: dict[str, deque[WaitingEnd]] = {}
        """By durable type in which it is behind, ends of subscriptions with unread events."""
        self.last_stored: dict[str, int] = {}
        """By durable type, the last record that was queued."""
        self.copies: dict[str, Copies] = {}
        """By durable type, what a session has brought from another broker: read before its own records."""
        self.identity = ""
        self.recalled = 0
        """Messages that repeat its subscriptions to a client, beyond the bound of control."""
        self.moved_to = ("", 0)
        """Of an ending durable session: the broker that has it now, and the attempt of the handover."""
        self.drops = DropCounts()
        self.share = Share(rests=not self.is_broker)
        self.widest_window = link.window_bytes
        self.publishers: int | None = None
        """How many clients had published when it did last (`flow.py`); None if it has not."""
        self.connections = 0
        self.progress = (0, 0)
        self._key_of = key_of
        self._conflated_from = 0
        """How many events must wait before the next conflation."""
        self._types: dict[str, None] = {}
        self._full_held: dict[str, None] = {}
        self._changed = changed
        self._warn = warn
        self._warned = False
        self._why_dropping = ""
        self._stalled = False

    @property
    def connected(self) -> bool:
        return self.connection is not None

    @property
    def full_types(self) -> list[str]:
        """The event types whose sources must be held because of this interface."""
        return list(self._types if self.full else self._full_held)

    def wake(self) -> None:
        if self.connection is not None:
            self.connection.wake()

    # --- sending ----------------------------------------------------------------------------------

    def send(self, message: Message) -> bool:
        """False if the session must end, since too many control messages are pending, or by its policy."""
        if (message.__class__ is Publish or message.__class__ is Deliver) and message.batch.count:
            return self.send_events(message)
        alive = True
        if not (message.__class__ is Expired and self._ends_later(message)):
            self.link.send(message)
            if self.connection is not None:
                alive = self.is_broker or self.link.backlog_control <= MAX_SESSION_CONTROL + self.recalled
            elif not self.handshake:
                self.link.give_up_control()
        if self.connection is not None:
            self.connection.wake()
        return alive

    def _ends_later(self, message: Expired) -> bool:
        """Whether an end waits for stored events. Ends over the bound, as a client could create any number,
        do not."""
        name = message.type_name
        if name not in self.behind or len(self.ends.get(name, ())) >= MAX_SESSION_CONTROL:
            return False
        self.ends.setdefault(name, deque()).append(WaitingEnd(message, self.link.life))
        return True

    def _has_room_for_answer(self, message: Publish | Deliver) -> bool:
        """Whether these are requested events that may wait; a client, which may request again unread, is
        bounded."""
        if not message.replayed:
            return False
        return self.is_broker or self._pending_bytes() < self.limits.bytes + ANSWER_BYTES

    def send_stored(self, message: Publish | Deliver) -> None:
        self.last_stored[message.batch.event_type.name] = message.offset
        for piece in pieces(message, self.link.max_frame_bytes):
            self.link.send(piece)
        self.wake()

    def lost(self, type_name: str, records: int, until_ns: int) -> None:
        """Records of a log were removed or damaged before they were read for this interface."""
        self.drops.add("removed from the log or damaged", records)
        self._warn(
            WarningKind.RECORDS_LOST,
            f"{records:,} records of {type_name} are no more in the log: it was away for too long",
        )
        if not self.is_broker:
            self.link.tell_gap(Gap(type_name, until_ns, until_ns, records))
            self.wake()

    def send_events(self, message: Publish | Deliver, *, own: bool = False) -> bool:
        """Queue events by the policy; False if the session must end.

        `own` events were published or requested by the interface itself. Its full queue does not hold it, or
        it might never read, so its own events are dropped meanwhile, and counted."""
        link = self.link
        if own and self.full and not self._has_room_for_answer(message):
            self._drop("queue full, its own dropped", message)
            return True
        if self.policy is SlowConsumer.DISCONNECT and self._over(message):
            return False
        if self.policy is SlowConsumer.DROP_NEWEST and self._over(message):
            room = self._room(message)
            if room < events_in(message):
                self._drop("queue full, newest dropped", part(message, room, events_in(message)))
            if not room:
                return True
            message = part(message, 0, room)
        if message.batch.count == 1:
            link.events.append(message)
        else:
            for piece in pieces(message, link.max_frame_bytes):
                link.events.append(piece)
        if self.policy is SlowConsumer.BLOCK:
            name = message.batch.event_type.name
            waiting, limits = link.events, self.limits
            if (
                name not in self._types
                or not self.blocking
                or waiting.aside
                or 2 * (waiting.bytes + link.retained_bytes) > limits.bytes
                or (limits.events is not None and 2 * (waiting.count + link.retained_events) > limits.events)
            ):
                self._note(name)
        elif self.policy is SlowConsumer.DROP_OLDEST:
            self._drop_oldest("queue full, oldest dropped")
        elif self.policy is SlowConsumer.CONFLATE:
            self._conflate(events_in(message))
        if self.connection is not None:
            self.connection.wake()
        return True

    def _conflate(self, added: int) -> None:
        """Whenever twice as many events wait as after the last time, O(log n) per event: at most twice the
        newest wait, and a client that keeps up gets all. If the newest leave less than a quarter of a full
        queue free, the oldest are dropped, for the same cost."""
        link, limits = self.link, self.limits
        waiting = link.events.count - link.events.stored_count
        if waiting <= added:
            self._conflated_from = 0
        least = _CONFLATED_FROM if limits.events is None else min(_CONFLATED_FROM, limits.events // 4)
        over, enough = self._too_many(1, 1), max(least, self._conflated_from)
        if not over and (waiting <= added or waiting < enough):
            return
        for type_name, ingress_ns, count in link.events.conflate(self._key_of):
            self.drops.add("conflated", count)
            link.dropped += count
            link.tell_gap(Gap(type_name, ingress_ns, ingress_ns, count, conflated=True))
        if over:
            while self._too_many(4, 3) and (dropped := link.events.drop_oldest()) is not None:
                self._drop("queue full, oldest dropped", dropped)
        self._conflated_from = 2 * (link.events.count - link.events.stored_count)

    def _too_many(self, of: int, parts: int) -> bool:
        """More than `parts`/`of` of the bounds, without events in frames (bounded by the window) and stored
        ones."""
        link, limits = self.link, self.limits
        waits = link.events.bytes - link.events.held_bytes() - link.events.stored_bytes
        events = link.events.count - link.events.stored_count
        return of * waits > parts * limits.bytes or (
            limits.events is not None and of * events > parts * limits.events
        )

    def _note(self, type_name: str) -> None:
        if type_name not in self._types:
            self._types[type_name] = None
            if self.full:
                self._changed(self)
        link = self.link
        if link.events.aside and link.events.holds(type_name):
            self._check_held(type_name)
        if not self.blocking:
            self._drop_oldest(self._why_dropping)
        elif not self.full and self._over(of=2):
            if self._over():
                self._set_full(True)
            elif not self._warned:
                self._warned = True
                self._warn(
                    WarningKind.HALF_FULL,
                    f"half full: {self._pending_events():,} events of {self._pending_bytes():,} bytes wait",
                )

    def _check_held(self, type_name: str) -> None:
        """Stored events hold nobody, and are not dropped."""
        events, most = self.link.events, self.limits.held_bytes
        over = events.droppable_bytes(type_name) > most
        if over and not self.blocking:
            while events.droppable_bytes(type_name) > most and (dropped := events.drop_oldest(type_name)):
                self._drop(self._why_dropping, dropped)
        elif over and type_name not in self._full_held:
            self._full_held[type_name] = None
            self._changed(self)

    def _pending_bytes(self) -> int:
        """Stored events are bounded by `Durability`, and no policy drops them."""
        return self.link.backlog_bytes - self.link.events.held_bytes() - self.link.events.stored_bytes

    def _pending_events(self) -> int:
        return self.link.backlog_events - self.link.events.stored_count

    def _over(self, message: Message | None = None, *, of: int = 1) -> bool:
        """Whether more is pending, with this message, than 1/`of` of the limits."""
        link, limits = self.link, self.limits
        events = self._pending_events() + (0 if message is None else events_in(message))
        size = self._pending_bytes() + (0 if message is None else link.events.entry(message).held)
        return of * size > limits.bytes or (limits.events is not None and of * events > limits.events)

    def _room(self, message: Message) -> int:
        room = events_in(message)
        if self.limits.events is not None:
            room = min(room, max(0, self.limits.events - self._pending_events()))
        free_bytes = self.limits.bytes - self._pending_bytes()
        while room and self.link.events.entry(part(message, 0, room)).held > free_bytes:
            room //= 2
        return room

    def _drop_oldest(self, reason: str) -> None:
        while self._over():
            dropped = self.link.events.drop_oldest()
            if dropped is None:
                return
            self._drop(reason, dropped)

    def _drop(self, reason: str, message: Message) -> None:
        assert isinstance(message, Publish | Deliver)
        batch = message.batch
        self.drops.add(reason, len(batch))
        self.link.dropped += len(batch)
        if not self.is_broker:
            self.link.tell_gap(Gap(batch.event_type.name, batch.ingress_ns, batch.ingress_ns, len(batch)))
            self.wake()

    def _set_full(self, full: bool) -> None:
        if self.full != full:
            self.full = full
            self._warned = full
            if full:
                self.link.ask()  # else held sources wait for a lazy acknowledgement
            self._changed(self)

    # --- what the peer says ---------------------------------------------------------------------------------

    def set_held(self, type_name: str, held: bool) -> None:
        """The peer takes no events of a type, or takes them again."""
        self.link.events.set_held(type_name, held)
        if not held and type_name in self._full_held:
            del self._full_held[type_name]
            self._changed(self)
        if held:
            self._check_held(type_name)
            self._relieve()
        elif self.blocking and not self.full and self._over():
            self._set_full(True)
        self.wake()

    def received(self) -> bool:
        """A frame has arrived; True if the peer has taken something since the last one."""
        progress = self.link.acknowledged, self.link.credit
        if progress == self.progress:
            return False
        self.progress = progress
        if self.full or self._warned or not self.blocking:
            self._relieve()
        return True

    def _relieve(self) -> None:
        """Less is pending: the queue blocks nobody once at most half of the limits is left."""
        if not self._over(of=2):
            self._warned = False
            self.blocking = True
            if self.full:
                self._set_full(False)

    def forget_types(self, known: Container[str]) -> None:
        if not self.full:
            self._types = {name: None for name in self._types if name in known}

    # --- the connection -----------------------------------------------------------

    def attach(self, connection: Connection) -> bool:
        """A connection has opened; True if the peer has taken something since the last frame. A client that
        stalled before blocks nobody again until it has."""
        self.connection = connection
        self.connections += 1
        progress = self.link.acknowledged, self.link.credit
        taken = progress != self.progress
        self.blocking = self.blocking or taken or not self._stalled
        self.progress = progress
        self._full_held = {name: None for name in self._full_held if self.link.events.holds(name)}
        self.full = self.policy is SlowConsumer.BLOCK and self.blocking and self._over()
        self._changed(self)
        return taken

    def stop_blocking(self, why: str) -> None:
        """Drop the oldest events from now on rather than hold their sources; `why` is a word or two."""
        self._stalled = why == STALLED or (self._stalled and not self.blocking)
        self.blocking = False
        self._why_dropping = f"{why}, oldest dropped"
        if self.policy is SlowConsumer.BLOCK:
            self._drop_oldest(self._why_dropping)
            for name in list(self._full_held):
                self._check_held(name)
        self._full_held.clear()
        self.full = False
        self._changed(self)

    def discard(self, why: str) -> None:
        self.drops.add(why, self.link.backlog_events)
        self.full = False
        self._full_held.clear()
        self._changed(self)

    def inspect(self) -> dict[str, Any]:
        link = self.link
        return {
            "connected": self.connected,
            "connections": self.connections,
            "frames_sent": link.sent,
            "frames_written": link.written,
            "frames_acknowledged": link.acknowledged,
            "frames_received": link.received,
            "queued_control": link.queued_control,
            "queued_events": link.events.count,
            "queued_bytes": link.events.bytes,
            "unacknowledged_events": link.retained_events,
            "unacknowledged_bytes": link.retained_bytes,
            "full": self.full,
            "full_types": self.full_types,
            "dropped": dict(self.drops.by_reason),
        }

"""The queue of one interface: its link, its connection, and the policy for a full queue.

Invariant: the queue is bounded. While the interface is connected, or was a moment ago, a full queue blocks
the sources of events (no credit is granted), except where a client chose to lose events or its session
instead. Once it has been disconnected for longer, the oldest events are dropped. Every dropped event is
counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.link.splitting import part, pieces
from covey.overlay.core.messages import Interface, Message
from covey.overlay.transport.pump import Pump

BLOCK_WHILE_AWAY_S = 2.0
"""How long the full queue of a disconnected interface goes on blocking the sources."""

SESSION_BYTES = 16 << 20
LINK_BYTES = 4 << 20
MAX_SESSION_CONTROL = 50_000
"""How many control messages may be pending for a connected client. Few are for one that reads: a refusal is a
message of its own, one acknowledgement answers all else."""


@dataclass(slots=True)
class DropCounts:
    """Dropped events, by reason."""

    by_reason: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, events: int) -> None:
        if events:
            self.by_reason[reason] = self.by_reason.get(reason, 0) + events


class InterfaceQueue:
    """One interface: its link, the pump of its connection if it has one, and the queue policy.

    `full` turns true when more than `max_events` or `max_bytes` are pending and the policy is to block; it
    turns false when half of that is left. `changed` is called when it turns.
    """

    def __init__(
        self,
        interface: Interface,
        link: Link,
        *,
        changed: Callable[[InterfaceQueue], None],
        policy: SlowConsumer = SlowConsumer.BLOCK,
        max_events: int | None = None,
        max_bytes: int = LINK_BYTES,
    ) -> None:
        self.interface = interface
        self.link = link
        self.pump: Pump | None = None
        self.greeting = False
        self.policy = policy
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.full = False
        self.blocking = True
        self.is_broker = interface.startswith("broker/")
        self.drops = DropCounts()
        self.connections = 0
        self.frames_received = 0
        self._changed = changed

    @property
    def connected(self) -> bool:
        return self.pump is not None

    # --- sending ----------------------------------------------------------------------------------

    def send(self, message: Message, *, own: bool = False) -> bool:
        """Queue a message as the policy says; False if the session must end, by the policy or because too
        many control messages are pending.

        `own` means that the interface itself published the events. Its full queue does not block it, or it
        might never read; so what it publishes to itself meanwhile is dropped, and counted.
        """
        alive = True
        if own and self.full and events_in(message):
            self._drop("queue full, its own dropped", events_in(message))
        elif events_in(message):
            alive = self._send_events(message)
        else:
            self.link.send(message)
            if self.pump is not None:
                alive = self.is_broker or self.link.backlog_control <= MAX_SESSION_CONTROL
            elif not self.greeting:
                self.link.give_up_control()
        if self.pump is not None:
            self.pump.wake()
        return alive

    def _send_events(self, message: Message) -> bool:
        link = self.link
        over = self._over(message)
        if over and self.policy is SlowConsumer.DISCONNECT:
            return False
        if over and self.policy is SlowConsumer.DROP_NEWEST:
            room = self._room(message)
            self._drop("queue full, newest dropped", events_in(message) - room)
            if not room:
                return True
            message = part(message, 0, room)
        for piece in pieces(message, link.max_frame_bytes):
            link.send(piece)
        if self.policy is SlowConsumer.DROP_OLDEST:
            self._drop_oldest("queue full, oldest dropped")
        elif self.policy is SlowConsumer.BLOCK:
            if not self.blocking:
                self._drop_oldest("out of reach, oldest dropped")
            elif not self.full and self._over():
                self._set_full(True)
        return True

    def _over(self, message: Message | None = None) -> bool:
        events = self.link.backlog_events + (0 if message is None else events_in(message))
        size = self.link.backlog_bytes + (0 if message is None else size_of(message))
        return size > self.max_bytes or (self.max_events is not None and events > self.max_events)

    def _room(self, message: Message) -> int:
        """How many events of a message fit, from its first on."""
        room = events_in(message)
        if self.max_events is not None:
            room = min(room, max(0, self.max_events - self.link.backlog_events))
        free_bytes = self.max_bytes - self.link.backlog_bytes
        while room and size_of(part(message, 0, room)) > free_bytes:
            room //= 2
        return room

    def _drop_oldest(self, reason: str) -> None:
        while self._over():
            dropped = self.link.drop_oldest()
            if dropped is None:
                return
            self._drop(reason, events_in(dropped))

    def _drop(self, reason: str, events: int) -> None:
        self.drops.add(reason, events)
        self.link.dropped += events

    def _set_full(self, full: bool) -> None:
        if self.full != full:
            self.full = full
            self._changed(self)

    # --- the connection -----------------------------------------------------------

    def frame_received(self) -> None:
        self.frames_received += 1
        if self.full:
            self.progressed()

    def progressed(self) -> None:
        """Unblock the sources if the peer has acknowledged enough."""
        link = self.link
        if self.full and (
            link.backlog_bytes <= self.max_bytes // 2
            and (self.max_events is None or link.backlog_events <= self.max_events // 2)
        ):
            self._set_full(False)

    def attach(self, pump: Pump) -> None:
        self.pump = pump
        self.connections += 1
        self.blocking = True
        if self.policy is SlowConsumer.BLOCK and self._over():
            self._set_full(True)

    def stop_blocking(self) -> None:
        """The interface has been disconnected for a while: drop events instead of blocking their sources."""
        if self.pump is None:
            self.blocking = False
            if self.policy is SlowConsumer.BLOCK:
                self._drop_oldest("out of reach, oldest dropped")
            self._set_full(False)

    def discard(self) -> None:
        """Count what is pending as dropped: the session has ended."""
        self.drops.add("session ended", self.link.backlog_events)
        self._set_full(False)

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
            "queued_events": link.queued_events,
            "unacknowledged_events": link.retained_events,
            "full": self.full,
            "dropped": dict(self.drops.by_reason),
        }

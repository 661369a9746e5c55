"""What a broker knows of each interface beyond routing: its link, its connection, and what is kept for it.

Invariant: what waits for an interface is bounded. While the interface is there, or was a moment
ago, a full queue holds back the sources of events (no credit is granted), except where a client chose to
lose events or its session instead; once it has been away for longer, the oldest events give way. Every event
given up is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.link.splitting import part, pieces
from covey.overlay.core.messages import Interface, Message
from covey.overlay.transport.limits import SlowConsumer
from covey.overlay.transport.pump import Pump

PATIENCE_S = 2.0
"""How long an interface that lost its connection may go on holding back the sources."""

SESSION_BYTES = 16 << 20
LINK_BYTES = 4 << 20
SESSION_CONTROL = 50_000
"""How many messages of control a client that is there may leave unread. Few wait for one that reads: what is
wrong is answered one by one, all else by one acknowledgement."""


@dataclass(slots=True)
class Losses:
    """Events given up, by reason."""

    events: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, events: int) -> None:
        if events:
            self.events[reason] = self.events.get(reason, 0) + events


class InterfaceQueue:
    """One interface: its link, the pump of its connection if it has one, and the queue policy.

    `full` turns true when more than `max_events` or `max_bytes` wait and the policy is to wait as well; it
    turns false when half of that is left. `changed` is told when it does.
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
        self.patient = True
        self.is_broker = interface.startswith("broker/")
        self.losses = Losses()
        self.connections = 0
        self.heard = 0
        self._changed = changed

    @property
    def connected(self) -> bool:
        return self.pump is not None

    # --- sending ----------------------------------------------------------------------------------

    def send(self, message: Message, *, own: bool = False) -> bool:
        """Queue a message as the policy says; False if the session is to end, by the policy or as too much
        control waits.

        `own` says that the events are the interface's own. Its full queue does not hold it back, or it could
        never get round to reading; so what it publishes to itself meanwhile is given up, and counted.
        """
        good = True
        if own and self.full and events_in(message):
            self._lose("queue full, its own dropped", events_in(message))
        elif events_in(message):
            good = self._send_events(message)
        else:
            self.link.send(message)
            if self.pump is not None:
                good = self.is_broker or self.link.backlog_control <= SESSION_CONTROL
            elif not self.greeting:
                self.link.give_up_control()
        if self.pump is not None:
            self.pump.wake()
        return good

    def _send_events(self, message: Message) -> bool:
        link = self.link
        over = self._over(message)
        if over and self.policy is SlowConsumer.DISCONNECT:
            return False
        if over and self.policy is SlowConsumer.DROP_NEWEST:
            room = self._room(message)
            self._lose("queue full, newest dropped", events_in(message) - room)
            if not room:
                return True
            message = part(message, 0, room)
        for piece in pieces(message, link.max_frame_bytes):
            link.send(piece)
        if self.policy is SlowConsumer.DROP_OLDEST:
            self._drop_oldest("queue full, oldest dropped")
        elif self.policy is SlowConsumer.BLOCK:
            if not self.patient:
                self._drop_oldest("out of reach, oldest dropped")
            elif not self.full and self._over():
                self._set_full(True)
        return True

    def _over(self, message: Message | None = None) -> bool:
        events = self.link.backlog_events + (0 if message is None else events_in(message))
        size = self.link.backlog_bytes + (0 if message is None else size_of(message))
        return size > self.max_bytes or (self.max_events is not None and events > self.max_events)

    def _room(self, message: Message) -> int:
        """For how many events of a message, from its first on, there is room."""
        room = events_in(message)
        if self.max_events is not None:
            room = min(room, max(0, self.max_events - self.link.backlog_events))
        left = self.max_bytes - self.link.backlog_bytes
        while room and size_of(part(message, 0, room)) > left:
            room //= 2
        return room

    def _drop_oldest(self, reason: str) -> None:
        while self._over():
            dropped = self.link.drop_oldest()
            if not dropped:
                return
            self._lose(reason, dropped)

    def _lose(self, reason: str, events: int) -> None:
        self.losses.add(reason, events)
        self.link.dropped += events

    def _set_full(self, full: bool) -> None:
        if self.full != full:
            self.full = full
            self._changed(self)

    # --- what happens to the connection -----------------------------------------------------------

    def hear(self) -> None:
        """A frame has arrived."""
        self.heard += 1
        if self.full:
            self.progressed()

    def progressed(self) -> None:
        """The peer has acknowledged something, perhaps."""
        link = self.link
        if self.full and (
            link.backlog_bytes <= self.max_bytes // 2
            and (self.max_events is None or link.backlog_events <= self.max_events // 2)
        ):
            self._set_full(False)

    def attach(self, pump: Pump) -> None:
        self.pump = pump
        self.connections += 1
        self.patient = True
        if self.policy is SlowConsumer.BLOCK and self._over():
            self._set_full(True)

    def lose_patience(self) -> None:
        """The interface has been without a connection for a while: it no longer holds back the sources."""
        if self.pump is None:
            self.patient = False
            if self.policy is SlowConsumer.BLOCK:
                self._drop_oldest("out of reach, oldest dropped")
            self._set_full(False)

    def discard(self) -> None:
        """The interface is gone for good, and with it what waited."""
        self.losses.add("session ended", self.link.backlog_events)
        self._set_full(False)

    def inspect(self) -> dict[str, Any]:
        link = self.link
        return {
            "connected": self.connected,
            "connections": self.connections,
            "frames_sent": link.sent,
            "frames_acknowledged": link.acknowledged,
            "frames_received": link.received,
            "queued_control": link.queued_control,
            "queued_events": link.queued_events,
            "unacknowledged_events": link.retained_events,
            "full": self.full,
            "dropped": dict(self.losses.events),
        }

"""Acknowledgements of new values in durable sessions, which leave once the values are on disk.

The commit that syncs the events of that moment syncs the values, too, so the updates of all sessions that
have come during one sync share the next. An acknowledgement is cumulative, so one per session waits.

Invariant: an update that was acknowledged is in force after any restart of its broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from covey.overlay.core.endpoint.durable_sessions import DurableSessions
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.messages import Acknowledge, Interface

_Held = dict[Interface, tuple[InterfaceQueue, tuple[int, int], Acknowledge]]


class HeldAcknowledgements:
    """Those of one endpoint. `queues` are those of its interfaces."""

    def __init__(self, sessions: DurableSessions, queues: Mapping[Interface, InterfaceQueue]) -> None:
        self._sessions = sessions
        self._queues = queues
        self._waiting: _Held = {}
        """Those that wait for the next sync, ..."""
        self._syncing: _Held = {}
        """... and for the one under way, ..."""
        self._written: frozenset[Interface] = frozenset()
        """... which has the values of these sessions."""

    def __len__(self) -> int:
        """How many wait for a sync that has not begun."""
        return len(self._waiting)

    def hold(self, queue: InterfaceQueue, message: Acknowledge) -> bool:
        """Whether it has to wait; then it is returned by `synced`."""
        interface = queue.interface
        if interface in self._sessions.changed:
            held = self._waiting
        elif interface in self._written:
            held = self._syncing
        else:
            return False
        held[interface] = queue, queue.link.life, message
        return True

    def begin_sync(self) -> None:
        """All new values are written, and on their way to the disk."""
        self._written = frozenset(self._sessions.changed)
        self._syncing, self._waiting = self._waiting, {}
        self._sessions.save_changed(synced=False)

    def synced(self) -> list[tuple[InterfaceQueue, Acknowledge]]:
        """They are there: what may leave now. A link that was reset meanwhile has sent all again."""
        syncing, self._syncing, self._written = self._syncing, {}, frozenset()
        return [
            (queue, message)
            for interface, (queue, life, message) in syncing.items()
            if self._queues.get(interface) is queue and queue.link.life == life
        ]

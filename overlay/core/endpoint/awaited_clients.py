"""The clients that a restarted broker waits for before it takes events: those of which its storage does not
know what they want, or what they publish.

These are the sessions that are not durable, where they subscribe; those that advertise types that are not
durable, since neighbours would end their interest in these; and durable ones with new values, which are
stored a moment after they take effect. Invariant: a durable session is stored as awaited before an update is
acknowledged, and until its values have been stored. Others are stored within `PROGRESS_NS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.storage import Storage
from covey.overlay.core.messages import Interface

UPDATING_NS = 60 * 1_000_000_000
"""A durable session without an update for so long is awaited no more: so its next updates cost no write."""


class AwaitedClients:
    """Those of one broker. `queues` are those of its interfaces."""

    def __init__(self, storage: Storage, core: Core, queues: Mapping[Interface, InterfaceQueue]) -> None:
        self._storage = storage
        self._core = core
        self._queues = queues
        self._types = frozenset(storage.types)
        self._saved = dict.fromkeys(storage.awaited())
        self._updated_ns: dict[Interface, int] = {}
        """By durable session, its last update."""

    def updated(self, interface: Interface, now_ns: int) -> None:
        """A durable session has changes that are not stored."""
        self._updated_ns[interface] = now_ns
        if interface not in self._saved:
            self._saved[interface] = None
            self._storage.save_awaited([interface], [])

    def save(self, now_ns: int) -> None:
        """Store who is awaited, when all values of durable sessions have been. O(sessions)."""
        quiet = [name for name, at_ns in self._updated_ns.items() if now_ns - at_ns >= UPDATING_NS]
        for interface in quiet:
            del self._updated_ns[interface]
        awaited = {name: None for name, queue in self._queues.items() if self._is_awaited(queue)}
        awaited |= dict.fromkeys(name for name in self._updated_ns if name in self._queues)
        added, removed = awaited.keys() - self._saved.keys(), self._saved.keys() - awaited.keys()
        if added or removed:
            self._storage.save_awaited(sorted(added), sorted(removed))
            self._saved = awaited

    def _is_awaited(self, queue: InterfaceQueue) -> bool:
        peer = self._core.tables.peers.get(queue.interface)
        if queue.is_broker or peer is None:
            return False
        if peer.subscriptions and not queue.durable:
            return True
        return any(name not in self._types for name in peer.advertised)

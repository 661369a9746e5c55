"""The clients that a restarted broker waits for before it takes events: those of which its storage does not
know what they want, or what they publish.

These are the sessions that are not durable, where they subscribe, and those that advertise types that are not
durable, since neighbours would end their interest in these. They are stored within `PROGRESS_NS`, at a cost
of those that have changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.storage import Storage
from covey.overlay.core.messages import Interface


class AwaitedClients:
    """Those of one broker. `queues` are those of its interfaces."""

    def __init__(self, storage: Storage, core: Core, queues: Mapping[Interface, InterfaceQueue]) -> None:
        self._storage = storage
        self._core = core
        self._queues = queues
        self._types = frozenset(storage.types)
        self._saved = dict.fromkeys(storage.awaited())
        self._touched = dict(self._saved)
        """Those that may be awaited or not, other than is saved."""

    def touch(self, interface: Interface) -> None:
        """The session of a client has changed, or ended."""
        self._touched[interface] = None

    def save(self, *, returning: bool) -> None:
        """Store who is awaited now. While those awaited since the restart are `returning`, they stay."""
        added, removed, kept = list[Interface](), list[Interface](), dict[Interface, None]()
        for interface in self._touched:
            if self._is_awaited(interface):
                if interface not in self._saved:
                    added.append(interface)
            elif interface in self._saved:
                if returning:
                    kept[interface] = None
                else:
                    removed.append(interface)
        self._touched = kept
        if added or removed:
            self._storage.save_awaited(added, removed)
            self._saved |= dict.fromkeys(added)
            for interface in removed:
                del self._saved[interface]

    def _is_awaited(self, interface: Interface) -> bool:
        queue, peer = self._queues.get(interface), self._core.tables.peers.get(interface)
        if queue is None or queue.is_broker or peer is None:
            return False
        if peer.subscriptions and not queue.durable:
            return True
        return any(name not in self._types for name in peer.advertised)

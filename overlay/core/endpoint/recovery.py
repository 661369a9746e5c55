"""A broker that has lost its state takes no events before it can route them.

A broker with storage recovers at every start, others if a neighbour or client shows that they had an earlier
life. Until neighbours, and for a moment clients, have sent their state, no credit is granted, and no SyncEnd
leaves.

A broker with storage also stores which clients it awaits, mostly none: sessions that are not durable and
subscribe, and those that advertise types that are not durable, since neighbours would end their interest in
these. They are stored within `PROGRESS_NS`, at a cost of the changed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.storage import Storage
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import Interface
from covey.overlay.core.routing.tables import Tables

NS_PER_S = 1_000_000_000
RECOVERY_NS = 10 * NS_PER_S
"""How long a restarted broker waits for its neighbours at most."""
CLIENTS_NS = 5 * NS_PER_S // 2
"""How long it waits for its clients, which reconnect within two seconds."""
_STARTING_NS = 60 * NS_PER_S
_LIFE_SHIFT = 32


class Recovery:
    """One life of a broker; sets the timers "clients" and "recovery"."""

    def __init__(self, life: int, now_ns: int, timers: Timers[tuple[str, Interface]]) -> None:
        self.going_on = False
        self._life = life
        self._started_ns = now_ns
        self._timers = timers
        self._over = False
        self._steady_ns = now_ns
        self._new_neighbour = False
        self._awaited: dict[Interface, None] | None = None
        """The clients to wait for, None if unknown."""

    def incarnation(self, number: int) -> int:
        """The incarnation of this life's link `number`, of 22 bits."""
        return self._life << _LIFE_SHIFT | number << 10 | 1

    def begins(self, hello: Hello, now_ns: int) -> bool:
        """Whether a recovery begins: the sender has linked to an earlier life of the broker, which has just
        started."""
        known = hello.peer_incarnation
        if not known or known >> _LIFE_SHIFT == self._life:
            return False
        if self.going_on or self._over or now_ns - self._started_ns >= _STARTING_NS:
            return False
        self.begin(now_ns)
        return True

    def begin(self, now_ns: int, awaited: Iterable[Interface] | None = None) -> None:
        """Wait for neighbours and clients from now on; only for `awaited` clients, if known."""
        self.going_on = True
        self._awaited = None if awaited is None else dict.fromkeys(awaited)
        if self._awaited is None or self._awaited:
            self._timers.set(("clients", ""), now_ns + CLIENTS_NS)
        self._timers.set(("recovery", ""), now_ns + RECOVERY_NS)

    def opened(self, now_ns: int) -> None:
        """Connections are possible from now on; reading the storage has taken until now."""
        self._started_ns = now_ns
        for what, period_ns in (("clients", CLIENTS_NS), ("recovery", RECOVERY_NS)):
            if (what, "") in self._timers:
                self._timers.set((what, ""), now_ns + period_ns)

    @property
    def awaits_clients(self) -> bool:
        return ("clients", "") in self._timers

    def returned(self, interface: Interface) -> bool:
        """A client has sent its whole state; True if it was the last awaited one."""
        if not self._awaited or interface not in self._awaited:
            return False
        del self._awaited[interface]
        if self._awaited or not self.awaits_clients:
            return False
        self._timers.cancel(("clients", ""))
        return True

    def neighbour_connected(self, hello: Hello) -> None:
        """A neighbour has connected; without an earlier link to this broker it may have restarted, too."""
        self._new_neighbour |= not hello.peer_incarnation

    def synchronised(self, now_ns: int) -> bool:
        """All neighbours have sent their state; True if clients had their time, after a neighbour's restart
        also those of the brokers behind it, unless its storage has whom it awaits."""
        if not self.awaits_clients and self._new_neighbour and self._awaited is None:
            self._new_neighbour = False
            self._timers.set(("clients", ""), now_ns + CLIENTS_NS)
        return not self.awaits_clients

    def wait(self, now_ns: int) -> None:
        self._timers.set(("recovery", ""), now_ns + RECOVERY_NS)

    def steady(self, now_ns: int) -> bool:
        """Whether it is over, and publishers had the time to send unacknowledged events again."""
        return not self.going_on and now_ns >= self._steady_ns

    def end(self, now_ns: int) -> None:
        self.going_on, self._over = False, True
        self._steady_ns = now_ns + CLIENTS_NS
        self._timers.cancel(("recovery", ""))


class AwaitedClients:
    """The clients that the next life of a broker is to await. `queues` are its interfaces."""

    def __init__(self, storage: Storage, tables: Tables, queues: Mapping[Interface, InterfaceQueue]) -> None:
        self._storage = storage
        self._tables = tables
        self._queues = queues
        self._types = frozenset(storage.types)
        self._saved = dict.fromkeys(storage.awaited())
        self._touched = dict(self._saved)
        """Clients whose saved state may be outdated."""

    def touch(self, interface: Interface) -> None:
        self._touched[interface] = None

    def save(self, *, returning: bool) -> None:
        """Store who is awaited now. Those awaited since the restart stay while they may be `returning`."""
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
        queue, peer = self._queues.get(interface), self._tables.peers.get(interface)
        if queue is None or queue.is_broker or peer is None:
            return False
        if peer.subscriptions and not queue.durable:
            return True
        return any(name not in self._types for name in peer.advertised)

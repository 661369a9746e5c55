"""The durable sessions of a broker: their subscriptions are stored, and restored after a restart.

A client's change is stored before it is acknowledged: added, removed and renewed subscriptions at once, new
values with the next sync, which all sessions share; one cumulative acknowledgement per session waits for it.
A session ends when its client ends it; one without subscriptions is not kept. Invariant: an acknowledged
update is in force after any restart of its broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.endpoint.ending import Validity
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.storage import (
    Arrival,
    Storage,
    StoredSession,
    StoredSubscription,
    SubscriptionChanges,
)
from covey.overlay.core.messages import (
    Acknowledge,
    Connect,
    Interface,
    Message,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.tables import Tables

_Held = dict[Interface, tuple[InterfaceQueue, tuple[int, int], Acknowledge]]


class DurableSessions:
    def __init__(self, storage: Storage, tables: Tables, validity: Validity) -> None:
        self._storage = storage
        self._validity = validity
        self._tables = tables
        self._pending: dict[Interface, dict[int, None]] = {}
        """By session, added, removed and renewed subscriptions that are not stored."""
        self._whole: dict[Interface, None] = {}
        self.changed: dict[Interface, dict[int, None]] = {}
        """By session, subscriptions whose values are not stored."""
        self._identities: dict[Interface, str] = {}
        self.waiting: _Held = {}
        """Acknowledgements that wait for the next sync."""
        self._syncing: _Held = {}
        """Acknowledgements that wait for the sync under way."""
        self._written: frozenset[Interface] = frozenset()

    def restore(
        self, handle: Callable[[Message, Interface, int], object], now_ns: int
    ) -> Iterator[tuple[Interface, StoredSession]]:
        """Yield the sessions of an earlier life, and pass each to the core (`handle`)."""
        stored = self._storage.sessions()
        empty = [interface for interface, session in stored.items() if not session.subscriptions]
        if empty:
            self._storage.forget_sessions(empty)
        for interface, session in stored.items():
            if not session.subscriptions:
                continue
            self._identities[interface] = session.identity
            yield interface, session
            handle(Connect(), interface, now_ns)
            for epoch, each in enumerate(session.subscriptions, 1):
                subscribe = Subscribe(epoch, each.subscription_id, each.filter, each.values)
                handle(subscribe, interface, now_ns)
                self._validity.restore(interface, each.subscription_id, each.ends_ns)

    def handled(self, interface: Interface, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, Subscribe | Unsubscribe):
                self._pending.setdefault(interface, {})[message.subscription_id] = None
            elif isinstance(message, SyncEnd):
                self._whole[interface] = None
            elif isinstance(message, Update):
                if message.valid_for_ns:
                    self._pending.setdefault(interface, {})[message.subscription_id] = None
                if message.values:
                    self.changed.setdefault(interface, {})[message.subscription_id] = None

    def expired(self, interface: Interface, subscription_id: int) -> None:
        self._pending.setdefault(interface, {})[subscription_id] = None

    def begin(self, interface: Interface, identity: str, arrival: Arrival | None = None) -> None:
        """A session begins, or has a new identity; `arrival` if it comes from another broker."""
        self._identities[interface] = identity
        self.save(interface, arrival)

    def save(self, interface: Interface, arrival: Arrival | None = None) -> None:
        self._forget_changes(interface)
        subscriptions = [self._stored(interface, each) for each in self._subscriptions(interface).values()]
        identity = self._identities.get(interface, "")
        self._storage.save_session(interface, identity, subscriptions, arrival)

    def save_pending(self) -> None:
        """Store what was added and removed; call before that is acknowledged."""
        for interface in list(self._whole):
            self.save(interface)
        self._save(self._pending)

    def save_changed(self, *, synced: bool = True) -> None:
        """Store all changes; values are on disk on return, or unless `synced` after the next sync."""
        self.save_pending()
        self._save(self.changed, synced=synced)

    def _save(self, changed: dict[Interface, dict[int, None]], *, synced: bool = True) -> None:
        if changed:
            changes = {interface: self._changes(interface, ids) for interface, ids in changed.items()}
            changed.clear()
            self._storage.save_subscriptions(changes, synced=synced)

    def _changes(self, interface: Interface, ids: Iterable[int]) -> SubscriptionChanges:
        subscriptions = self._subscriptions(interface)
        present = [self._stored(interface, subscriptions[each]) for each in ids if each in subscriptions]
        return present, [each for each in ids if each not in subscriptions]

    def _stored(self, interface: Interface, interest: Interest) -> StoredSubscription:
        number = interest.subscription_id
        ends_ns = self._validity.stored_ns(interface, number)
        return StoredSubscription(number, interest.filter, interest.values, ends_ns)

    def _subscriptions(self, interface: Interface) -> Mapping[int, Interest]:
        peer = self._tables.peers.get(interface)
        return {} if peer is None else peer.subscriptions

    def _forget_changes(self, interface: Interface) -> None:
        self._pending.pop(interface, None)
        self._whole.pop(interface, None)
        self.changed.pop(interface, None)

    def recalled(self, interface: Interface) -> list[Message]:
        """The subscriptions of a session, for a client that has lost them."""
        interests = self._subscriptions(interface)
        subscribes = [
            Subscribe(
                epoch,
                each.subscription_id,
                each.filter,
                each.values,
                self._validity.left_ns(interface, each.subscription_id),
            )
            for epoch, each in enumerate(interests.values(), 1)
            if each.subscription_id > 0
        ]
        return [SyncBegin(), *subscribes, SyncEnd(len(subscribes) + 1)]

    def forget(self, interface: Interface, moved_to: str = "", number: int = 0) -> None:
        self._forget_changes(interface)
        self._identities.pop(interface, None)
        if moved_to:
            self._storage.hand_over(interface, moved_to, number)
        else:
            self._storage.forget_sessions([interface])

    # --- acknowledgements that wait for a sync --------------------------------------------------------------

    def hold(self, queue: InterfaceQueue, message: Acknowledge) -> bool:
        """Whether an acknowledgement has to wait; then it is returned by `synced`."""
        interface = queue.interface
        if interface in self.changed:
            held = self.waiting
        elif interface in self._written:
            held = self._syncing
        else:
            return False
        held[interface] = queue, queue.link.life, message
        return True

    def begin_sync(self) -> None:
        """Write all new values; they are on disk at `synced`."""
        self._written = frozenset(self.changed)
        self._syncing, self.waiting = self.waiting, {}
        self.save_changed(synced=False)

    def synced(self, queues: Mapping[Interface, InterfaceQueue]) -> list[tuple[InterfaceQueue, Acknowledge]]:
        """The acknowledgements that may leave now. A link that was reset meanwhile has repeated all."""
        syncing, self._syncing, self._written = self._syncing, {}, frozenset()
        return [
            (queue, message)
            for interface, (queue, life, message) in syncing.items()
            if queues.get(interface) is queue and queue.link.life == life
        ]

"""The durable sessions of a broker: their subscriptions are stored, and there again after a restart.

Whatever a client changes is stored before it is acknowledged: what adds, removes or renews a subscription at
once, new values with the next sync (`held_acknowledgements.py`), since they come often. What has changed is
stored, not the whole session. A session is forgotten when its client ends it; one without subscriptions is
not kept either, since a goodbye may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.storage import (
    Storage,
    StoredSession,
    StoredSubscription,
    SubscriptionChanges,
)
from covey.overlay.core.endpoint.validity import Validity
from covey.overlay.core.messages import (
    Connect,
    Interface,
    Message,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unsubscribe,
    Update,
)


class DurableSessions:
    """Those of one broker."""

    def __init__(self, storage: Storage, core: Core, validity: Validity) -> None:
        self._storage = storage
        self._validity = validity
        self._core = core
        self._pending: dict[Interface, dict[int, None]] = {}
        """By session the subscriptions that come, go and are renewed, which is not stored."""
        self._whole: dict[Interface, None] = {}
        """Sessions that are stored as a whole next."""
        self.changed: dict[Interface, dict[int, None]] = {}
        """By session the subscriptions with values that are not stored."""
        self._identities: dict[Interface, str] = {}

    def restore(self, now_ns: int) -> Iterator[tuple[Interface, StoredSession]]:
        """Tell the core of the sessions of an earlier life, and name them."""
        stored = self._storage.sessions()
        empty = [interface for interface, session in stored.items() if not session.subscriptions]
        if empty:
            self._storage.forget_sessions(empty)
        for interface, session in stored.items():
            if not session.subscriptions:
                continue
            self._identities[interface] = session.identity
            yield interface, session
            self._core.handle(Connect(), interface, now_ns)
            for epoch, each in enumerate(session.subscriptions, 1):
                subscribe = Subscribe(epoch, each.subscription_id, each.filter, each.values)
                self._core.handle(subscribe, interface, now_ns)
                self._validity.restore(interface, each.subscription_id, each.ends_ns)

    def handled(self, interface: Interface, messages: Sequence[Message]) -> None:
        """The core has handled messages of a session."""
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
        """A subscription has ended."""
        self._pending.setdefault(interface, {})[subscription_id] = None

    def begin(self, interface: Interface, identity: str) -> None:
        """A session begins, or has a new identity; store it."""
        self._identities[interface] = identity
        self.save(interface)

    def save(self, interface: Interface) -> None:
        """Store a session as it is."""
        self._forget_changes(interface)
        subscriptions = [self._stored(interface, each) for each in self._subscriptions(interface).values()]
        self._storage.save_session(interface, self._identities.get(interface, ""), subscriptions)

    def save_pending(self) -> None:
        """Store what was added and removed. To be called before that is acknowledged."""
        for interface in list(self._whole):
            self.save(interface)
        self._save(self._pending)

    def save_changed(self, *, synced: bool = True) -> None:
        """Store what has changed; the new values are on disk, or unless `synced` after the next sync."""
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
        peer = self._core.tables.peers.get(interface)
        return {} if peer is None else peer.subscriptions

    def _forget_changes(self, interface: Interface) -> None:
        self._pending.pop(interface, None)
        self._whole.pop(interface, None)
        self.changed.pop(interface, None)

    def recalled(self, interface: Interface) -> list[Message]:
        """The subscriptions of a session for a client that does not know them."""
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
        """Its client has ended it, or it is another broker's."""
        self._forget_changes(interface)
        self._identities.pop(interface, None)
        if moved_to:
            self._storage.hand_over(interface, moved_to, number)
        else:
            self._storage.forget_sessions([interface])

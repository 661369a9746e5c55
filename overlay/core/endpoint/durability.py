"""What a broker's endpoint does for durable types and durable sessions, in one place: its storage is used
here alone.

Invariant: what is promised to be stored is acknowledged after it is on disk, and what is saved of the
progress of receivers is no more than they have acknowledged (`catching_up.py`, `durable_sessions.py`).
Progress is saved `PROGRESS_NS` after a change: what receivers have acknowledged since is sent again after a
crash, and dropped where it came before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from covey.overlay.core.endpoint.awaited_clients import AwaitedClients
from covey.overlay.core.endpoint.catching_up import CatchingUp
from covey.overlay.core.endpoint.core import Core
from covey.overlay.core.endpoint.durable_sessions import DurableSessions
from covey.overlay.core.endpoint.held_acknowledgements import HeldAcknowledgements
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.storage import Arrival, Record, Storage, message_of
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.endpoint.validity import Validity
from covey.overlay.core.messages import (
    UNSTORED,
    Acknowledge,
    Deliver,
    Interface,
    Message,
    Publish,
    Store,
)

PROGRESS_NS = 1_000_000_000


class Durability:
    """That of one endpoint: `queues` are those of its interfaces. Sets the timers "leaving", "progress",
    "restored" and, of an interface, "refill".
    """

    def __init__(
        self,
        storage: Storage,
        core: Core,
        queues: Mapping[Interface, InterfaceQueue],
        timers: Timers[tuple[str, Interface]],
        validity: Validity,
    ) -> None:
        self.storage = storage
        self._core = core
        self._timers = timers
        self.catching_up = CatchingUp(storage, queues)
        self.sessions = DurableSessions(storage, core, validity)
        self._acknowledgements = HeldAcknowledgements(self.sessions, queues)
        self._awaited = AwaitedClients(storage, core, queues)
        self.unconfirmed: dict[Interface, Arrival] = {}
        """Of sessions that were being handed over in an earlier life."""
        self._arrived = False
        """Whether the frames that are being handled have brought events of a durable type."""
        self._leaving: dict[Interface, None] = {}
        """Those whose progress is saved in this turn of the loop, ..."""
        self._left: dict[Interface, int] = {}
        """... and after how many syncs again."""

    # --- interfaces -----------------------------------------------------------------------------------------

    def restore_sessions(self, queue: Callable[[Interface], InterfaceQueue], clock_ns: int) -> None:
        """The durable sessions of an earlier life, with a new `queue` for each, and what it had received."""
        for name, durable in self._core.tables.durable.items():
            durable.watermarks.sequences.update(self.storage.watermarks(name))
        for interface, session in self.sessions.restore(clock_ns):
            restored = queue(interface)
            restored.identity = session.identity
            if session.arrival is not None:
                restored.copies = self.catching_up.copies(session.arrival)
                if session.arrival.origin:
                    self.unconfirmed[interface] = session.arrival
            self.restore(restored)

    def restore_keys(self, tell_core: Callable[[Message, Interface], None], until_ns: int) -> None:
        """The last events of keys of an earlier life; until then their publishers may come back."""
        for name in self.storage.types:
            for message in self.storage.published(name):
                tell_core(message, "")
                self._timers.set(("restored", ""), until_ns)

    def restore(self, queue: InterfaceQueue) -> None:
        """An interface that may have records to come from an earlier life."""
        self.catching_up.restore(queue)

    def joined(self, queue: InterfaceQueue) -> None:
        """A broker becomes a neighbour."""
        self.catching_up.begin(queue)

    def opened(self, queue: InterfaceQueue) -> None:
        """A durable session begins."""
        self.sessions.begin(queue.interface, queue.identity)
        self.catching_up.begin(queue)

    def recalled(self, interface: Interface) -> list[Message]:
        """For a client that has started anew: the subscriptions of its durable session."""
        return self.sessions.recalled(interface)

    def ended(self, queue: InterfaceQueue, now_ns: int) -> None:
        """An interface ends here."""
        if not queue.is_broker:
            self._awaited.touch(queue.interface)
            self._save_soon(now_ns)
        if queue.durable:
            self.sessions.forget(queue.interface, *queue.moved_to)
            self.catching_up.forget(queue)

    def handled(self, queue: InterfaceQueue, messages: Sequence[Message], now_ns: int) -> None:
        """The core has handled control messages of a client."""
        if queue.durable:
            self.sessions.handled(queue.interface, messages)
        self._awaited.touch(queue.interface)
        self._save_soon(now_ns)

    def holds(self, queue: InterfaceQueue, message: Acknowledge) -> bool:
        """Whether an acknowledgement waits for what it acknowledges to be on disk; then `synced` returns
        it."""
        return not queue.is_broker and queue.durable and self._acknowledgements.hold(queue, message)

    def expired(self, queue: InterfaceQueue, subscription_id: int, now_ns: int) -> None:
        """A subscription of a client has ended."""
        if queue.durable:
            self.sessions.expired(queue.interface, subscription_id)
        self._awaited.touch(queue.interface)
        self._save_soon(now_ns)

    # --- events ---------------------------------------------------------------------------------------------

    def arrives(self, type_name: str) -> None:
        """Events of a type are about to be handled."""
        self._arrived = self._arrived or self.catching_up.is_durable(type_name)

    def hold(self, queue: InterfaceQueue, received: int) -> None:
        """Frames from an interface were handled: acknowledge none after this one before its events are on
        disk. The changes that they have brought are stored at once."""
        self.sessions.save_pending()
        if self._arrived:
            self._arrived = False
            self.catching_up.hold(queue, received)

    def store(self, action: Store) -> list[tuple[InterfaceQueue, Publish | Deliver]]:
        """Store events for the receivers that are promised them, and queue them; returns what the others
        get."""
        others = self.catching_up.store(action)
        return [
            (queue, message_of(Record(UNSTORED, action.batch, ()), receiver)) for queue, receiver in others
        ]

    def refill(self, queue: InterfaceQueue, now_ns: int) -> None:
        """Read for an interface that is behind; again at once while it has room."""
        if self.catching_up.refill(queue):
            self._timers.set(("refill", queue.interface), now_ns)

    def backlog(self, queue: InterfaceQueue) -> int:
        """Of a durable interface: records since the first that it has not acknowledged."""
        return self.catching_up.backlog(queue)

    # --- syncing --------------------------------------------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        return self.catching_up.wants_sync(bool(self._acknowledgements))

    def begin_sync(self) -> None:
        self._acknowledgements.begin_sync()
        self.catching_up.begin_sync()

    def synced(self, now_ns: int) -> list[tuple[InterfaceQueue, Acknowledge]]:
        """What was stored when it began is on disk: the acknowledgements that have waited for it."""
        self.catching_up.synced()
        if self._left:
            self._leaving |= dict.fromkeys(self._left)
            self._left = {interface: syncs - 1 for interface, syncs in self._left.items() if syncs > 1}
            self._timers.set(("leaving", ""), now_ns)
        self._save_soon(now_ns)
        return self._acknowledgements.synced()

    def _save_soon(self, now_ns: int) -> None:
        if ("progress", "") not in self._timers:
            self._timers.set(("progress", ""), now_ns + PROGRESS_NS)

    def disconnected(self, interface: Interface, now_ns: int) -> None:
        """Have its progress saved in this turn of the loop, and again once what was stored by now is on disk:
        no progress goes beyond the disk."""
        self._leaving[interface] = None
        self._left[interface] = 2  # the sync under way, if any, and the next one
        self._timers.set(("leaving", ""), now_ns)

    def save_leaving(self) -> None:
        """Store how far those are that have lost their connection."""
        leaving, self._leaving = self._leaving, {}
        self.catching_up.save_cursors_of(leaving)

    def save_progress(self, now_ns: int) -> None:
        """Store how far receivers are, and what clients have changed."""
        self.sessions.save_changed()
        self._awaited.save(returning=("clients", "") in self._timers)
        self.catching_up.save_cursors()

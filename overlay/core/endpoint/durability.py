"""What a broker's endpoint stores of durable types and sessions, and how it reads it again.

An interface whose queue has no room for a stored record is *behind* in its type: later records are only
stored. Once it has taken half of what waits, records are read from its place until the end of the log. So
durable events hold no publisher, are never dropped for a slow reader, and take `QUEUED_BYTES` per interface.
A session whose client is away is behind from the first record on; one that was handed over, until it has its
copies (`InterfaceQueue.copies`).

Invariants: a frame that brought events of a durable type is acknowledged when every record appended by then
is on disk. A receiver's cursor, and its saved progress, is never ahead of what it has acknowledged. Progress
is saved `PROGRESS_NS` after a change; what was acknowledged since is sent again after a crash, and dropped by
the receiver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from covey.overlay.core.endpoint.durable_sessions import DurableSessions
from covey.overlay.core.endpoint.ending import Validity
from covey.overlay.core.endpoint.interface_queue import Copies, InterfaceQueue
from covey.overlay.core.endpoint.recovery import AwaitedClients
from covey.overlay.core.endpoint.storage import Arrival, Record, Storage, message_of, parts_of
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.messages import (
    ENDED,
    KEYS,
    UNSTORED,
    Acknowledge,
    Deliver,
    Interface,
    Message,
    Publish,
    Receiver,
    Store,
)
from covey.overlay.core.routing.tables import Tables

QUEUED_BYTES = 2 << 20
READ_BYTES = 256 << 10
PROGRESS_NS = 1_000_000_000


class Durability:
    """What an endpoint stores, and how far its interfaces, the `queues`, have read it. Sets the timers
    "leaving", "progress", "restored" and, of an interface, "refill"."""

    def __init__(
        self,
        storage: Storage,
        tables: Tables,
        queues: Mapping[Interface, InterfaceQueue],
        timers: Timers[tuple[str, Interface]],
        validity: Validity,
    ) -> None:
        self.storage = storage
        self.sessions = DurableSessions(storage, tables, validity)
        self.unconfirmed: dict[Interface, Arrival] = {}
        """Handovers to this broker that an earlier life had begun."""
        self._tables, self._queues, self._timers = tables, queues, timers
        self._awaited = AwaitedClients(storage, tables, queues)
        self._types = dict.fromkeys(storage.types)
        self._arrived = False
        """Whether the current frames have brought events of a durable type."""
        self._held: dict[Interface, None] = {}
        """Interfaces with frames whose acknowledgement waits for a sync."""
        self._syncing: list[tuple[InterfaceQueue, tuple[int, int], int]] | None = None
        self._saved: dict[tuple[Interface, str], int] = {}
        self._leaving: dict[Interface, None] = {}
        """Interfaces whose progress is saved in this turn of the loop."""
        self._left: dict[Interface, int] = {}
        """After how many syncs their progress is saved again."""

    # --- interfaces -----------------------------------------------------------------------------------------

    def restore_sessions(
        self,
        handle: Callable[[Message, Interface, int], object],
        queue: Callable[[Interface], InterfaceQueue],
        clock_ns: int,
    ) -> None:
        """Pass the durable sessions of an earlier life to the core (`handle`), with a new `queue` each."""
        for name, durable in self._tables.durable.items():
            durable.sequences.update(self.storage.watermarks(name))
        for interface, session in self.sessions.restore(handle, clock_ns):
            restored = queue(interface)
            restored.identity = session.identity
            if session.arrival is not None:
                restored.copies = self.copies(session.arrival)
                if session.arrival.origin:
                    self.unconfirmed[interface] = session.arrival
            self.restore(restored)

    def restore_keys(self, tell_core: Callable[[Message, Interface], None], until_ns: int) -> None:
        """Restore last events of keys, whose publishers may come back until `until_ns`."""
        for name in self.storage.types:
            for message in self.storage.published(name):
                tell_core(message, "")
                self._timers.set(("restored", ""), until_ns)

    def opened(self, queue: InterfaceQueue, arrival: Arrival | None = None) -> None:
        """Stores its cursors first: a durable session must not get records of an earlier one of its name."""
        self.begin(queue)
        self.sessions.begin(queue.interface, queue.identity, arrival)

    def ended(self, queue: InterfaceQueue, now_ns: int) -> None:
        if not queue.is_broker:
            self._awaited.touch(queue.interface)
            self._save_soon(now_ns)
        if queue.durable:
            self.sessions.forget(queue.interface, *queue.moved_to)
            self.forget(queue)

    def handled(self, queue: InterfaceQueue, messages: Sequence[Message], now_ns: int) -> None:
        if queue.durable:
            self.sessions.handled(queue.interface, messages)
        self._awaited.touch(queue.interface)
        self._save_soon(now_ns)

    def holds(self, queue: InterfaceQueue, message: Acknowledge) -> bool:
        """Whether an acknowledgement waits for a sync; then `synced` returns it."""
        return not queue.is_broker and queue.durable and self.sessions.hold(queue, message)

    def expired(self, queue: InterfaceQueue, subscription_id: int, now_ns: int) -> None:
        if queue.durable:
            self.sessions.expired(queue.interface, subscription_id)
        self._awaited.touch(queue.interface)
        self._save_soon(now_ns)

    # --- storing --------------------------------------------------------------------------------------------

    def arrives(self, type_name: str) -> None:
        self._arrived = self._arrived or type_name in self._types

    def store(self, action: Store) -> list[tuple[InterfaceQueue, Publish | Deliver]]:
        """Store events for their durable receivers and queue them; returns what the others get."""
        promised: list[Receiver] = []
        others: list[tuple[InterfaceQueue, Publish | Deliver]] = []
        for receiver in action.receivers:
            queue = self._queues.get(receiver.interface)
            if receiver.interface.startswith((KEYS, ENDED)) or (queue is not None and queue.durable):
                promised.append(receiver)
            elif queue is not None:
                others.append((queue, message_of(Record(UNSTORED, action.batch, ()), receiver)))
        for batch, receivers in parts_of(action.batch, promised) if promised else ():
            record = Record(self.storage.append(batch, receivers), batch, receivers)
            for receiver in receivers:
                queue = self._queues.get(receiver.interface)
                if queue is not None:
                    self._send(queue, record, receiver)
        return others

    def _send(self, queue: InterfaceQueue, record: Record, receiver: Receiver) -> None:
        name = record.batch.event_type.name
        if name in queue.behind:
            return
        away = not queue.connected and not queue.is_broker
        if away or queue.link.backlog_bytes >= QUEUED_BYTES:
            queue.behind[name] = record.offset
        else:
            queue.send_stored(message_of(record, receiver))

    def hold(self, queue: InterfaceQueue, received: int) -> None:
        """Acknowledge no frame after `received` before its events are on disk; stores the changes that it
        brought at once."""
        self.sessions.save_pending()
        if self._arrived:
            self._arrived = False
            if self.storage.unsynced or self._syncing is not None:
                queue.link.hold(received)
                self._held[queue.interface] = None

    # --- syncing --------------------------------------------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        waits = self._held or self.storage.unsynced or self.sessions.waiting
        return self._syncing is None and bool(waits)

    def begin_sync(self) -> None:
        self.sessions.begin_sync()
        held = [self._queues[name] for name in self._held if name in self._queues]
        self._held = {}
        self._syncing = [(queue, queue.link.life, queue.link.received) for queue in held]

    def synced(self, now_ns: int) -> list[tuple[InterfaceQueue, Acknowledge]]:
        """Acknowledge frames stored before `begin_sync`; returns the acknowledgements that waited for it."""
        syncing, self._syncing = self._syncing or [], None
        for queue, life, received in syncing:
            if self._queues.get(queue.interface) is queue and queue.link.life == life:
                queue.link.release(received if queue.interface in self._held else None)
                queue.wake()
        if self._left:
            self._leaving |= dict.fromkeys(self._left)
            self._left = {interface: syncs - 1 for interface, syncs in self._left.items() if syncs > 1}
            self._timers.set(("leaving", ""), now_ns)
        self._save_soon(now_ns)
        return self.sessions.synced(self._queues)

    # --- reading --------------------------------------------------------------------------------------------

    def restore(self, queue: InterfaceQueue) -> None:
        """Read everything from the cursors of an earlier life's interface on."""
        for name in self._types:
            cursor = self.storage.cursor(queue.interface, name)
            self._saved[queue.interface, name] = cursor
            if cursor < self.storage.end(name) or name in queue.copies:
                queue.behind[name] = cursor

    def begin(self, queue: InterfaceQueue) -> None:
        """A session or a neighbour begins, without the records of an earlier one of its name."""
        cursors = {
            (queue.interface, name): min(self._cursor(queue, name), self.storage.synced(name))
            for name in self._types
        }
        self._saved |= cursors
        self.storage.save_cursors(cursors)

    def forget(self, queue: InterfaceQueue) -> None:
        receivers = [queue.interface, *(each.receiver for each in queue.copies.values())]
        for receiver in receivers:
            for name in self._types:
                self._saved.pop((receiver, name), None)

    def copies(self, arrival: Arrival) -> dict[str, Copies]:
        return {
            name: Copies(arrival.receiver, self.storage.cursor(arrival.receiver, name), end)
            for name, end in arrival.ends.items()
            if name in self._types
        }

    def begin_behind(self, queue: InterfaceQueue) -> None:
        queue.behind = {name: self.storage.end(name) for name in self._types}

    def has_all(self, queue: InterfaceQueue, ends: Mapping[str, int]) -> bool:
        """Whether an interface has acknowledged all its records below these offsets."""
        return all(self._cursor(queue, name) >= end for name, end in ends.items() if name in self._types)

    def ends(self) -> dict[str, int]:
        return {name: self.storage.end(name) for name in self._types}

    def starts(self, queue: InterfaceQueue) -> dict[str, int]:
        """By type, where to begin with `read_on`: at the first unacknowledged record, or before."""
        starts = {name: self._cursor(queue, name) for name in self._types}
        return starts | {name: -1 - self._copied(queue, name, each) for name, each in queue.copies.items()}

    def read_on(self, queue: InterfaceQueue, name: str, place: int) -> tuple[list[Deliver], int, int]:
        """For a session that moves: messages from a place on, the next place, lost records. Below 0: in its
        copies."""
        receiver, offset = queue.interface, place
        copies = queue.copies.get(name)
        if place < 0:
            if copies is None or -1 - place >= copies.end:
                return [], self._cursor(queue, name), 0
            receiver, offset = copies.receiver, -1 - place
        records, offset, lost = self.storage.read(name, offset, READ_BYTES, receiver)
        messages = [message_of(each, to, late=True) for each in records for to in each.receivers]
        delivers = [each for each in messages if isinstance(each, Deliver)]
        return delivers, offset if place >= 0 else -1 - offset, lost

    def refill(self, queue: InterfaceQueue, now_ns: int) -> None:
        """Read records for an interface that is behind, while it has room."""
        if self._refill(queue):
            self._timers.set(("refill", queue.interface), now_ns)

    def _refill(self, queue: InterfaceQueue) -> bool:
        """True if there may be room for more."""
        link = queue.link
        if not queue.behind or not queue.connected or link.backlog_bytes > QUEUED_BYTES // 2:
            return False
        name, offset = next(iter(queue.behind.items()))
        if name in queue.copies:
            return self._refill_copies(queue, name, queue.copies[name])
        ends = queue.ends.get(name, ())
        for each in ends:
            each.until = self.storage.end(name) if each.until is None else each.until
        offset = self._read(queue, name, offset, queue.interface)
        if ends:
            self._end(queue, name, offset)
        del queue.behind[name]
        if offset < self.storage.end(name):
            queue.behind[name] = offset  # behind the other types
        return bool(queue.behind) and link.backlog_bytes <= QUEUED_BYTES // 2

    def _read(self, queue: InterfaceQueue, name: str, offset: int, receiver: Interface) -> int:
        records, offset, lost = self.storage.read(name, offset, READ_BYTES, receiver)
        if lost:
            queue.lost(name, lost, records[0].batch.ingress_ns if records else 0)
        for record in records:
            for each in record.receivers:
                queue.send_stored(message_of(record, each, late=True))
        return offset

    @staticmethod
    def _end(queue: InterfaceQueue, name: str, offset: int) -> None:
        """Send the ends of subscriptions whose events below `offset` are all read."""
        ends = queue.ends[name]
        while ends and ends[0].until is not None and ends[0].until <= offset:
            end = ends.popleft()
            if end.life == queue.link.life:  # else the client has repeated its subscriptions since
                queue.link.send(end.message)
                queue.wake()
        if not ends:
            del queue.ends[name]

    def _refill_copies(self, queue: InterfaceQueue, name: str, copies: Copies) -> bool:
        """As `refill`, from another broker's records; its own records follow once all are acknowledged."""
        queue.behind[name] = queue.behind.pop(name)  # behind the other types
        if copies.next < copies.end:
            copies.next = self._read(queue, name, copies.next, copies.receiver)
            return True
        if queue.link.stored.get(name, -1) >= queue.last_stored.get(name, -1):
            del queue.copies[name]
            self._saved.pop((copies.receiver, name), None)
            queue.link.stored.pop(name, None)
            queue.last_stored.pop(name, None)
            if queue.copies:
                self.storage.save_cursors({(copies.receiver, name): copies.end})
            else:
                self.storage.save_arrival(queue.interface, None)
            return True
        unread = {other for other, each in queue.copies.items() if each.next < each.end}
        return any(other not in queue.copies or other in unread for other in queue.behind)

    # --- progress -------------------------------------------------------------------------------------------

    def _save_soon(self, now_ns: int) -> None:
        if ("progress", "") not in self._timers:
            self._timers.set(("progress", ""), now_ns + PROGRESS_NS)

    def disconnected(self, interface: Interface, now_ns: int) -> None:
        """Save its progress now, and again once what is stored by now is on disk, beyond which no progress
        goes."""
        self._leaving[interface] = None
        self._left[interface] = 2  # the sync under way, if any, and the next one
        self._timers.set(("leaving", ""), now_ns)

    def save_leaving(self) -> None:
        leaving, self._leaving = self._leaving, {}
        cursors: dict[tuple[Interface, str], int] = {}
        for interface in leaving:
            queue = self._queues.get(interface)
            if queue is not None and queue.durable:
                self._note_cursors(queue, cursors)
        self.storage.save_cursors(cursors)

    def save_progress(self) -> None:
        self.sessions.save_changed()
        self._awaited.save(returning=("clients", "") in self._timers)
        self.save_cursors()

    def save_cursors(self) -> None:
        """Cost: the interfaces times the durable types."""
        cursors: dict[tuple[Interface, str], int] = {}
        least = {name: self.storage.synced(name) for name in self._types}
        for interface, queue in self._queues.items():
            if queue.durable:
                self._note_cursors(queue, cursors)
                for name in self._types:
                    least[name] = min(least[name], self._saved[interface, name])
        self.storage.save_cursors(cursors)
        for name, before in least.items():
            self.storage.trim(name, before)

    def _note_cursors(self, queue: InterfaceQueue, changed: dict[tuple[Interface, str], int]) -> None:
        for name in self._types:
            key, cursor = (queue.interface, name), min(self._cursor(queue, name), self.storage.synced(name))
            if self._saved.get(key) != cursor:
                self._saved[key] = changed[key] = cursor
            copies = queue.copies.get(name)
            if copies is not None:
                key, cursor = (copies.receiver, name), self._copied(queue, name, copies)
                if self._saved.get(key) != cursor:
                    self._saved[key] = changed[key] = cursor

    def backlog(self, queue: InterfaceQueue) -> int:
        """Records stored since the first unacknowledged one. Cost: the durable types."""
        return sum(self.storage.end(name) - self._cursor(queue, name) for name in self._types)

    def _copied(self, queue: InterfaceQueue, name: str, copies: Copies) -> int:
        stored = queue.link.stored.get(name, -1)
        if stored < queue.last_stored.get(name, -1):
            return max(stored + 1, self.storage.cursor(copies.receiver, name))
        return copies.next

    def _cursor(self, queue: InterfaceQueue, name: str) -> int:
        if name in queue.copies:
            return queue.behind[name]
        stored, last = queue.link.stored.get(name, -1), queue.last_stored.get(name, -1)
        if stored < last:  # some are on their way
            return max(stored + 1, self._saved.get((queue.interface, name), 0))
        return queue.behind.get(name, self.storage.end(name))

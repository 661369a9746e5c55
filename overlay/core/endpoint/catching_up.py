"""The durable types of a broker's endpoint: stores events, and reads them again for who is behind.

An interface whose queue has no room for a stored record is *behind* in its type: what comes after is stored
and no more. Once it has taken half of what waits, records are read from where it is, and when it has reached
the end of the log it is no longer behind. So durable events hold no publisher, are never dropped for a slow
reader, and take memory for `QUEUED_BYTES` per interface; the log's retention bounds the rest. A session whose
client is away is behind from the first record on: thousands of them may be, and none takes memory.

A session that was handed over by another broker is behind from its first own record on, until it has what was
stored for it there (`InterfaceQueue.copies`).

Invariant: a frame that brought events of a durable type is acknowledged when every record that was appended
by then is on disk. A receiver's cursor is never ahead of what it has acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covey.overlay.core.endpoint.interface_queue import Copies, InterfaceQueue
from covey.overlay.core.endpoint.storage import Arrival, Record, Storage, message_of
from covey.overlay.core.messages import ENDED, KEYS, Deliver, Interface, Receiver, Store

QUEUED_BYTES = 2 << 20
READ_BYTES = 256 << 10


class CatchingUp:
    """The durable side of one endpoint. `queues` are those of its interfaces."""

    def __init__(self, storage: Storage, queues: Mapping[Interface, InterfaceQueue]) -> None:
        self._storage = storage
        self._queues = queues
        self._types = dict.fromkeys(storage.types)
        self._held: dict[Interface, None] = {}
        """The interfaces with frames whose acknowledgement waits for a sync."""
        self._syncing: list[tuple[InterfaceQueue, tuple[int, int], int]] | None = None
        self._saved: dict[tuple[Interface, str], int] = {}

    # --- storing --------------------------------------------------------------------------------------------

    def store(self, action: Store) -> list[tuple[InterfaceQueue, Receiver]]:
        """Store a batch for the receivers that are promised it, and queue it for them; returns the others."""
        promised: list[Receiver] = []
        others: list[tuple[InterfaceQueue, Receiver]] = []
        for receiver in action.receivers:
            queue = self._queues.get(receiver.interface)
            if receiver.interface.startswith((KEYS, ENDED)) or (queue is not None and queue.durable):
                promised.append(receiver)
            elif queue is not None:
                others.append((queue, receiver))
        if promised:
            offset = self._storage.append(action.batch, promised)
            record = Record(offset, action.batch, promised)
            for receiver in promised:
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

    def is_durable(self, type_name: str) -> bool:
        return type_name in self._types

    def hold(self, queue: InterfaceQueue, received: int) -> None:
        """Frames after this one have brought durable events: they are acknowledged once these are on disk."""
        if self._storage.unsynced or self._syncing is not None:
            queue.link.hold(received)
            self._held[queue.interface] = None

    # --- syncing --------------------------------------------------------------------------------------------

    def wants_sync(self, awaited: bool = False) -> bool:
        """Whether a sync is to begin, perhaps since something else waits for one."""
        return self._syncing is None and (awaited or bool(self._held) or self._storage.unsynced)

    def begin_sync(self) -> None:
        """What was appended so far is on its way to the disk."""
        held = [self._queues[name] for name in self._held if name in self._queues]
        self._held = {}
        self._syncing = [(queue, queue.link.life, queue.link.received) for queue in held]

    def synced(self) -> None:
        """What was appended before `begin_sync` is on disk: acknowledge what brought it."""
        syncing, self._syncing = self._syncing or [], None
        for queue, life, received in syncing:
            if self._queues.get(queue.interface) is queue and queue.link.life == life:
                queue.link.release(received if queue.interface in self._held else None)
                queue.wake()

    # --- reading --------------------------------------------------------------------------------------------

    def restore(self, queue: InterfaceQueue) -> None:
        """An interface of an earlier life: everything from its cursors on is read again."""
        for name in self._types:
            cursor = self._storage.cursor(queue.interface, name)
            self._saved[queue.interface, name] = cursor
            if cursor < self._storage.end(name) or name in queue.copies:
                queue.behind[name] = cursor

    def begin(self, queue: InterfaceQueue) -> None:
        """A session or a neighbour begins: what was stored for an earlier one of its name is not for it."""
        cursors = {
            (queue.interface, name): min(self._cursor(queue, name), self._storage.synced(name))
            for name in self._types
        }
        self._saved |= cursors
        self._storage.save_cursors(cursors)

    def forget(self, queue: InterfaceQueue) -> None:
        """An interface ends."""
        receivers = [queue.interface, *(each.receiver for each in queue.copies.values())]
        for receiver in receivers:
            for name in self._types:
                self._saved.pop((receiver, name), None)

    def copies(self, arrival: Arrival) -> dict[str, Copies]:
        """What a session has brought and not got yet."""
        return {
            name: Copies(arrival.receiver, self._storage.cursor(arrival.receiver, name), end)
            for name, end in arrival.ends.items()
            if name in self._types
        }

    def begin_behind(self, queue: InterfaceQueue) -> None:
        """What comes for a session from now on is stored alone."""
        queue.behind = {name: self._storage.end(name) for name in self._types}

    def has_all(self, queue: InterfaceQueue, ends: Mapping[str, int]) -> bool:
        """Whether an interface has acknowledged all records below these offsets that are for it."""
        return all(self._cursor(queue, name) >= end for name, end in ends.items() if name in self._types)

    def ends(self) -> dict[str, int]:
        """By type the offset of the next record."""
        return {name: self._storage.end(name) for name in self._types}

    def starts(self, queue: InterfaceQueue) -> dict[str, int]:
        """By type where to begin with `read_on`: at the first record that an interface has not acknowledged,
        or a lower one."""
        starts = {name: self._cursor(queue, name) for name in self._types}
        return starts | {name: -1 - self._copied(queue, name, each) for name, each in queue.copies.items()}

    def read_on(self, queue: InterfaceQueue, name: str, place: int) -> tuple[list[Deliver], int, int]:
        """Of a session, some messages from a place on, the next place, and how many records were lost. Places
        below 0 are those of its copies."""
        receiver, offset = queue.interface, place
        copies = queue.copies.get(name)
        if place < 0:
            if copies is None or -1 - place >= copies.end:
                return [], self._cursor(queue, name), 0
            receiver, offset = copies.receiver, -1 - place
        records, offset, lost = self._storage.read(name, offset, READ_BYTES, receiver)
        messages = [message_of(each, to, late=True) for each in records for to in each.receivers]
        delivers = [each for each in messages if isinstance(each, Deliver)]
        return delivers, offset if place >= 0 else -1 - offset, lost

    def refill(self, queue: InterfaceQueue) -> bool:
        """Read records for an interface that is behind, if it has room; whether it may have room for more."""
        link = queue.link
        if not queue.behind or not queue.connected or link.backlog_bytes > QUEUED_BYTES // 2:
            return False
        name, offset = next(iter(queue.behind.items()))
        if name in queue.copies:
            return self._refill_copies(queue, name, queue.copies[name])
        ends = queue.ends.get(name, ())
        for each in ends:
            each.until = self._storage.end(name) if each.until is None else each.until
        records, offset, lost = self._storage.read(name, offset, READ_BYTES, queue.interface)
        if lost:
            queue.lost(name, lost, records[0].batch.ingress_ns if records else 0)
        for record in records:
            for receiver in record.receivers:
                queue.send_stored(message_of(record, receiver, late=True))
        if ends:
            self._end(queue, name, offset)
        del queue.behind[name]
        if offset < self._storage.end(name):
            queue.behind[name] = offset  # behind the other types
        return bool(queue.behind) and link.backlog_bytes <= QUEUED_BYTES // 2

    @staticmethod
    def _end(queue: InterfaceQueue, name: str, offset: int) -> None:
        """Send the ends of subscriptions of which all events are read, below an offset."""
        ends = queue.ends[name]
        while ends and ends[0].until is not None and ends[0].until <= offset:
            end = ends.popleft()
            if end.life == queue.link.life:  # else the client has sent all its subscriptions since
                queue.link.send(end.message)
        if not ends:
            del queue.ends[name]

    def _refill_copies(self, queue: InterfaceQueue, name: str, copies: Copies) -> bool:
        """As `refill`, of what was stored at another broker; its own records follow once all is
        acknowledged."""
        queue.behind[name] = queue.behind.pop(name)  # behind the other types
        if copies.next < copies.end:
            records, copies.next, lost = self._storage.read(name, copies.next, READ_BYTES, copies.receiver)
            if lost:
                queue.lost(name, lost, records[0].batch.ingress_ns if records else 0)
            for record in records:
                for receiver in record.receivers:
                    queue.send_stored(message_of(record, receiver, late=True))
            return True
        if queue.link.stored.get(name, -1) >= queue.last_stored.get(name, -1):
            del queue.copies[name]
            self._saved.pop((copies.receiver, name), None)
            queue.link.stored.pop(name, None)
            queue.last_stored.pop(name, None)
            if not queue.copies:
                self._storage.save_arrival(queue.interface, None)
            return True
        return any(other not in queue.copies or self._unread(queue, other) for other in queue.behind)

    @staticmethod
    def _unread(queue: InterfaceQueue, name: str) -> bool:
        return queue.copies[name].next < queue.copies[name].end

    def save_cursors(self) -> None:
        """Note how far receivers are. Cost: the interfaces times the durable types."""
        cursors: dict[tuple[Interface, str], int] = {}
        least = {name: self._storage.synced(name) for name in self._types}
        for interface, queue in self._queues.items():
            if queue.durable:
                self._note_cursors(queue, cursors)
                for name in self._types:
                    least[name] = min(least[name], self._saved[interface, name])
        self._storage.save_cursors(cursors)
        for name, before in least.items():
            self._storage.trim(name, before)

    def save_cursors_of(self, interfaces: Iterable[Interface]) -> None:
        """Note how far these are."""
        cursors: dict[tuple[Interface, str], int] = {}
        for interface in interfaces:
            queue = self._queues.get(interface)
            if queue is not None and queue.durable:
                self._note_cursors(queue, cursors)
        self._storage.save_cursors(cursors)

    def _note_cursors(self, queue: InterfaceQueue, changed: dict[tuple[Interface, str], int]) -> None:
        for name in self._types:
            key, cursor = (queue.interface, name), min(self._cursor(queue, name), self._storage.synced(name))
            if self._saved.get(key) != cursor:
                self._saved[key] = changed[key] = cursor
            copies = queue.copies.get(name)
            if copies is not None:
                key, cursor = (copies.receiver, name), self._copied(queue, name, copies)
                if self._saved.get(key) != cursor:
                    self._saved[key] = changed[key] = cursor

    def backlog(self, queue: InterfaceQueue) -> int:
        """How many records were stored since the first that an interface has not acknowledged. Cost: the
        durable types."""
        return sum(self._storage.end(name) - self._cursor(queue, name) for name in self._types)

    def _copied(self, queue: InterfaceQueue, name: str, copies: Copies) -> int:
        stored = queue.link.stored.get(name, -1)
        if stored < queue.last_stored.get(name, -1):
            return max(stored + 1, self._storage.cursor(copies.receiver, name))
        return copies.next

    def _cursor(self, queue: InterfaceQueue, name: str) -> int:
        if name in queue.copies:
            return queue.behind[name]
        stored, last = queue.link.stored.get(name, -1), queue.last_stored.get(name, -1)
        if stored < last:  # some are on their way
            return max(stored + 1, self._saved.get((queue.interface, name), 0))
        return queue.behind.get(name, self._storage.end(name))

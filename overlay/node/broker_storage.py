"""A broker's storage: one log per durable type, whose records are batches with receivers, and state in
SQLite.

Invariant: saved cursors and watermarks cover synced records only, so after a crash none is ahead of the logs.
Segments that all receivers have acknowledged are removed; beyond retention the oldest are removed unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from covey.matcher import EventBatch
from covey.matcher.events.event_type import EventType
from covey.overlay.core.endpoint.storage import Arrival, Record
from covey.overlay.core.messages import COPIES, ENDED, KEYS, Interface, Receiver, RestoreKeys
from covey.overlay.node.state_store import StateStore
from covey.overlay.storage.files import Files, StorageError
from covey.overlay.storage.log import DEFAULT_SEGMENT_BYTES, Commit, Log
from covey.overlay.storage.segment import Missing
from covey.overlay.transport.codec import events_of, fill_events, uint32s
from covey.overlay.transport.wire_values import event_type_of, fill_event_type
from covey.proto import storage_pb2 as pb

_SCAN_BYTES = 4 << 20
_RECORD_BYTES = 1 << 30
"""Of one event with the ids of all matching subscriptions: a smaller bound could stop the broker."""
RESTORED_BYTES = 64 << 20
"""Read of a log to restore the last events of keys, plus up to a segment."""
_JOINED_EVENTS = 4_096
_MOST_DAMAGE = 10_000
_NONE: Mapping[str, int] = {}


def encode_stored(batch: EventBatch, receivers: Sequence[Receiver]) -> bytes:
    stored = pb.StoredBatch()
    fill_event_type(stored.event_type, batch.event_type)
    fill_events(stored.events, batch)
    for receiver in receivers:
        wire = stored.receivers.add()
        wire.interface = receiver.interface
        if receiver.rows is None:
            wire.all = True
        else:
            wire.rows = receiver.rows.astype("<u4").tobytes()
        if receiver.offsets is not None and receiver.ids is not None:
            wire.session = True
            wire.offsets = receiver.offsets.astype("<u4").tobytes()
            wire.ids = receiver.ids.astype("<u4").tobytes()
    data: bytes = stored.SerializeToString()
    return data


def decode_stored(data: bytes, only: Interface | None = None) -> tuple[EventBatch | None, list[Receiver]]:
    """With `only`, just that receiver; no batch if it is not among them."""
    stored = pb.StoredBatch.FromString(data)
    receivers = [_receiver(wire) for wire in stored.receivers if only in (None, wire.interface)]
    if only is not None and not receivers:
        return None, []
    event_type = event_type_of(stored.event_type)
    return events_of(stored.events, lambda _: event_type, checked=True), receivers


class PublishedRecords:
    """Caches the schemas of records."""

    def __init__(self) -> None:
        self._types: dict[bytes, EventType] = {}

    def decode(self, data: bytes) -> tuple[str, EventBatch] | None:
        """The batch and its `KEYS` or `ENDED` receiver; None without one."""
        stored = pb.StoredBatch.FromString(data)
        name = next((wire.interface for wire in stored.receivers if _is_publisher(wire.interface)), None)
        if name is None:
            return None
        schema = stored.event_type.SerializeToString()
        event_type = self._types.get(schema)
        if event_type is None:
            event_type = self._types[schema] = event_type_of(stored.event_type)
        return name, events_of(stored.events, lambda _: event_type, checked=True)


def _is_publisher(interface: Interface) -> bool:
    return interface.startswith((KEYS, ENDED))


def _receiver(wire: pb.StoredReceiver) -> Receiver:
    rows = None if wire.all else uint32s(wire.rows, "rows").astype(np.int64)
    if not wire.session:
        return Receiver(wire.interface, rows)
    offsets = uint32s(wire.offsets, "offsets").astype(np.int64)
    return Receiver(wire.interface, rows, offsets, uint32s(wire.ids, "ids").astype(np.int64))


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds on what is kept for receivers that have not read it."""

    max_bytes: int = 1 << 30
    max_age_s: float = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class LogState:
    """`appended` counts records since the log's creation, `unread` those that retention removed before all
    receivers had acknowledged them."""

    event_type: str
    bytes: int
    segments: int
    appended: int
    unsynced: int
    oldest_s: float
    damaged: int
    unread: int


class _TypeLog:
    def __init__(self, name: str, log: Log, retention: Retention, state: StateStore) -> None:
        self.log = log
        self.retention = retention
        self._damage: dict[int, int] = {}
        """Damaged records found so far: first offset and length of each run."""
        self.note_damage(log.recovery.missing)
        self.unread = 0
        """As in `LogState`."""
        self.marks, self.marked = state.watermarks(name)
        self.changed: dict[str, int] = {}
        """Watermarks of synced records that are not saved."""
        self.syncing: dict[str, int] = {}
        """Of records in the current sync."""
        self.unsynced: dict[str, int] = {}
        """Of records not in a sync yet."""
        self.published = False
        """Whether it has last events of keys."""
        self._replay_marks()

    @property
    def damaged(self) -> int:
        return sum(self._damage.values())

    def note_damage(self, missing: Iterable[Missing]) -> None:
        """Several receivers may find the same run."""
        for each in missing:
            if each.reason == "damaged" and len(self._damage) < _MOST_DAMAGE:
                self._damage[each.first] = max(self._damage.get(each.first, 0), each.end - each.first)

    def _replay_marks(self) -> None:
        for batch in self.batches(max(self.marked, self.log.first)):
            _raise(self.changed, batch)
        self.marks |= self.changed

    def batches(self, offset: int) -> Iterator[EventBatch]:
        """All batches from `offset` on, except copies."""
        while offset < self.log.end:
            reading = self.log.read(offset, _SCAN_BYTES)
            for record in reading.records:
                batch, receivers = decode_stored(record.payload)
                assert batch is not None
                if not _is_copy(receivers):
                    yield batch
            offset = reading.next


def _is_copy(receivers: Sequence[Receiver]) -> bool:
    """Whether the record was stored for a session at another broker or after keys have left, not by
    routing."""
    return all(receiver.interface.startswith((COPIES, ENDED)) for receiver in receivers)


def _raise(marks: dict[str, int], batch: EventBatch) -> None:
    last = int(batch.sequences().max())
    marks[batch.publisher] = max(marks.get(batch.publisher, -1), last)


class _Run:
    """Consecutive batches of a client that can be joined."""

    def __init__(self) -> None:
        self._name = ""
        self._batches: list[EventBatch] = []
        self._times_ns: list[int] = []
        self._events = 0

    def takes(self, name: str, batch: EventBatch) -> bool:
        if not self._batches:
            return True
        first, of_one = self._batches[0], self._name.startswith(KEYS) and name == self._name
        return (
            of_one
            and self._events + batch.count <= _JOINED_EVENTS
            and batch.publisher == first.publisher
            and batch.event_type is first.event_type
            and batch.first_sequence >> 31 == first.first_sequence >> 31
        )

    def add(self, name: str, batch: EventBatch, time_ns: int) -> None:
        self._name = name
        self._batches.append(batch)
        self._times_ns.append(time_ns)
        self._events += batch.count

    def joined(self) -> Iterator[RestoreKeys]:
        if self._batches:
            kind, _, interface = self._name.partition("/")
            times_ns = np.repeat(self._times_ns, [batch.count for batch in self._batches])
            yield RestoreKeys(interface, EventBatch.concat(self._batches), times_ns, f"{kind}/" == ENDED)


class BrokerStorage:
    """`Storage` on files. `files` returns those of a type's directory; `salt` is a new 32-bit number at each
    opening; `now_ns` is the clock that stamps events; `close` unlocks `lock`. `StorageError` if a directory
    cannot be used."""

    def __init__(
        self,
        types: Mapping[str, Retention],
        files: Callable[[str], Files],
        state: StateStore,
        *,
        salt: int,
        now_ns: Callable[[], int],
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        lock: Files | None = None,
    ) -> None:
        self._lock = lock
        self.types = tuple(types)
        self._state = state
        self.sessions, self.awaited, self.moved_to = state.sessions, state.awaited, state.moved_to
        self.save_session, self.save_subscriptions = state.save_session, state.save_subscriptions
        self.save_awaited = state.save_awaited
        self._now_ns = now_ns
        self._cursors: dict[Interface, dict[str, int]] = {}
        self._note_cursors(state.cursors())
        self._logs: dict[str, _TypeLog] = {}
        try:
            for name, retention in types.items():
                log = Log(files(name), salt=salt, segment_bytes=segment_bytes, max_record_bytes=_RECORD_BYTES)
                self._logs[name] = _TypeLog(name, log, retention, state)
        except BaseException:
            for each in self._logs.values():
                each.log.close()
            raise
        self._syncing: list[tuple[_TypeLog, Commit]] = []
        self._state_syncing: int | None = None
        """`StateStore.written` when the sync began."""

    # --- records --------------------------------------------------------------------------------------------

    @property
    def unsynced(self) -> bool:
        return any(each.log.end > each.log.synced for each in self._logs.values())

    def append(self, batch: EventBatch, receivers: Sequence[Receiver]) -> int:
        of_type = self._logs[batch.event_type.name]
        offset = of_type.log.append(encode_stored(batch, receivers), self._now_ns())
        _raise(of_type.unsynced, batch)
        of_type.published = of_type.published or receivers[-1].interface.startswith(KEYS)
        return offset

    def append_copy(self, batch: EventBatch, receiver: Receiver) -> int:
        log = self._logs[batch.event_type.name].log
        return log.append(encode_stored(batch, [receiver]), self._now_ns())

    def read(
        self, type_name: str, offset: int, max_bytes: int, receiver: Interface
    ) -> tuple[list[Record], int, int]:
        of_type = self._logs[type_name]
        reading = of_type.log.read(offset, max_bytes)
        # What was cut had not been acknowledged, so it came again.
        lost = sum(each.end - each.first for each in reading.missing if each.reason != "cut")
        of_type.note_damage(reading.missing)
        records = []
        for each in reading.records:
            batch, receivers = decode_stored(each.payload, receiver)
            if batch is not None:
                records.append(Record(each.offset, batch, receivers))
        return records, reading.next, lost

    def batches(self, type_name: str) -> Iterator[EventBatch]:
        """All stored batches, in order, except copies."""
        of_type = self._logs[type_name]
        return of_type.batches(of_type.log.first)

    def published(self, type_name: str) -> Iterator[RestoreKeys]:
        of_type = self._logs[type_name]
        log, records = of_type.log, PublishedRecords()
        offset = log.newest(RESTORED_BYTES)
        while offset < log.end:
            reading = log.read(offset, _SCAN_BYTES)
            of_type.note_damage(reading.missing)
            run = _Run()
            for record in reading.records:
                published = records.decode(record.payload)
                if published is not None:
                    of_type.published = True
                    name, batch = published
                    if not run.takes(name, batch):
                        yield from run.joined()
                        run = _Run()
                    run.add(name, batch, record.time_ns)
            yield from run.joined()
            offset = reading.next

    def end(self, type_name: str) -> int:
        return self._logs[type_name].log.end

    def synced(self, type_name: str) -> int:
        return self._logs[type_name].log.synced

    def watermarks(self, type_name: str) -> Mapping[str, int]:
        return self._logs[type_name].marks

    # --- syncing --------------------------------------------------------------------------------------------

    def begin_sync(self) -> None:
        """Call `run_sync` next, in any thread, then `end_sync`."""
        self._state_syncing = self._state.written if self._state.unsynced else None
        for of_type in self._logs.values():
            commit = of_type.log.begin_sync()
            if commit is not None:
                self._syncing.append((of_type, commit))
                of_type.syncing, of_type.unsynced = of_type.unsynced, {}

    def run_sync(self) -> None:
        """Write and sync; blocks. Touches nothing that other calls use."""
        for _, commit in self._syncing:
            commit.run()
        if self._state_syncing is not None:
            self._state.sync()

    def end_sync(self) -> None:
        """`StorageError` if a write has failed; the storage then accepts no more."""
        syncing, self._syncing = self._syncing, []
        if self._state_syncing is not None:
            self._state.synced(self._state_syncing)
        for of_type, commit in syncing:
            of_type.log.end_sync(commit)
            for publisher, sequence in of_type.syncing.items():
                of_type.changed[publisher] = max(of_type.changed.get(publisher, -1), sequence)
            of_type.syncing = {}

    # --- progress -------------------------------------------------------------------------------------------

    def cursor(self, interface: Interface, type_name: str) -> int:
        return self._cursors.get(interface, _NONE).get(type_name, 0)

    def _note_cursors(self, cursors: Mapping[tuple[Interface, str], int]) -> None:
        for (interface, name), offset in cursors.items():
            self._cursors.setdefault(interface, {})[name] = offset

    def save_cursors(self, cursors: Mapping[tuple[Interface, str], int]) -> None:
        """Saves changed watermarks too."""
        changed = {name: each for name, each in self._logs.items() if each.changed}
        if changed or cursors:
            self._state.save(
                cursors,
                {name: each.changed for name, each in changed.items()},
                {name: each.log.synced for name, each in changed.items()},
            )
        for name, each in changed.items():
            each.changed = {}
            self._state.prune(name)
        self._note_cursors(cursors)

    def trim(self, type_name: str, before: int) -> None:
        of_type = self._logs[type_name]
        kept_from = of_type.log.newest(RESTORED_BYTES) if of_type.published else before
        of_type.log.trim(min(before, kept_from))
        kept = of_type.retention
        removed = of_type.log.retain(
            max_bytes=kept.max_bytes, since_ns=self._now_ns() - round(kept.max_age_s * 1_000_000_000)
        )
        of_type.unread += max(0, removed.stop - max(removed.start, before))

    def not_found(self) -> Iterator[tuple[str, Missing]]:
        """By type, what opening the logs did not find."""
        for name, of_type in self._logs.items():
            for missing in of_type.log.recovery.missing:
                yield name, missing

    def log_states(self) -> Iterator[LogState]:
        now_ns = self._now_ns()
        for name, of_type in self._logs.items():
            log = of_type.log
            oldest_ns = log.oldest_ns
            yield LogState(
                event_type=name,
                bytes=log.stored_bytes,
                segments=len(log.segments),
                appended=log.end,
                unsynced=log.end - log.synced,
                oldest_s=max(0, now_ns - oldest_ns) / 1e9 if oldest_ns else 0.0,
                damaged=of_type.damaged,
                unread=of_type.unread,
            )

    # --- sessions -------------------------------------------------------------------------------------------

    def forget_sessions(self, interfaces: Iterable[Interface]) -> None:
        interfaces = tuple(interfaces)
        for interface in interfaces:
            self._forget_cursors(interface)
        self._state.forget_sessions(interfaces)

    def hand_over(self, interface: Interface, moved_to: str, number: int) -> None:
        self._forget_cursors(interface)
        self._state.hand_over(interface, moved_to, number)

    def save_arrival(self, interface: Interface, arrival: Arrival | None) -> None:
        if arrival is None:
            self._cursors.pop(self._state.copies_of(interface), None)
        self._state.save_arrival(interface, arrival)

    def _forget_cursors(self, interface: Interface) -> None:
        """The cursors of a session and of what it brought."""
        self._cursors.pop(interface, None)
        self._cursors.pop(self._state.copies_of(interface), None)

    # --- the end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sync and close everything. `StorageError` if that fails, after closing."""
        failed: StorageError | None = None
        for of_type in self._logs.values():
            try:
                of_type.log.close()
            except StorageError as error:
                failed = failed or error
        self._state.close()
        if self._lock is not None:
            self._lock.unlock()
        if failed is not None:
            raise failed

"""The storage of a broker in virtual time: that of the broker process, on disks with faults. It stores the
events of every record for the checkers: which records were on disk when one of their bits flipped, and which
synced ones the next opening of the log does not find."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from covey.matcher import EventBatch
from covey.overlay.core.endpoint.storage import Record
from covey.overlay.core.messages import ENDED, KEYS, Interface, Receiver
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.state_store import StateStore
from covey.overlay.storage.segment import SEGMENT_HEADER_BYTES, Found, open_segments, scan
from covey.sim.simulator.disk import SimulatedCrash, SimulatedFiles

_SEGMENT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StoredEvents:
    publisher: str
    sequences: tuple[int, ...]
    receivers: tuple[Interface, ...]


class ObservedStorage(BrokerStorage):
    """Of one life. `appended` gets each record, `reported` the number of those that a read does not find."""

    appended: Callable[[str, int, StoredEvents], None]
    reported: Callable[[int], None]

    def append(self, batch: EventBatch, receivers: Sequence[Receiver]) -> int:
        offset = super().append(batch, receivers)
        named = (receiver.interface for receiver in receivers)
        names = tuple(name for name in named if not name.startswith((KEYS, ENDED)))
        events = StoredEvents(batch.publisher, tuple(batch.sequences().tolist()), names)
        self.appended(batch.event_type.name, offset, events)
        return offset

    def read(
        self, type_name: str, offset: int, max_bytes: int, receiver: Interface
    ) -> tuple[list[Record], int, int]:
        records, following, lost = super().read(type_name, offset, max_bytes, receiver)
        self.reported(lost)
        return records, following, lost

    def recovered(self, type_name: str) -> list[tuple[int, int]]:
        """The ranges of offsets that its opening did not find."""
        return [(each.first, each.end) for each in self._logs[type_name].log.recovery.missing]


class SimulatedState(StateStore):
    """In memory; unsynced writes are lost with the power."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self._on_disk: dict[int, bytes] = {}
        """The database at this number of `written` transactions, from the last on disk on."""

    def _write(
        self, statements: Iterable[tuple[str, Iterable[Sequence[object]]]], *, synced: bool = True
    ) -> None:
        if not synced:
            self._on_disk.setdefault(self.written, self._db.serialize())
        super()._write(statements, synced=synced)
        if synced:
            self._on_disk.clear()

    def synced(self, written: int) -> None:
        super().synced(written)
        self._on_disk = {at: image for at, image in self._on_disk.items() if at >= written}

    def lose_power(self) -> None:
        if self._on_disk:
            self._db.deserialize(next(iter(self._on_disk.values())))
        self.open()

    def open(self) -> None:
        """As a starting process: from then on all present content is on disk."""
        self._on_disk.clear()
        self._synced = self._written


class SimulatedStorage:
    """The directory of one broker, over its lives; `types` are the durable types. Calls `damaged` with events
    that a flipped bit in their record may have lost."""

    def __init__(
        self,
        types: Sequence[str],
        seed: str,
        now_ns: Callable[[], int],
        damaged: Callable[[str, StoredEvents], None] = lambda type_name, events: None,
    ) -> None:
        self._random = random.Random(f"storage {seed}")
        self._types = {name: Retention() for name in types}
        self.files = {name: SimulatedFiles(self._random.randrange(1 << 32), path=name) for name in types}
        self._state = SimulatedState()
        self._now_ns = now_ns
        self._damaged = damaged
        self._records: dict[str, dict[int, StoredEvents]] = {name: {} for name in types}
        self._synced: dict[str, int] = {}
        """By type, the synced end of the log when the last life ended."""
        self._flipped: dict[str, None] = {}
        self.reported = 0
        self.open: ObservedStorage | None = None

    def start(self) -> ObservedStorage:
        self._state.open()
        storage = self.open = ObservedStorage(
            self._types,
            self.files.__getitem__,
            self._state,
            salt=self._random.randrange(1 << 32),
            now_ns=self._now_ns,
            segment_bytes=_SEGMENT_BYTES,
        )
        storage.appended, storage.reported = self._append, self._report
        for name in self._flipped:
            synced = self._synced.get(name, 0)
            for first, end in storage.recovered(name):
                self._report(end - first)
                for offset in range(first, min(end, synced)):
                    self._lose(name, offset)
        return storage

    def crash(self, *, power: bool = True) -> None:
        """The machine stops, perhaps in the middle of a write; without `power` only the process."""
        storage = self.open
        if storage is not None:
            self._synced = {name: storage.synced(name) for name in self._types}
            for files in self.files.values():
                files.crash_in = self._random.randrange(1, 5)
            with suppress(SimulatedCrash):
                storage.run_sync()
            for files in self.files.values():
                files.crash_in = None
                files.crash(power=power)
        if power:
            self._state.lose_power()
        self.open = None

    # --- faults ---------------------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """The machine of a broker that has crashed stops as well."""
        for files in self.files.values():
            files.crash()
        self._state.lose_power()

    def fail_sync(self) -> None:
        for files in self.files.values():
            files.failing_syncs = 1

    def fill(self, room: int) -> None:
        """From now on each log may grow by `room` bytes."""
        for files in self.files.values():
            files.room = room

    def mend(self) -> None:
        """An operator has made room, and replaced failed disks."""
        for files in self.files.values():
            files.room, files.failing_syncs = None, 0

    @property
    def written(self) -> bool:
        return any(files.names() for files in self.files.values())

    def flip(self, draw: random.Random) -> bool:
        """Flip a bit of a byte on disk; return whether there was one."""
        written = [(name, file) for name, files in self.files.items() for file in files.names()]
        if not written:
            return False
        name, file = draw.choice(written)
        files = self.files[name]
        before = self._sound(name)
        size = files.size(file)
        if size <= SEGMENT_HEADER_BYTES or not files.flip(file, draw.randrange(SEGMENT_HEADER_BYTES, size)):
            return False
        self._flipped[name] = None
        for offset in before - self._sound(name):
            self._lose(name, offset)
        return True

    def _sound(self, type_name: str) -> set[int]:
        files = self.files[type_name]
        return {
            piece.offset
            for segment in open_segments(files)
            for piece in scan(segment.read(files), segment.marker, SEGMENT_HEADER_BYTES, segment.size)
            if isinstance(piece, Found) and piece.payload
        }

    def _append(self, type_name: str, offset: int, events: StoredEvents) -> None:
        self._records[type_name][offset] = events

    def _report(self, records: int) -> None:
        self.reported += records

    def _lose(self, type_name: str, offset: int) -> None:
        events = self._records[type_name].get(offset)
        if events is not None:
            self._damaged(type_name, events)

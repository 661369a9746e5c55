"""A log of numbered records in segment files, durable once synced, across crashes and damage.

Invariants: an offset belongs to one record. What `sync` has confirmed is served unchanged or reported
missing. No offset that may have been synced is assigned again.

`sync` is one write and one sync of what was appended. An event loop uses `begin_sync`, `Commit.run` in a
thread, `end_sync`, and appends and reads meanwhile. Readers see unsynced records, so cursors must be bounded
by `synced`.

After a failed write or sync the log has *failed*: it serves synced records and accepts no more. Since the
system may drop a failed write silently, opening rewrites and syncs what may not be durable.

Only `Commit.run` is thread-safe. The log reads no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from covey.overlay.storage.files import Files, FileWriter, StorageError
from covey.overlay.storage.recovery import recover
from covey.overlay.storage.segment import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    Missing,
    Record,
    Segment,
    Unreadable,
    encode_records,
    first_time_ns,
    last_time_ns,
    new_segment,
    position_of,
    scan,
)

DEFAULT_SEGMENT_BYTES = 64 << 20
DEFAULT_RECORD_BYTES = 16 << 20
_HINTS = 256


class Commit:
    """Records on their way to disk. `run` may be called in any thread; `Log.end_sync` takes the outcome."""

    def __init__(
        self,
        files: Files,
        segment: Segment,
        writer: FileWriter | None,
        records: Sequence[Record],
        synced: int,
    ) -> None:
        self.segment = segment
        self.writer = writer
        self.records = records
        self.error: StorageError | None = None
        self.finished = False
        self._files = files
        self._is_new = not segment.size
        self._data = b""
        position = segment.size
        if self._is_new:
            self._data, position = SEGMENT_HEADER, SEGMENT_HEADER_BYTES
        self._data += encode_records(records, segment.marker, position, synced)

    @property
    def bytes(self) -> int:
        return len(self._data)

    def run(self) -> None:
        """Blocks. Keeps an error for `Log.end_sync`."""
        try:
            if self._is_new:
                self.writer = self._files.create(self.segment.name)
            elif self.writer is None:
                self.writer = self._files.writer(self.segment.name, self.segment.size)
            self.writer.write(self._data)
            self.writer.sync()
            if self._is_new:
                self._files.sync_directory()
        except StorageError as error:
            self.error = error
        self.finished = True


@dataclass(frozen=True, slots=True)
class Reading:
    """`missing` are the offsets among the records that cannot be served; `next` is where to continue."""

    records: list[Record]
    missing: list[Missing]
    next: int


class Log:
    """Opening recovers the log (`recovery`). `salt` is a new random 32-bit number at each opening. A record
    takes at most `max_record_bytes`, a segment about `segment_bytes`, which also bounds time and memory.
    `StorageError` if the directory cannot be used."""

    def __init__(
        self,
        files: Files,
        *,
        salt: int,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        max_record_bytes: int = DEFAULT_RECORD_BYTES,
    ) -> None:
        self.files = files
        self.failed: StorageError | None = None
        self._salt = salt
        self._segment_bytes = segment_bytes
        self._max_record_bytes = max_record_bytes
        self._writer: FileWriter | None = None
        self._commit: Commit | None = None
        self._hints: dict[int, tuple[str, int]] = {}
        """By offset at which a reader stopped: segment, and a position at or before the record."""
        self._oldest: tuple[str, int] | None = None
        files.lock()
        try:
            self._segments, self.recovery = recover(files, salt)
        except BaseException:
            files.unlock()
            raise
        self.synced = self.recovery.end
        self._marked = self.recovery.marked
        """`synced` as the newest record on disk has it."""
        self._unsynced: list[Record] = []
        self.unsynced_bytes = 0

    # --- offsets --------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        return self._segments[0].first if self._segments else self.synced

    @property
    def end(self) -> int:
        return self.synced + len(self._unsynced)

    @property
    def stored_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def oldest_ns(self) -> int:
        """The time of the oldest readable record, 0 if none. May read a record."""
        if not self._segments or not self._segments[0].size:
            return self._unsynced[0].time_ns if self._unsynced else 0
        oldest = self._segments[0]
        if self._oldest is None or self._oldest[0] != oldest.name:
            self._oldest = oldest.name, first_time_ns(self.files, oldest)
        return self._oldest[1]

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(segment.name for segment in self._segments)

    # --- writing --------------------------------------------------------------------------------------------

    def append(self, payload: bytes, time_ns: int) -> int:
        """Returns the offset. `StorageError` if the payload is empty or too large, or the log has failed."""
        if self.failed is not None:
            raise self.failed
        size, offset = len(payload), self.end
        if not 1 <= size <= self._max_record_bytes:
            sentence = f"a record has {size:,} bytes: expected 1 to {self._max_record_bytes:,}"
            raise StorageError("record", self.files.path, sentence)
        self._unsynced.append(Record(offset, time_ns, payload))
        self.unsynced_bytes += size
        return offset

    def sync(self) -> int:
        """Make appended records durable; blocks. Returns `synced`."""
        commit = self.begin_sync()
        if commit is not None:
            commit.run()
            self.end_sync(commit)
        return self.synced

    def begin_sync(self) -> Commit | None:
        """A commit for `run`, then `end_sync`; None if nothing was appended. One at a time. `StorageError` if
        the log has failed."""
        if self.failed is not None:
            raise self.failed
        if self._commit is not None:
            raise RuntimeError("a commit is under way: expected end_sync before the next begin_sync")
        if not self._unsynced:
            return None
        size = self.unsynced_bytes + RECORD_HEADER_BYTES * len(self._unsynced)
        segment, writer = self._segments[-1] if self._segments else None, self._writer
        if segment is None or (
            segment.first < self.synced and segment.size + size > self._segment_bytes
        ):  # no two segments have the same first offset
            segment, writer = new_segment(self.synced, self.synced, self._salt), None
        self._commit = Commit(self.files, segment, writer, tuple(self._unsynced), self.synced)
        return self._commit

    def end_sync(self, commit: Commit) -> int:
        """Returns `synced`. `StorageError` if the commit failed; then the log has failed."""
        assert commit is self._commit
        assert commit.finished
        self._commit = None
        if self._writer is not None and self._writer is not commit.writer:
            self._writer.close()
        self._writer = commit.writer
        if commit.error is not None:
            self._fail(commit.error)
            raise commit.error
        if not commit.segment.size:
            self._segments.append(commit.segment)
        commit.segment.size += commit.bytes
        self._marked = self.synced
        self.synced += len(commit.records)
        del self._unsynced[: len(commit.records)]
        self.unsynced_bytes = sum(len(record.payload) for record in self._unsynced)
        return self.synced

    def mark_synced(self) -> None:
        """Write a sync mark, which tells damage from a torn write (`recovery.py`), for a log at rest."""
        if self.failed is not None:
            raise self.failed
        if self._marked == self.synced or self._commit is not None or not self._segments:
            return
        segment = self._segments[-1]
        mark = encode_records((Record(self.synced, 0, b""),), segment.marker, segment.size, self.synced)
        try:
            if self._writer is None:
                self._writer = self.files.writer(segment.name, segment.size)
            self._writer.write(mark)
            self._writer.sync()
        except StorageError as error:
            self._fail(error)
            raise
        segment.size += len(mark)
        self._marked = self.synced

    def _fail(self, error: StorageError) -> None:
        sentence = f"the log takes no records until it is opened again, since a write has failed: {error}"
        self.failed = StorageError("failed", self.files.path, sentence)
        self._unsynced.clear()
        self.unsynced_bytes = 0

    def close(self) -> None:
        """Sync, mark and unlock. `StorageError` if that fails, unless the log had failed before."""
        try:
            if self.failed is None:
                if self._commit is not None:
                    if not self._commit.finished:
                        self._commit.run()
                    self.end_sync(self._commit)
                self.sync()
                self.mark_synced()
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self.files.unlock()

    # --- reading --------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int = 1 << 20) -> Reading:
        """Up to `max_bytes`, but at least one record before the end. `StorageError` for an offset behind the
        end, or an unreadable file."""
        if offset > self.end:
            raise StorageError(
                "offset", self.files.path, f"offset {offset} is behind the end: expected at most {self.end}"
            )
        reading = Reading([], [], offset)
        if offset < self.first:
            reading.missing.append(Missing(offset, self.first, "removed"))
            offset = self.first
        room = max_bytes
        while offset < self.synced and (room > 0 or not reading.records):
            number = bisect_right(self._segments, offset, key=lambda segment: segment.first) - 1
            offset, room = self._read_segment(number, offset, room, reading)
        for record in self._unsynced[max(0, offset - self.synced) :] if offset >= self.synced else ():
            room -= len(record.payload)
            if room < 0 and reading.records:
                break
            reading.records.append(record)
            offset += 1
        return Reading(reading.records, reading.missing, offset)

    def _read_segment(self, number: int, offset: int, room: int, reading: Reading) -> tuple[int, int]:
        """Returns the next offset and the room left."""
        segment, is_last = self._segments[number], number + 1 == len(self._segments)
        end = self.synced if is_last else self._segments[number + 1].previous_end
        name, position = self._hints.pop(offset, ("", 0))
        if name != segment.name:
            position = position_of(self.files, segment, offset)
        for piece in scan(segment.read(self.files), segment.marker, position, segment.size):
            if offset >= end:
                break
            if isinstance(piece, Unreadable) or not piece.payload or not offset <= piece.offset < end:
                continue
            if reading.records and room < len(piece.payload):
                self._hint(offset, segment.name, piece.position)
                return offset, 0
            if piece.offset > offset:
                reading.missing.append(Missing(offset, piece.offset, "damaged"))
            reading.records.append(Record(piece.offset, piece.time_ns, piece.payload))
            room -= len(piece.payload)
            offset = piece.offset + 1
        if offset < end:
            reading.missing.append(Missing(offset, end, "damaged"))
            offset = end
        if not is_last and offset < self._segments[number + 1].first:
            reading.missing.append(Missing(offset, self._segments[number + 1].first, "cut"))
            offset = self._segments[number + 1].first
        return offset, room

    def _hint(self, offset: int, name: str, position: int) -> None:
        self._hints[offset] = name, position
        if len(self._hints) > _HINTS:
            del self._hints[next(iter(self._hints))]

    def newest(self, least_bytes: int) -> int:
        """The first offset of the fewest newest segments with `least_bytes` together."""
        first, size = self.first, self.stored_bytes
        for segment, following in pairwise(self._segments):
            size -= segment.size
            if size < least_bytes:
                break
            first = following.first
        return first

    # --- removal --------------------------------------------------------------------------------------------

    def trim(self, before: int) -> range:
        """Remove segments below `before`, except the last; returns the removed offsets."""
        count = bisect_right(self._segments, before, key=lambda segment: segment.first) - 1
        return self._remove(max(0, count))

    def retain(self, *, max_bytes: int | None = None, since_ns: int | None = None) -> range:
        """Remove segments, except the last, while the log exceeds `max_bytes` or the oldest ends before
        `since_ns`; returns the removed offsets. A log takes up to `max_bytes` and a segment."""
        count, size = 0, self.stored_bytes
        for segment in self._segments[:-1]:
            over = max_bytes is not None and size > max_bytes
            if not over and (since_ns is None or last_time_ns(self.files, segment) >= since_ns):
                break
            count += 1
            size -= segment.size
        return self._remove(count)

    def _remove(self, count: int) -> range:
        """Each removal is durable before the next, so a crash leaves no hole."""
        first = self.first
        for _ in range(count):
            self.files.remove(self._segments[0].name)
            del self._segments[0]
            self.files.sync_directory()
        return range(first, self.first)

"""Recovery of a log after a crash, verification, backup.

A crash tears only what was written to the last segment since the last sync. Records store which offsets were
synced (`synced`): damage below is reported, and records behind it stay. At the first damage above, the
segment is cut, since what follows may be an unconfirmed write, which its sender repeats in order. Without a
sync mark, a damaged record of the very last sync is cut too, with all that was synced beside it. Cut offsets
are reported and never reused: the log continues in a new segment, whose name has their number.

Sound records that may not be durable are rewritten in place with the same bytes and synced, since a system
that failed to write them need not retry. After a crash during recovery the next one gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from covey.overlay.storage.files import Files, StorageError
from covey.overlay.storage.segment import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    Missing,
    Segment,
    Unreadable,
    new_segment,
    open_segments,
    scan,
)

_COPY_BYTES = 1 << 20


@dataclass(slots=True)
class Examination:
    """`records` sound records below offset `end`, in the first `size` bytes. In the last segment offsets
    below `synced` are durable, records from position `unsure` on may only be cached, later bytes are torn."""

    end: int
    size: int
    synced: int
    unsure: int
    records: int = 0
    damaged_bytes: int = 0
    missing: list[Missing] = field(default_factory=list)


@dataclass(slots=True)
class _Damage:
    """`expected` is the offset here, `resumed` the one behind (None at the end), `records` the number
    before."""

    position: int
    end: int
    expected: int
    resumed: int | None
    records: int


def examine(files: Files, segment: Segment, end: int | None = None) -> Examination:
    """Read a segment that ends at offset `end` (None: the last segment) once, in pieces."""
    expected = synced = segment.first
    records, damages, unresolved = 0, list[_Damage](), list[_Damage]()
    unsure: dict[int, int] = {}  # the positions of the records that are not known to be synced
    for piece in scan(segment.read(files), segment.marker, SEGMENT_HEADER_BYTES, segment.size):
        if isinstance(piece, Unreadable):
            damages.append(_Damage(piece.position, piece.end, expected, None, records))
            unresolved.append(damages[-1])
            continue
        if piece.offset < expected or (end is not None and piece.offset >= end + (piece.payload == b"")):
            continue  # left over from before a cut
        while unresolved:
            unresolved.pop().resumed = piece.offset
        expected, synced = piece.offset, max(synced, piece.synced)
        if piece.payload is None:
            damages.append(_Damage(piece.position, piece.end, expected, expected + 1, records))
        elif piece.payload:
            records += 1
            unsure[piece.offset] = piece.position
        if piece.payload != b"":
            expected += 1
        while unsure and (first := next(iter(unsure))) < synced:
            del unsure[first]
    size = segment.size
    if end is None:
        torn = next((each for each in damages if _is_torn(each, synced)), None)
        if torn is not None:
            size, records, expected = torn.position, torn.records, torn.expected
            damages = [each for each in damages if each.position < size]
        end = max(expected, synced)
    result = Examination(end, size, synced, size, records)
    for damage in damages:
        _lose(result, damage.expected, end if damage.resumed is None else damage.resumed)
    _lose(result, expected, end)
    result.damaged_bytes = sum(each.end - each.position for each in damages)
    result.unsure = min((position for position in unsure.values() if position < size), default=size)
    return result


def _is_torn(damage: _Damage, synced: int) -> bool:
    return damage.resumed is None or damage.resumed > synced


def _lose(result: Examination, first: int, end: int) -> None:
    missing = result.missing
    if missing and missing[-1].end >= first:
        first = missing.pop().first
    if first < end:
        missing.append(Missing(first, end, "damaged"))


@dataclass(frozen=True, slots=True)
class Recovery:
    """`end` is the next offset, `missing` includes the torn end, `marked` is the newest `synced` stored."""

    end: int
    marked: int
    missing: tuple[Missing, ...] = ()
    torn_bytes: int = 0


def recover(files: Files, salt: int) -> tuple[list[Segment], Recovery]:
    """`salt` as for `Log`. Reads the last segment whole, of the others the headers."""
    segments = open_segments(files)
    if not segments:
        return segments, Recovery(0, 0)
    segment = segments[-1]
    last = examine(files, segment)
    torn_bytes, missing = segment.size - last.size, list(last.missing)
    _write_again(files, segment, last)
    files.sync_directory()  # the last segment must not vanish while the next one stays
    end = last.end + -(-torn_bytes // (RECORD_HEADER_BYTES + 1))
    if torn_bytes:
        missing.append(Missing(last.end, end, "cut"))
        segments.append(_create(files, new_segment(end, last.end, salt)))
        files.truncate(segment.name, segment.size)
    return segments, Recovery(end, last.synced, tuple(missing), torn_bytes)


def _write_again(files: Files, segment: Segment, last: Examination) -> None:
    segment.size, position = last.size, last.unsure
    if segment.header_damaged:
        writer = files.writer(segment.name, 0)
        writer.write(SEGMENT_HEADER)
        writer.sync()
        writer.close()
        segment.size = max(segment.size, SEGMENT_HEADER_BYTES)
        segment.header_damaged = False
    if position < last.size:
        writer = files.writer(segment.name, position)
        while position < last.size:
            data = files.read(segment.name, position, min(_COPY_BYTES, last.size - position))
            writer.write(data)
            position += len(data)
        writer.sync()
        writer.close()


def _create(files: Files, segment: Segment) -> Segment:
    writer = files.create(segment.name)
    writer.write(SEGMENT_HEADER)
    writer.sync()
    writer.close()
    files.sync_directory()
    segment.size = SEGMENT_HEADER_BYTES
    return segment


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """Offsets `first` to `end`; those from `end` to the next segment's `first` were cut by a recovery.
    `missing` were synced and cannot be read. The next recovery will cut `torn_bytes` of the last segment."""

    name: str
    first: int
    end: int
    records: int
    bytes: int
    missing: tuple[Missing, ...]
    damaged_bytes: int
    torn_bytes: int
    header_damaged: bool

    @property
    def sound(self) -> bool:
        return not (self.missing or self.damaged_bytes or self.torn_bytes or self.header_damaged)


def verify(files: Files) -> Iterator[SegmentReport]:
    """One report per segment, in order, some 300 MB/s. `StorageError` for an unreadable file."""
    segments = open_segments(files)
    for number, segment in enumerate(segments):
        end = segments[number + 1].previous_end if number + 1 < len(segments) else None
        found = examine(files, segment, end)
        yield SegmentReport(
            segment.name,
            segment.first,
            found.end,
            found.records,
            segment.size,
            tuple(found.missing),
            found.damaged_bytes,
            segment.size - found.size,
            segment.header_damaged,
        )


def backup(source: Files, target: Files) -> Iterator[int]:
    """Copy a log into an empty directory; yields the bytes of each step. A torn end is cut by recovery.
    `StorageError`: "in use" if `target` has files, "missing" if a segment was removed meanwhile."""
    if target.names():
        raise StorageError("in use", target.path, "it has files: expected an empty directory for a backup")
    for segment in open_segments(source):
        writer = target.create(segment.name)
        for position in range(0, segment.size, _COPY_BYTES):
            data = source.read(segment.name, position, min(_COPY_BYTES, segment.size - position))
            writer.write(data)
            yield len(data)
        writer.sync()
        writer.close()
    target.sync_directory()

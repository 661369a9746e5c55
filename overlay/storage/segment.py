"""A segment: one file of a log, with records of ascending offsets, found again behind damage.

There is no index: an offset is found by bisection, since the marker finds a record from any position on. That
takes some ten reads of 64 MiB and no memory, and a crash cannot damage it.

All numbers are little-endian. A segment file is a header and records without space between them.

    header of a segment, 16 bytes
     0  8  the magic `COVEYLOG`
     8  4  version of the format, 1
    12  4  CRC-32 of bytes 0 to 11

    record, 40 bytes and its payload
     0  4  marker of the segment
     4  4  bytes of the payload, 0 for a sync mark
     8  4  CRC-32 of the payload
    12  8  time, nanoseconds, signed
    20  8  offset; of a sync mark that of the next record
    28  8  synced: all records below this offset had been synced when this one was written
    36  4  CRC-32 of bytes 0 to 35, begun with the record's position in the file
    40     payload

A name such as `00000000000000000042-0-9f3c21aa.segment` has the first offset, how many offsets before it
were cut by a recovery, and the marker in hexadecimal. The marker is random, and the header's CRC depends on
the position, so no published bytes, not even a copy of a record, read as a record. A damaged segment header
costs no record.

A payload has a CRC of its own: behind a damaged payload the next record's place is known; behind a damaged
header the marker finds it. A CRC-32 finds bursts of up to 32 wrong bits, and misses other damage once in
2**32 cases.

A damaged record below `synced` was durable; one above may never have been written whole. A sync mark is a
record that only carries `synced`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct, pack
from typing import Literal, NamedTuple
from zlib import crc32

from covey.overlay.storage.files import Files, StorageError

VERSION = 1
SEGMENT_HEADER_BYTES = 16
RECORD_HEADER_BYTES = 40

_MAGIC = b"COVEYLOG"
_SEGMENT = Struct("<8sI")
_FIELDS = Struct("<IIIqQQ")
_NUMBER = Struct("<I")
_CHUNK_BYTES = 256 << 10

Read = Callable[[int, int], bytes]
"""`read(position, size)` of a segment file."""
_NAME = re.compile(r"(\d{20})-(\d+)-([0-9a-f]{8})\.segment")
_WALK_BYTES = 128 << 10
"""Below this distance reading all records is cheaper than a step of the bisection."""
_LAST_BYTES = 64 << 10


class Record(NamedTuple):
    offset: int
    time_ns: int
    payload: bytes


class Found(NamedTuple):
    """From `position` to `end`, with a whole header. `payload` is None if damaged, empty for a sync mark."""

    position: int
    end: int
    offset: int
    time_ns: int
    synced: int
    payload: bytes | None


class Unreadable(NamedTuple):
    position: int
    end: int


def _segment_header() -> bytes:
    fields = _SEGMENT.pack(_MAGIC, VERSION)
    return fields + _NUMBER.pack(crc32(fields))


SEGMENT_HEADER = _segment_header()


def check_version(header: bytes, path: str) -> bool:
    """Whether this is a whole segment header. `StorageError` for another version."""
    fields = header[: _SEGMENT.size]
    if header[_SEGMENT.size :] == _NUMBER.pack(crc32(fields)) and fields.startswith(_MAGIC):
        _, version = _SEGMENT.unpack(fields)
        if version != VERSION:
            raise StorageError("version", path, f"its format has version {version}: expected {VERSION}")
    return header == SEGMENT_HEADER


def encode_records(records: Iterable[Record], marker: int, position: int, synced: int) -> bytes:
    """As they stand in a segment from `position` on."""
    parts: list[bytes] = []
    pack, number = _FIELDS.pack, _NUMBER.pack
    for offset, time_ns, payload in records:
        fields = pack(marker, len(payload), crc32(payload), time_ns, offset, synced)
        parts += (fields, number(crc32(fields, position)), payload)
        position += RECORD_HEADER_BYTES + len(payload)
    return b"".join(parts)


def find_record(read: Read, marker: int, position: int, stop: int) -> tuple[int, int] | None:
    """The first record with a whole header at `position` or behind: position and offset."""
    text, overlap = _NUMBER.pack(marker), RECORD_HEADER_BYTES - 1
    while position + RECORD_HEADER_BYTES <= stop:
        chunk = read(position, min(_CHUNK_BYTES, stop - position))
        place = chunk.find(text)
        while 0 <= place <= len(chunk) - RECORD_HEADER_BYTES:
            fields = _header(chunk, place, marker, position + place)
            if fields is not None:
                return position + place, fields[3]
            place = chunk.find(text, place + 1)
        if len(chunk) < RECORD_HEADER_BYTES:
            return None
        position += len(chunk) - overlap
    return None


def scan(read: Read, marker: int, position: int, stop: int) -> Iterator[Found | Unreadable]:
    """The pieces between two positions, in order and without gaps."""
    chunk, start = b"", position
    while position < stop:
        if position + RECORD_HEADER_BYTES > start + len(chunk):
            chunk, start = read(position, min(_CHUNK_BYTES, stop - position)), position
        fields = _header(chunk, position - start, marker, position)
        if fields is None:
            found = find_record(read, marker, position + 1, stop)
            end = stop if found is None else found[0]
            yield Unreadable(position, end)
            position = end
            continue
        length, check, time_ns, offset, synced = fields
        body = position + RECORD_HEADER_BYTES
        end = min(body + length, stop)
        payload: bytes | None = chunk[body - start : body - start + length]
        if len(payload or b"") < length:
            payload = read(body, end - body)
        if len(payload or b"") < length or crc32(payload or b"") != check:
            payload = None
        yield Found(position, end, offset, time_ns, synced, payload)
        position = end


def _header(chunk: bytes, place: int, marker: int, position: int) -> tuple[int, int, int, int, int] | None:
    """Payload length, payload CRC, time, offset, synced; None if no record begins at `place`."""
    body = place + _FIELDS.size
    if body + _NUMBER.size > len(chunk):
        return None
    found, length, check, time_ns, offset, synced = _FIELDS.unpack_from(chunk, place)
    if found != marker or _NUMBER.unpack_from(chunk, body)[0] != crc32(chunk[place:body], position):
        return None
    return length, check, time_ns, offset, synced


@dataclass(frozen=True, slots=True)
class Missing:
    """Offsets `first` to `end` (exclusive) that cannot be served: removed by retention, damaged although
    synced, or cut by a recovery because they may never have been synced."""

    first: int
    end: int
    reason: Literal["removed", "damaged", "cut"]


@dataclass(slots=True)
class Segment:
    """`size` excludes a write under way. Offsets from `previous_end`, where the segment before ends, to
    `first` were cut."""

    name: str
    first: int
    marker: int
    size: int
    previous_end: int
    header_damaged: bool = False

    def read(self, files: Files) -> Read:
        return partial(files.read, self.name)


def new_segment(first: int, previous_end: int, salt: int) -> Segment:
    """`salt` is a secret 32-bit number."""
    marker = crc32(pack("<Q", first), salt) or 1
    name = f"{first:020d}-{first - previous_end}-{marker:08x}.segment"
    return Segment(name, first, marker, 0, previous_end)


def open_segments(files: Files) -> list[Segment]:
    segments = []
    for name in files.names():
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        first, left_out = int(match[1]), int(match[2])
        whole = check_version(files.read(name, 0, SEGMENT_HEADER_BYTES), f"{files.path}/{name}")
        size = files.size(name)
        segments.append(Segment(name, first, int(match[3], 16), size, first - left_out, not whole))
    return segments


def position_of(files: Files, segment: Segment, offset: int) -> int:
    """A position shortly before the record of `offset`, for `scan`."""
    read = segment.read(files)
    low, high = SEGMENT_HEADER_BYTES, segment.size
    while high - low > _WALK_BYTES:
        middle = (low + high) // 2
        found = find_record(read, segment.marker, middle, high)
        if found is None or found[1] > offset:
            high = middle
        else:
            low = found[0]
    return low


def _times_ns(files: Files, segment: Segment, position: int) -> Iterator[int]:
    for piece in scan(segment.read(files), segment.marker, position, segment.size):
        if isinstance(piece, Found) and piece.payload:
            yield piece.time_ns


def first_time_ns(files: Files, segment: Segment) -> int:
    """Of the first readable record; 0 if there is none."""
    return next(_times_ns(files, segment, SEGMENT_HEADER_BYTES), 0)


def last_time_ns(files: Files, segment: Segment) -> int:
    """Of the last readable record; 0 if there is none."""
    distance = _LAST_BYTES
    while True:
        start = max(SEGMENT_HEADER_BYTES, segment.size - distance)
        time_ns = [0, *_times_ns(files, segment, start)][-1]
        if time_ns or start == SEGMENT_HEADER_BYTES:
            return time_ns
        distance *= 4

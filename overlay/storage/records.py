"""The records of a segment: their bytes, and how they are found again among damaged ones.

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

The name of a segment, `00000000000000000042-0-9f3c21aa.segment`, has its first offset, how many offsets
before that were cut at a recovery, and its marker, in hexadecimal digits. The marker is a random number: what
a client publishes can so not contain what reads as a record of the segment, not even a copy of one, because
of the position in its check. Damage to the header of a segment costs no record.

The header of a record is checked apart from its payload, so behind a
damaged payload the next record's place is known; behind a damaged header the next record is searched by the
marker. A CRC-32 finds every run of up to 32 wrong bits, and misses other damage once in 2**32 cases.

`synced` tells after a crash what must be there: a damaged record below it was durable and is damage, one
above it may never have been written whole. A sync mark is a record that says no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from covey.overlay.storage.errors import StorageError

VERSION = 1
SEGMENT_HEADER_BYTES = 16
RECORD_HEADER_BYTES = 40

_MAGIC = b"COVEYLOG"
_SEGMENT = Struct("<8sI")
_FIELDS = Struct("<IIIqQQ")
_NUMBER = Struct("<I")
_CHUNK_BYTES = 256 << 10

Read = Callable[[int, int], bytes]
"""Reads so many bytes of a segment file from a position on."""


class Record(NamedTuple):
    """A record of a log: `offset` is its number, `time_ns` what the writer gave it."""

    offset: int
    time_ns: int
    payload: bytes


class Found(NamedTuple):
    """A record in a segment whose header is whole; `payload` is None if it is damaged, empty for a sync
    mark. It takes the file from `position` to `end`.
    """

    position: int
    end: int
    offset: int
    time_ns: int
    synced: int
    payload: bytes | None


class Unreadable(NamedTuple):
    """Bytes of a segment, from `position` to `end`, in which no record begins."""

    position: int
    end: int


def _segment_header() -> bytes:
    fields = _SEGMENT.pack(_MAGIC, VERSION)
    return fields + _NUMBER.pack(crc32(fields))


SEGMENT_HEADER = _segment_header()


def check_version(header: bytes, path: str) -> bool:
    """Whether this is the header of a segment, or a damaged one. `StorageError` for another version."""
    fields = header[: _SEGMENT.size]
    if header[_SEGMENT.size :] == _NUMBER.pack(crc32(fields)) and fields.startswith(_MAGIC):
        _, version = _SEGMENT.unpack(fields)
        if version != VERSION:
            raise StorageError("version", path, f"its format has version {version}: expected {VERSION}")
    return header == SEGMENT_HEADER


def encode_records(records: Iterable[Record], marker: int, position: int, synced: int) -> bytes:
    """Records as they stand in a segment from a position on."""
    parts: list[bytes] = []
    pack, number = _FIELDS.pack, _NUMBER.pack
    for offset, time_ns, payload in records:
        fields = pack(marker, len(payload), crc32(payload), time_ns, offset, synced)
        parts += (fields, number(crc32(fields, position)), payload)
        position += RECORD_HEADER_BYTES + len(payload)
    return b"".join(parts)


def find_record(read: Read, marker: int, position: int, stop: int) -> tuple[int, int] | None:
    """The position and offset of the first record with a whole header at a position or behind it."""
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
    """What is in a segment from a position on to another, in its order and without a byte left out."""
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
    """Length and check of the payload, time, offset and synced of a record, if one begins at a place."""
    body = place + _FIELDS.size
    if body + _NUMBER.size > len(chunk):
        return None
    found, length, check, time_ns, offset, synced = _FIELDS.unpack_from(chunk, place)
    if found != marker or _NUMBER.unpack_from(chunk, body)[0] != crc32(chunk[place:body], position):
        return None
    return length, check, time_ns, offset, synced

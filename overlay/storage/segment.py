"""A segment: one file of a log, with records of ascending offsets.

There is no index of offsets. A record knows its offset, and one is found from any position on by the marker,
so an offset is found by bisection: some ten reads of a segment of 64 MiB, no memory, and nothing that a crash
could damage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import pack
from typing import Literal
from zlib import crc32

from covey.overlay.storage.files import Files
from covey.overlay.storage.records import (
    SEGMENT_HEADER_BYTES,
    Found,
    check_version,
    find_record,
    scan,
)

_NAME = re.compile(r"(\d{20})-(\d+)-([0-9a-f]{8})\.segment")
_WALK_BYTES = 128 << 10
"""A distance at which reading all records is cheaper than another step of a bisection."""
_LAST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Missing:
    """The offsets `first` to `end`, without `end`, that a log cannot serve: removed by retention; damaged,
    although they were synced; or cut at a recovery, where it is not known that they ever were.
    """

    first: int
    end: int
    reason: Literal["removed", "damaged", "cut"]


@dataclass(slots=True)
class Segment:
    """A segment file. `first` is the offset of its first record, `size` its bytes without those that are
    being written, `previous_end` where the offsets of the segment before it end; those between were cut.
    """

    name: str
    first: int
    marker: int
    size: int
    previous_end: int
    header_damaged: bool = False

    def read(self, files: Files) -> Reader:
        """Reads from its file."""
        return Reader(files, self.name)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one file: a `Read` of `records`."""

    files: Files
    name: str

    def __call__(self, position: int, size: int) -> bytes:
        return self.files.read(self.name, position, size)


def new_segment(first: int, previous_end: int, salt: int) -> Segment:
    """A segment that has no file yet. `salt` is a secret number of 32 bits."""
    marker = crc32(pack("<Q", first), salt) or 1
    name = f"{first:020d}-{first - previous_end}-{marker:08x}.segment"
    return Segment(name, first, marker, 0, previous_end)


def open_segments(files: Files) -> list[Segment]:
    """The segments of a directory, in order. Reads their headers."""
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
    """A position from which a scan comes to the record of an offset, behind few others."""
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


def first_time_ns(files: Files, segment: Segment) -> int:
    """The time of the first record that can be read, 0 if none can."""
    for piece in scan(segment.read(files), segment.marker, SEGMENT_HEADER_BYTES, segment.size):
        if isinstance(piece, Found) and piece.payload:
            return piece.time_ns
    return 0


def last_time_ns(files: Files, segment: Segment) -> int:
    """The time of the last record that can be read, 0 if none can."""
    read, distance = segment.read(files), _LAST_BYTES
    while True:
        start = max(SEGMENT_HEADER_BYTES, segment.size - distance)
        time_ns = 0
        for piece in scan(read, segment.marker, start, segment.size):
            if isinstance(piece, Found) and piece.payload:
                time_ns = piece.time_ns
        if time_ns or start == SEGMENT_HEADER_BYTES:
            return time_ns
        distance *= 4

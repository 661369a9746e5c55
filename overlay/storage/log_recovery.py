"""Makes of the files that a crash has left a log that can go on.

Only the last segment can be torn, since each is synced before the next one begins. Its torn end is cut, and
the log goes on in a new segment: the offsets that the torn bytes may have had are left out, and the new
segment's name says so. What is sound but not known to be durable is written again in
place, with the same bytes, and synced, for a system that has failed to write it need not try again by itself.

A crash during the recovery leaves files of which the next one makes the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.overlay.storage.examination import Examination, examine
from covey.overlay.storage.files import Files
from covey.overlay.storage.records import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
)
from covey.overlay.storage.segment import Missing, Segment, new_segment, open_segments

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found when a log was opened: the offset of the next record, and what is `missing` in the last
    segment, its torn end of `torn_bytes` included. `marked` is the newest sync of which the last segment
    knows.
    """

    end: int
    marked: int
    missing: tuple[Missing, ...] = ()
    torn_bytes: int = 0
    rewritten_bytes: int = 0


def recover(files: Files, salt: int) -> tuple[list[Segment], Recovery]:
    """The segments of a log, none for a new one, and what was found. `salt` as for `Log`. Reads the last
    segment whole, and the headers of the others.
    """
    segments = open_segments(files)
    if not segments:
        return segments, Recovery(0, 0)
    segment = segments[-1]
    last = examine(files, segment)
    torn_bytes, missing = segment.size - last.size, list(last.missing)
    rewritten_bytes = _write_again(files, segment, last)
    files.sync_directory()  # the last segment must not vanish while the next one stays
    end = last.end + -(-torn_bytes // (RECORD_HEADER_BYTES + 1))
    if torn_bytes:
        missing.append(Missing(last.end, end, "cut"))
        segments.append(_create(files, new_segment(end, last.end, salt)))
        files.truncate(segment.name, segment.size)
    return segments, Recovery(end, last.synced, tuple(missing), torn_bytes, rewritten_bytes)


def _write_again(files: Files, segment: Segment, last: Examination) -> int:
    """Make durable what may be in no more than a cache, and mend the header; the bytes written."""
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
    return position - last.unsure


def _create(files: Files, segment: Segment) -> Segment:
    writer = files.create(segment.name)
    writer.write(SEGMENT_HEADER)
    writer.sync()
    writer.close()
    files.sync_directory()
    segment.size = SEGMENT_HEADER_BYTES
    return segment

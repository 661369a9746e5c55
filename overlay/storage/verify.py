"""Reads a whole log and says what is damaged. Changes nothing, so it may read what a process uses; then the
last segment may end in a record that is being written, which counts as torn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from covey.overlay.storage.examination import examine
from covey.overlay.storage.files import Files
from covey.overlay.storage.segment import Missing, open_segments


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """A segment file: its offsets, `first` to `end`, its sound records, its bytes, and what is damaged.
    `missing` has the offsets that were synced and cannot be read; those between `end` and the next segment's
    `first` were cut by a recovery. Of the last segment the next recovery cuts `torn_bytes`.
    """

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
        """Whether every record is there, and nothing else."""
        return not (self.missing or self.damaged_bytes or self.torn_bytes or self.header_damaged)


def verify(files: Files) -> Iterator[SegmentReport]:
    """A report of each segment, in order, as it has been read: some 300 MB/s. `StorageError` where a file
    cannot be read.
    """
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

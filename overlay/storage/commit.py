"""The group commit of a log: one write and one sync for all records that were appended before it."""

from __future__ import annotations

from collections.abc import Sequence

from covey.overlay.storage.errors import StorageError
from covey.overlay.storage.files import Files, FileWriter
from covey.overlay.storage.records import (
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    Record,
    encode_records,
)
from covey.overlay.storage.segment import Segment


class Commit:
    """Records on their way to the disk, in a segment that `writer` writes, or in a new one. `run` may be
    called in another thread than the log's; then `Log.end_sync` takes the outcome.
    """

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
        """What is written."""
        return len(self._data)

    def run(self) -> None:
        """Write and sync; blocks. An error is kept for `Log.end_sync`."""
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

"""Copies the files of a log that a process may be writing into another directory."""

from __future__ import annotations

from collections.abc import Iterator

from covey.overlay.storage.errors import StorageError
from covey.overlay.storage.files import Files
from covey.overlay.storage.segment import open_segments

_STEP_BYTES = 1 << 20


def backup(source: Files, target: Files) -> Iterator[int]:
    """Copy a log into an empty directory, in steps: yields the bytes of each. What is written after the first
    step is left out, so the copy may end in a record that was being written, which its recovery cuts.

    `StorageError`: "in use" if the target is not empty, "missing" where a segment was removed meanwhile.
    """
    if target.names():
        raise StorageError("in use", target.path, "it has files: expected an empty directory for a backup")
    for segment in open_segments(source):
        writer = target.create(segment.name)
        for position in range(0, segment.size, _STEP_BYTES):
            data = source.read(segment.name, position, min(_STEP_BYTES, segment.size - position))
            writer.write(data)
            yield len(data)
        writer.sync()
        writer.close()
    target.sync_directory()

"""What can be wrong with stored data, or with the place where it is stored."""

from __future__ import annotations

import errno
from typing import Literal

from covey.matcher.errors import CoveyError

Problem = Literal[
    "missing",
    "read-only",
    "full",
    "in use",
    "failed",
    "version",
    "offset",
    "record",
    "damaged",
    "input/output",
]
"""What is wrong: no such directory or file; no permission to write; no room; another process has the
directory; a log takes no records after a failed write; a file of another version; an offset that the log does
not have; a record over its bounds; flipped bits in the state of a broker; all else that the operating
system reports.
"""


CANNOT_STORE = "cannot store events"
"""In the goodbye of a broker that stops because of its storage."""


class StorageError(CoveyError):
    """A file or directory could not be used: `path`, what is wrong with it, and what was expected."""

    def __init__(self, problem: Problem, path: str, sentence: str) -> None:
        super().__init__(f"{path}: {sentence}")
        self.problem = problem
        self.path = path
        self.sentence = sentence


_PROBLEMS: dict[int, tuple[Problem, str]] = {
    errno.ENOENT: ("missing", "it does not exist: expected an existing one"),
    errno.ENOTDIR: ("missing", "it is not a directory: expected one"),
    errno.EACCES: ("read-only", "it cannot be written: expected a directory that this process may write to"),
    errno.EPERM: ("read-only", "it cannot be written: expected a directory that this process may write to"),
    errno.EROFS: ("read-only", "its file system is read-only: expected one that can be written"),
    errno.ENOSPC: ("full", "no room is left on the disk: expected room for the next records"),
    errno.EDQUOT: ("full", "the disk quota is used up: expected room for the next records"),
    errno.EFBIG: ("full", "the file may not grow further: expected room for the next records"),
}


def storage_error(path: str, error: OSError) -> StorageError:
    """The error of the operating system, as one sentence."""
    problem, sentence = _PROBLEMS.get(
        error.errno or 0,
        ("input/output", f"{error.strerror or error}: expected a working file system"),
    )
    return StorageError(problem, path, sentence)

"""The files of a log's directory. Every error is a `StorageError`. Bytes are durable after `FileWriter.sync`,
new and removed names after `Files.sync_directory`. The simulator has its own (`sim/simulator/disk.py`)."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol

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
"""Of a log: "failed" after a failed write, "offset" if not in it, "record" if over its bounds. "damaged":
flipped bits in a broker's state. "input/output": anything else."""
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
LOCK = "lock"


CANNOT_STORE = "cannot store events"
"""In the goodbye of a broker that stops because of its storage."""


class StorageError(CoveyError):
    """`path` cannot be used; `sentence` is what is wrong with it, and what was expected."""

    def __init__(self, problem: Problem, path: str, sentence: str) -> None:
        super().__init__(f"{path}: {sentence}")
        self.problem = problem
        self.path = path
        self.sentence = sentence


def storage_error(path: str, error: OSError) -> StorageError:
    problem, sentence = _PROBLEMS.get(
        error.errno or 0,
        ("input/output", f"{error.strerror or error}: expected a working file system"),
    )
    return StorageError(problem, path, sentence)


class FileWriter(Protocol):
    def write(self, data: bytes) -> None:
        """Write all of `data`. After an error an unknown part is written."""

    def sync(self) -> None:
        """Make written bytes durable. After an error their state is unknown."""

    def close(self) -> None:
        """Close without a sync."""


class Files(Protocol):
    @property
    def path(self) -> str:
        """The directory, for messages."""

    def names(self) -> list[str]:
        """The files' names, sorted."""

    def size(self, name: str) -> int:
        """The bytes of a file."""

    def read(self, name: str, position: int, size: int) -> bytes:
        """Fewer bytes at the end of the file."""

    def create(self, name: str) -> FileWriter:
        """`StorageError` if the file exists."""

    def writer(self, name: str, position: int) -> FileWriter:
        """Open an existing file to write from `position` on."""

    def truncate(self, name: str, size: int) -> None:
        """Durable on return."""

    def remove(self, name: str) -> None:
        """Durable after `sync_directory`."""

    def sync_directory(self) -> None:
        """Make names durable."""

    def lock(self) -> None:
        """`StorageError` if another process has the lock."""

    def unlock(self) -> None:
        """Release the lock."""


class OsFiles:
    """Only the owner may read what is created, since records hold what clients publish."""

    def __init__(self, directory: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = os.fspath(directory)
        self._lock: int | None = None
        with _errors(self.path):
            if create and not os.path.isdir(self.path):
                place = Path(os.path.abspath(self.path))
                new = [each for each in (place, *place.parents) if not each.is_dir()]
                os.makedirs(self.path, mode=0o700)
                for each in new:
                    _sync_directory(os.fspath(each.parent))
            if not os.path.isdir(self.path):
                os.listdir(self.path)  # raises with the reason

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def names(self) -> list[str]:
        with _errors(self.path):
            return sorted(entry.name for entry in os.scandir(self.path) if entry.is_file())

    def size(self, name: str) -> int:
        with _errors(self._at(name)):
            return os.stat(self._at(name)).st_size

    def read(self, name: str, position: int, size: int) -> bytes:
        with _errors(self._at(name)), _opened(self._at(name), os.O_RDONLY) as file:
            data = more = os.pread(file, size, position)
            while more and len(data) < size:
                more = os.pread(file, size - len(data), position + len(data))
                data += more
            return data

    def create(self, name: str) -> OsWriter:
        with _errors(self._at(name)):
            file = os.open(self._at(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return OsWriter(self._at(name), file, 0)

    def writer(self, name: str, position: int) -> OsWriter:
        with _errors(self._at(name)):
            return OsWriter(self._at(name), os.open(self._at(name), os.O_WRONLY | os.O_CLOEXEC), position)

    def truncate(self, name: str, size: int) -> None:
        with _errors(self._at(name)), _opened(self._at(name), os.O_WRONLY) as file:
            os.ftruncate(file, size)
            os.fsync(file)

    def sync(self, name: str) -> None:
        """Make durable what another writer has written."""
        with _errors(self._at(name)), _opened(self._at(name), os.O_RDWR) as file:
            sync_file(file)

    def remove(self, name: str) -> None:
        with _errors(self._at(name)):
            os.remove(self._at(name))

    def sync_directory(self) -> None:
        with _errors(self.path):
            _sync_directory(self.path)

    def lock(self) -> None:
        import fcntl

        path = self._at(LOCK)
        with _errors(path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise storage_error(path, error) from None
            owner = Path(path).read_text(errors="replace").strip() or "unknown"
            sentence = f"process {owner} uses it: expected a directory that no other process uses"
            raise StorageError("in use", self.path, sentence) from None
        self._lock = file
        with suppress(OSError):  # on a full disk the lock holds all the same
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class OsWriter:
    def __init__(self, path: str, file: int, position: int) -> None:
        self._path = path
        self._file = file
        self._position = position

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        with _errors(self._path):
            while view:
                written = os.pwrite(self._file, view, self._position)
                self._position += written
                view = view[written:]

    def sync(self) -> None:
        with _errors(self._path):
            sync_file(self._file)
        check_linked(self._file, self._path)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def sync_file(file: int) -> None:
    """Sync the data and the metadata needed to read it, past the disk's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    elif sys.platform == "win32":
        os.fsync(file)
    else:
        os.fdatasync(file)


def check_linked(file: int, path: str) -> None:
    """`StorageError` for a removed file, since bytes written to it would be lost on close."""
    if os.fstat(file).st_nlink == 0:
        raise StorageError("missing", path, "it was removed while it was in use: expected that it stays")


def _sync_directory(path: str) -> None:
    if sys.platform != "win32":  # where a directory cannot be opened
        with _opened(path, os.O_RDONLY) as directory:
            os.fsync(directory)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from None

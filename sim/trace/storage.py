"""Folders on any file system of `pyarrow.fs`: local, S3, HDFS, and others. A file appears whole: it is
written under a hidden name and renamed, or the object store shows it once it is complete."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from covey.matcher.errors import CoveyError

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Stores without renaming, which show an object once its upload has ended."""


_TRIES = 5


class StorageError(CoveyError, OSError):
    """A path cannot be read or written; the message names it."""


class UnknownSystemError(StorageError, ValueError):
    """A URI that names no file system."""


_AWS_ERROR = re.compile(r"AWS Error (\w+) during (\w+) operation: (?:curlCode: \d+, )?([^;.]*)")
_DETAIL = re.compile(r"Detail: \[errno \d+\] (.+)")


def reason_of(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    aws, detail = _AWS_ERROR.search(text), _DETAIL.search(text)
    if aws:
        kind, operation, what = aws.groups()
        parts = [what] if kind == "NETWORK_CONNECTION" else [kind, what]
        return f"{operation} failed: {', '.join(filter(None, parts))}"
    return detail[1] if detail else text.partition("\n")[0] or type(error).__name__


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, which need not exist; `shown` is its path, or a URI without options, for users and Spark."""

    system: fs.FileSystem
    path: str
    shown: str

    @classmethod
    def at(cls, place: str | Path | Folder) -> Folder:
        """Raises `StorageError` for a URI that pyarrow cannot resolve, `UnknownSystemError` for one of an
        unknown file system."""
        if isinstance(place, Folder):
            return place
        text = str(place)
        if not _URI.match(text):
            path = str(Path(text).absolute())
            return cls(fs.LocalFileSystem(), path, path)
        try:
            system, path = fs.FileSystem.from_uri(text)
        except ValueError as error:
            raise UnknownSystemError(f"{text}: {reason_of(error)}") from None
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{text}: {reason_of(error)}") from None
        path = path.rstrip("/")
        return cls(system, path, path if text.startswith("file:") else text.partition("?")[0].rstrip("/"))

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.system, f"{self.path}/{name}", f"{self.shown}/{name}")

    def __str__(self) -> str:
        return self.shown

    @property
    def _kind(self) -> str:
        system = self.system
        while isinstance(system, fs.SubTreeFileSystem):
            system = system.base_fs
        return str(system.type_name)

    @property
    def is_local(self) -> bool:
        """Whether Python's own functions reach it."""
        return isinstance(self.system, fs.LocalFileSystem)

    # --- reading --------------------------------------------------------------------------------------------

    def info(self) -> fs.FileInfo:
        """Its `type` is NotFound, File or Directory."""
        return self.system.get_file_info(self.path)

    @property
    def exists(self) -> bool:
        return bool(self.info().type != fs.FileType.NotFound)

    def children(self) -> list[fs.FileInfo]:
        """The folder's entries by name; empty if there is no folder."""
        selector = fs.FileSelector(self.path, allow_not_found=True)
        found: list[fs.FileInfo] = self.system.get_file_info(selector)
        return sorted(found, key=lambda info: info.base_name)

    def sizes(self) -> dict[str, int]:
        """The bytes of every file below, by its path relative to this folder."""
        selector = fs.FileSelector(self.path, recursive=True, allow_not_found=True)
        start = len(self.path) + 1
        return {
            info.path[start:]: info.size
            for info in self.system.get_file_info(selector)
            if info.type == fs.FileType.File
        }

    def read_text(self) -> str:
        with self.system.open_input_stream(self.path) as stream:
            return bytes(stream.read()).decode()

    # --- writing --------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Create the folder and its parents, where the file system has folders."""
        if self._kind not in _OBJECT_STORES:
            self.system.create_dir(self.path, recursive=True)

    @contextmanager
    def writing(self) -> Iterator[pa.NativeFile]:
        """A stream for the file at this path, which appears, or is replaced, when the block ends."""
        if self._kind in _OBJECT_STORES:
            with self.system.open_output_stream(self.path) as stream:
                yield stream
            return
        parent, _, name = self.path.rpartition("/")
        hidden = f"{parent}/.{name}.part"  # which no glob for the suffix finds
        try:
            with self.system.open_output_stream(hidden) as stream:
                yield stream
            try:
                self.system.move(hidden, self.path)
            except OSError:  # where a rename does not replace, as on HDFS
                self.system.delete_file(self.path)
                self.system.move(hidden, self.path)
        except BaseException:  # such as of a full disk
            with suppress(OSError):
                self.system.delete_file(hidden)
            raise

    def write_text(self, text: str) -> None:
        with self.writing() as stream:
            stream.write(text.encode())

    def create_text(self, text: str) -> bool:
        """Write the file at this path if there is none; return whether it was written.

        Of concurrent writers exactly one succeeds on local file systems with links. Elsewhere all that find
        no file write it, and the last one stays.
        """
        if not self.is_local:
            return self._create_unless_found(text)
        parent, _, name = self.path.rpartition("/")
        whole = f"{parent}/.{name}.{secrets.token_hex(8)}"
        try:
            Path(whole).write_text(text, encoding="utf-8")
            try:
                os.link(whole, self.path)
            except FileExistsError:
                return False
            except OSError:  # a file system without links
                return self._create_unless_found(text)
        finally:
            Path(whole).unlink(missing_ok=True)
        return True

    def _create_unless_found(self, text: str) -> bool:
        if self.exists:
            return False
        self.write_text(text)
        return True

    def remove(self) -> None:
        """Remove the folder or file, if there is one, even while others write into it or remove it."""
        for tries_left in reversed(range(_TRIES)):
            kind = self.info().type
            if kind == fs.FileType.NotFound:
                return
            try:
                if kind == fs.FileType.File:
                    self.system.delete_file(self.path)
                else:
                    self.system.delete_dir(self.path)
            except OSError:
                if not tries_left:
                    raise

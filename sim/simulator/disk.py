"""Files of a directory in memory, with the faults of real disks, drawn from a seed. A crash leaves any prefix
or any mixture of sectors of the unsynced writes, and zeros or noise in place of lost sectors; unsynced names
may vanish, and removed ones come back. A failed sync drops its writes silently: they are read until the
crash, and later syncs do not make them durable. A failed write may have written a part."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from covey.overlay.storage.files import StorageError

SECTOR_BYTES = 512


class SimulatedCrash(Exception):  # noqa: N818 - the end of a process, which nothing handles as an error
    """The process or the machine ends here."""


@dataclass(slots=True)
class _Content:
    """Bytes, and flipped bits by position. A flip ends when the byte is overwritten or cut."""

    data: bytearray = field(default_factory=bytearray)
    flips: dict[int, int] = field(default_factory=dict)

    def put(self, position: int, data: bytes) -> None:
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        end = position + len(data)
        for flipped in [each for each in self.flips if position <= each < end]:
            if data[flipped - position] != self.data[flipped]:  # a recovery writes what it has read
                del self.flips[flipped]
        self.data[position:end] = data

    def cut(self, size: int) -> None:
        del self.data[size:]
        self.flips = {position: bit for position, bit in self.flips.items() if position < size}

    def flip(self, position: int, bit: int) -> None:
        self.data[position] ^= bit
        self.flips[position] = bit

    def copy(self) -> _Content:
        return _Content(bytearray(self.data), dict(self.flips))


@dataclass(slots=True)
class _File:
    current: _Content = field(default_factory=_Content)
    durable: _Content = field(default_factory=_Content)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    """(position, data) of writes that the next sync makes durable."""
    dropped: list[tuple[int, bytes]] = field(default_factory=list)
    """(position, data) of writes of a failed sync."""


class SimulatedFiles:
    """`Files` in memory. `path` is for messages; a disk writes `sector_bytes` atomically."""

    def __init__(self, seed: int, *, path: str = "disk", sector_bytes: int = SECTOR_BYTES) -> None:
        self.path = path
        self.room: int | None = None
        """Bytes by which files may grow before the disk is full."""
        self.crash_in: int | None = None
        """The number of changes and syncs until one raises `SimulatedCrash`."""
        self.failing_writes = 0
        self.failing_syncs = 0
        self.unreadable: set[str] = set()
        self._random = random.Random(f"disk {seed}")
        self._sector_bytes = sector_bytes
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._process = 0
        self._locked = False

    # --- Files ----------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._file(name).current.data)

    def read(self, name: str, position: int, size: int) -> bytes:
        file = self._file(name)
        if name in self.unreadable:
            raise StorageError("input/output", f"{self.path}/{name}", "input/output error")
        return bytes(file.current.data[position : position + size])

    def create(self, name: str) -> SimulatedWriter:
        self._step()
        if name in self._files:
            raise StorageError("input/output", f"{self.path}/{name}", "it exists: expected a new name")
        if self.room is not None and self.room <= 0:
            raise self._full(name)
        self._files[name] = _File()
        return self.writer(name, 0)

    def writer(self, name: str, position: int) -> SimulatedWriter:
        return SimulatedWriter(self, name, self._file(name), position, self._process)

    def truncate(self, name: str, size: int) -> None:
        """Durable or not at all."""
        file = self._file(name)
        self._step()
        self._sync(file, name)
        if self.room is not None:
            self.room += len(file.current.data) - size
        file.current.cut(size)
        file.durable.cut(size)
        file.dropped.clear()

    def remove(self, name: str) -> None:
        file = self._file(name)
        self._step()
        if self.room is not None:
            self.room += len(file.current.data)
        del self._files[name]

    def sync_directory(self) -> None:
        self._step()
        self._durable_names = dict(self._files)

    def lock(self) -> None:
        if self._locked:
            raise StorageError("in use", self.path, "a process uses it: expected one that no process uses")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    # --- faults ---------------------------------------------------------------------------------------------

    def crash(self, *, power: bool = True) -> None:
        """The process has ended; without `power` the system goes on and nothing is lost."""
        self._process += 1
        self._locked = False
        self.crash_in = None
        if not power:
            return
        files = dict(self._durable_names)
        for name in sorted(self._files.keys() | files.keys()):
            if self._random.random() < 0.5 and self._files.get(name) is not files.get(name):
                if name in self._files:
                    files[name] = self._files[name]
                else:
                    del files[name]
        for name in sorted(files):
            self._tear(files[name])
        self._files, self._durable_names = files, dict(files)

    @property
    def flips(self) -> list[tuple[str, int, int]]:
        return [(name, *flip) for name, file in self._files.items() for flip in file.current.flips.items()]

    def flip(self, name: str, position: int) -> bool:
        """Flip a bit of a byte that is on the disk and not about to be written; return whether it is."""
        file, bit = self._file(name), 1 << self._random.randrange(8)
        writes = file.unsynced + file.dropped
        if position >= len(file.durable.data) or any(0 <= position - at < len(data) for at, data in writes):
            return False
        file.current.flip(position, bit)
        file.durable.flip(position, bit)
        return True

    def _tear(self, file: _File) -> None:
        kept = self._random.choice(("nothing", "all", "first", "sectors"))
        writes = file.dropped + file.unsynced
        if kept == "first":
            count = self._random.randrange(len(writes) + 1)
            rest = writes[count : count + 1]
            writes = writes[:count]
            writes += [(position, data[: self._random.randrange(len(data) + 1)]) for position, data in rest]
        for position, data in writes if kept != "nothing" else ():
            for start, piece in self._sectors(position, data):
                if kept != "sectors" or self._random.random() < 0.5:
                    file.durable.put(start, piece)
                elif start + len(piece) > len(file.durable.data) and self._random.random() < 0.5:
                    noise = self._random.random() < 0.5
                    lost = self._random.randbytes(len(piece)) if noise else bytes(len(piece))
                    file.durable.put(max(start, len(file.durable.data)), lost)
        file.current = file.durable.copy()
        file.unsynced, file.dropped = [], []

    def _sectors(self, position: int, data: bytes) -> list[tuple[int, bytes]]:
        first = self._sector_bytes - position % self._sector_bytes
        ends = [*range(first, len(data), self._sector_bytes), len(data)]
        return [(position + a, data[a:b]) for a, b in zip([0, *ends], ends, strict=False) if a < b]

    # --- what writers do ------------------------------------------------------------------------------------

    def _file(self, name: str) -> _File:
        if name not in self._files:
            raise StorageError("missing", f"{self.path}/{name}", "it does not exist: expected a file")
        return self._files[name]

    def _full(self, name: str) -> StorageError:
        return StorageError("full", f"{self.path}/{name}", "no room is left on the disk: expected room")

    def _step(self) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise SimulatedCrash

    def _write(self, file: _File, name: str, position: int, data: bytes) -> None:
        growth = max(0, position + len(data) - len(file.current.data))
        crashes = self.crash_in == 0
        full = self.room is not None and growth > self.room
        if crashes or full or self.failing_writes:
            room = len(data) if self.room is None else max(0, self.room - growth + len(data))
            data = data[: min(room, self._random.randrange(len(data) + 1))]
            growth = max(0, position + len(data) - len(file.current.data))
        if self.room is not None:
            self.room -= growth
        file.current.put(position, data)
        file.unsynced.append((position, data))
        self._step()
        if full:
            raise self._full(name)
        if self.failing_writes:
            self.failing_writes -= 1
            raise StorageError("input/output", f"{self.path}/{name}", "input/output error")

    def _sync(self, file: _File, name: str) -> None:
        self._step()
        if self.failing_syncs:
            self.failing_syncs -= 1
            file.dropped += file.unsynced
            file.unsynced = []
            raise StorageError("input/output", f"{self.path}/{name}", "input/output error at a sync")
        for position, data in file.unsynced:
            file.durable.put(position, data)
        file.unsynced = []


class SimulatedWriter:
    """`FileWriter` in memory, of one process: after a crash it raises `SimulatedCrash`."""

    def __init__(self, files: SimulatedFiles, name: str, file: _File, position: int, process: int) -> None:
        self._files = files
        self._name = name
        self._file = file
        self._position = position
        self._process = process

    def _check(self) -> None:
        if self._process != self._files._process:
            raise SimulatedCrash

    def write(self, data: bytes) -> None:
        self._check()
        self._files._write(self._file, self._name, self._position, data)
        self._position += len(data)

    def sync(self) -> None:
        self._check()
        self._files._sync(self._file, self._name)

    def close(self) -> None:
        """See `FileWriter`."""

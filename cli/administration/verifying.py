"""Reads what brokers have stored, and says what is damaged: their logs, and their state in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from covey.overlay.node.state_store import CUT, UNSYNCED_TRANSACTIONS, VERSION, cut_transactions, damage_of
from covey.overlay.node.storage_directory import log_directories, stored_states
from covey.overlay.storage.files import OsFiles
from covey.overlay.storage.recovery import verify

_READINGS = 3
"""Of a file to which a broker may write meanwhile, so that a part of a write is taken for no damage."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A log, or the state of a broker: what it has, and what is wrong with it, in one sentence; "" if it is
    sound. `torn_bytes` may be a write that is under way.
    """

    path: str
    records: int
    bytes: int
    torn_bytes: int
    damage: str

    @property
    def sound(self) -> bool:
        return not self.damage

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def line(self) -> str:
        torn = f", {self.torn_bytes:,} bytes torn or being written" if self.torn_bytes else ""
        what = self.damage or "sound"
        return f"{self.path}: {self.records:,} records, {self.bytes:,} bytes{torn}: {what}"


def verify_directory(
    directory: Path, on_progress: Callable[[str, float], object] = lambda *_: None
) -> Iterator[StoredReport]:
    """A report of each log and state below a directory, that of one broker or one above. `InputError` if
    there is none; `StorageError` where a file cannot be read.
    """
    states = stored_states(directory)
    for number, state in enumerate(states):
        yield _verify_state(state)
        logs = list(log_directories(state.parent))
        for position, (name, path) in enumerate(logs):
            on_progress(f"reading {name}", (number + position / len(logs)) / len(states))
            yield _verify_log(path)
    on_progress("read", 1.0)


def _verify_state(path: Path) -> StoredReport:
    damage = ""
    try:
        cuts = (cut_transactions(Path(f"{path}-wal")) for _ in range(_READINGS))
        cut = all(each > UNSYNCED_TRANSACTIONS for each in cuts)
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.execute("BEGIN")  # one snapshot
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in range(1, VERSION + 1):
                damage = f"it has version {version}: expected 1 to {VERSION}"
            elif cut:
                damage = CUT
            else:
                damage = damage_of(database, rows=version == VERSION)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        damage = str(error).replace("\n", " ")
    return StoredReport(str(path), 0, path.stat().st_size, 0, damage and f"damaged: {damage}")


def _verify_log(path: Path) -> StoredReport:
    records = size = torn = lost = damaged = 0
    for segment in verify(OsFiles(path)):
        records += segment.records
        size += segment.bytes
        torn += segment.torn_bytes
        lost += sum(missing.end - missing.first for missing in segment.missing)
        damaged += segment.damaged_bytes + segment.header_damaged
    damage = f"{lost:,} records cannot be read, {damaged:,} bytes are damaged" if lost or damaged else ""
    return StoredReport(str(path), records, size, torn, damage)

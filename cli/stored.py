"""`covey backup` and `covey verify`: copies and checks of what brokers store, while they run."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json
from covey.matcher.errors import InputError
from covey.overlay.node.state_store import CUT, UNSYNCED_TRANSACTIONS, VERSION, cut_transactions, damage_of
from covey.overlay.node.storage_directory import STATE, log_directories, stored_states
from covey.overlay.storage.files import OsFiles, StorageError
from covey.overlay.storage.recovery import backup, verify


def backup_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A broker's directory, or the one above it.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or an empty directory.")],
) -> None:
    """Copy what brokers have stored, while they run.

    The copy is checked as by covey verify. To go back to it, stop the broker, put the copy in the place of
    its directory, and start it: events that had come since are not in it.

    Example: covey backup /var/lib/covey/b1 --to /backup/b1
    """
    from covey.cli.support.output import progress

    with progress() as on_progress:
        copied = back_up(directory, to, on_progress)
        reports = list(verify_directory(to, on_progress))
    for report in reports:
        print(report.line())
    print(f"{to}: {copied:,} bytes copied")
    raise typer.Exit(0 if all(report.sound for report in reports) else 1)


def verify_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A broker's directory, or the one above it.")
    ],
    json_output: Json = False,
) -> None:
    """Read all that brokers have stored in a directory, and report what is damaged.

    Changes nothing, and may run beside the broker: then the last segment may end in a record that is being
    written (torn), which is no damage. Exits with 1 if anything is damaged.

    Example: covey verify /var/lib/covey/b1
    """
    from covey.cli.support.output import print_json, progress

    with progress() as on_progress:
        reports = list(verify_directory(directory, on_progress))
    if json_output:
        print_json([asdict(report) for report in reports])
    else:
        for report in reports:
            print(report.line())
    raise typer.Exit(0 if all(report.sound for report in reports) else 1)


_ATTEMPTS = 5


def back_up(
    directory: Path, target: Path, on_progress: Callable[[str, float], object] = lambda *_: None
) -> int:
    """Copy the directory of a broker, or one above several, to `target`; returns the bytes copied. The copy
    appears under its name once it is whole, and is on the disk at the return. The state is copied first, so
    receivers' progress is never ahead of the log; receivers drop the repeated events. A segment that is
    removed meanwhile restarts the copy. `InputError` if there is nothing to copy, or the target has files;
    `StorageError` where a file cannot be read or written."""
    states = stored_states(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"--to {target}: it exists: expected a new or an empty directory")
    if not target.name:
        raise InputError(f"--to {target}: expected a directory by its name, since the copy takes its place")
    partial = target.with_name(target.name + ".partial")
    try:
        copied = 0
        for number, state in enumerate(states):
            place = partial / state.parent.relative_to(directory)
            on_progress(f"copying {state.parent.name}", number / len(states))
            copied += _copied(state, place)
        partial.rename(target)
        OsFiles(target.absolute().parent).sync_directory()
    except OSError as error:
        said = f"{error.strerror}: expected a new directory"
        raise StorageError("input/output", str(target), said) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    on_progress("copied", 1.0)
    return copied


def _copied(state: Path, place: Path) -> int:
    for attempt in range(_ATTEMPTS):
        shutil.rmtree(place, ignore_errors=True)
        try:
            return _copied_once(state, place)
        except StorageError as error:
            if error.problem != "missing" or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _copied_once(state: Path, place: Path) -> int:
    OsFiles(place, create=True)
    try:
        with (
            closing(_reading(state)) as source,
            closing(sqlite3.connect(place / STATE)) as copy,
        ):
            source.backup(copy)
    except sqlite3.Error as error:
        raise StorageError("input/output", str(state), f"{error}: expected a database to copy") from None
    copied = (place / STATE).stat().st_size
    OsFiles(place).sync(STATE)
    OsFiles(place).sync_directory()
    for _, log in log_directories(state.parent):
        copied += sum(backup(OsFiles(log), OsFiles(place / log.name, create=True)))
    return copied


def _reading(state: Path) -> sqlite3.Connection:
    """Read-only. The URI has `%`, `#` and `?` of the path quoted: unquoted, it names another file."""
    return sqlite3.connect(f"{state.absolute().as_uri()}?mode=ro", uri=True)


_READINGS = 3
"""Of a file that a broker may be writing, so that a partial write is not reported as damage."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A log, or the state of a broker. `damage` is one sentence, "" if it is sound; `torn_bytes` may be a
    write in progress."""

    path: str
    records: int
    bytes: int
    torn_bytes: int
    damage: str

    @property
    def sound(self) -> bool:
        return not self.damage

    def line(self) -> str:
        torn = f", {self.torn_bytes:,} bytes torn or being written" if self.torn_bytes else ""
        what = self.damage or "sound"
        return f"{self.path}: {self.records:,} records, {self.bytes:,} bytes{torn}: {what}"


def verify_directory(
    directory: Path, on_progress: Callable[[str, float], object] = lambda *_: None
) -> Iterator[StoredReport]:
    """A report of each log and state below a directory of one broker or several. `InputError` if there is
    none; `StorageError` where a file cannot be read."""
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
        with closing(_reading(path)) as database:
            database.execute("BEGIN")  # one snapshot
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                damage = f"it has version {version}: expected {VERSION}"
            elif cut:
                damage = CUT
            else:
                damage = damage_of(database)
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

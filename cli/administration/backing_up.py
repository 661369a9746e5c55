"""Copies what brokers have stored, while they run."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from covey.matcher.errors import InputError
from covey.overlay.node.storage_directory import STATE, log_directories, stored_states
from covey.overlay.storage.files import OsFiles, StorageError
from covey.overlay.storage.recovery import backup

_ATTEMPTS = 5


def back_up(
    directory: Path, target: Path, on_progress: Callable[[str, float], object] = lambda *_: None
) -> int:
    """Copy the directory of a broker, or one above several, to `target`; the bytes copied. The copy appears
    under its name once it is whole.

    The state is copied first. So receivers' progress is never ahead of the log: what they have had since
    comes again, and they drop it. Where a segment is removed meanwhile, the copy begins again.

    `InputError` if there is nothing to copy, or if the target has files; `StorageError` where a file cannot
    be read or written.
    """
    states = stored_states(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"--to {target}: it exists: expected a new or an empty directory")
    partial = target.with_name(target.name + ".partial")
    try:
        copied = 0
        for number, state in enumerate(states):
            place = partial / state.parent.relative_to(directory)
            on_progress(f"copying {state.parent.name}", number / len(states))
            copied += _copied(state, place)
        partial.rename(target)
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
            closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(place / STATE)) as copy,
        ):
            source.backup(copy)
    except sqlite3.Error as error:
        raise StorageError("input/output", str(state), f"{error}: expected a database to copy") from None
    copied = (place / STATE).stat().st_size
    for _, log in log_directories(state.parent):
        copied += sum(backup(OsFiles(log), OsFiles(place / log.name, create=True)))
    return copied

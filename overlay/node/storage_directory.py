"""The directory of one broker: a log per durable type, and its state in SQLite, for one process at a time.

    DIRECTORY/b1/state.sqlite     where receivers are, durable sessions, watermarks
    DIRECTORY/b1/log-Quote/       the log of a durable type (`overlay/storage/log.py`)
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from covey.matcher.errors import InputError
from covey.overlay.core.access.identity import file_name
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.state_store import StateStore
from covey.overlay.storage.files import OsFiles

log = logging.getLogger("covey.broker")

STATE = "state.sqlite"
_LOG = "log-"


def broker_directory(storage: str, broker: str) -> Path:
    """The directory of a broker below that of an overlay file."""
    return Path(storage) / file_name(broker)


def log_directory(directory: Path, type_name: str) -> Path:
    return directory / (_LOG + quote(type_name, safe=""))


def log_directories(directory: Path) -> Iterator[tuple[str, Path]]:
    """The durable types that a broker's directory has, and their logs."""
    for path in sorted(directory.glob(_LOG + "*")):
        yield unquote(path.name.removeprefix(_LOG)), path


def stored_states(directory: Path) -> list[Path]:
    """The states below a directory, that of one broker or one above. `InputError` if there is none."""
    states = sorted(path for path in (directory / STATE, *directory.glob(f"*/{STATE}")) if path.exists())
    if not states:
        raise InputError(f"{directory}: expected the directory of a broker, with {STATE}, or one above it")
    return states


def open_storage(directory: Path, types: Mapping[str, Retention]) -> BrokerStorage:
    """The storage in a directory, which is made if it does not exist. `StorageError` if another process uses
    it, or it cannot be written.
    """
    lock = OsFiles(directory, create=True)
    lock.lock()
    try:
        state = StateStore(str(directory / STATE))
        try:
            storage = BrokerStorage(
                types,
                lambda name: OsFiles(log_directory(directory, name), create=True),
                state,
                salt=secrets.randbits(32),
                now_ns=time.time_ns,
                lock=lock,
            )
        except BaseException:
            state.close()
            raise
        _warn(directory, state, storage)
        return storage
    except BaseException:
        lock.unlock()
        raise


def _warn(directory: Path, state: StateStore, storage: BrokerStorage) -> None:
    """Say what was found at the opening and is not served."""
    if state.cut:
        log.warning(
            "%s: changes at its end that are torn and left out: %d; none was confirmed, unless a bit flipped",
            directory / STATE,
            state.cut,
        )
    for name, missing in storage.not_found():
        what = "torn, and cut" if missing.reason == "cut" else "damaged"
        path, count = log_directory(directory, name), missing.end - missing.first
        log.warning("%s: records from %d on that are %s: %d", path, missing.first, what, count)

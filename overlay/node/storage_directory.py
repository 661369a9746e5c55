"""The directory of one broker, for one process at a time, synced in a thread.

    DIRECTORY/b1/state.sqlite     cursors, durable sessions, watermarks
    DIRECTORY/b1/log-Quote/       the log of a durable type (`overlay/storage/log.py`)

One commit at a time; later data waits for the next, so a slow disk gets few large commits without a timer. A
failed commit ends the broker: what waits for it is never acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from covey.matcher.errors import InputError
from covey.overlay.core.access.identity import file_name
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.observing import Histogram
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.state_store import StateStore
from covey.overlay.storage.files import OsFiles

log = logging.getLogger("covey.broker")

STATE = "state.sqlite"
_LOG = "log-"
SYNC_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


def broker_directory(storage: str, broker: str) -> Path:
    return Path(storage) / file_name(broker)


def log_directory(directory: Path, type_name: str) -> Path:
    return directory / (_LOG + quote(type_name, safe=""))


def log_directories(directory: Path) -> Iterator[tuple[str, Path]]:
    """The durable types, and the directories of their logs."""
    for path in sorted(directory.glob(_LOG + "*")):
        yield unquote(path.name.removeprefix(_LOG)), path


def stored_states(directory: Path) -> list[Path]:
    """The states in a broker's directory, or one level below. `InputError` if there are none."""
    states = sorted(path for path in (directory / STATE, *directory.glob(f"*/{STATE}")) if path.exists())
    if not states:
        raise InputError(f"{directory}: expected the directory of a broker, with {STATE}, or one above it")
    return states


def open_storage(directory: Path, types: Mapping[str, Retention]) -> BrokerStorage:
    """Creates the directory if missing. `StorageError` if it is in use or cannot be written."""
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


class Syncing:
    """`synced` is called after each commit, `fail` with an error."""

    def __init__(
        self,
        storage: BrokerStorage,
        endpoint: BrokerEndpoint[Any],
        synced: Callable[[], object],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.storage = storage
        self.durations = Histogram(SYNC_BOUNDS_S)
        """Of commits, in seconds."""
        self._endpoint = endpoint
        self._synced = synced
        self._fail = fail
        self._commit: asyncio.Future[None] | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="covey-sync")

    @property
    def idle(self) -> bool:
        return self._commit is None and not self._endpoint.wants_sync

    def poke(self) -> None:
        if self._commit is not None or not self._endpoint.wants_sync:
            return
        self._endpoint.begin_sync()
        self.storage.begin_sync()
        self._commit = asyncio.get_running_loop().run_in_executor(self._thread, self._run)
        self._commit.add_done_callback(self._done)

    def _run(self) -> None:
        """In the thread. The loop may read `durations` one commit late."""
        start_s = time.perf_counter()
        self.storage.run_sync()
        self.durations.observe(time.perf_counter() - start_s)

    def _done(self, commit: asyncio.Future[None]) -> None:
        self._commit = None
        if self._closed:
            return  # the storage has ended it
        try:
            commit.result()
            self.storage.end_sync()
        except BaseException as error:
            self._fail(error)
            return
        self._synced()

    def close(self) -> None:
        """Wait for the thread and close the storage. `StorageError` if the last commit fails."""
        self._closed = True
        self._thread.shutdown()
        self.storage.close()

"""Syncs the storage of a broker in a thread of its own.

One commit is under way at a time. What is appended meanwhile is in the next one, so a slow disk gets few and
large commits, without a timer. A commit that has failed ends the broker: what it holds back is never
acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.observing import Histogram
from covey.overlay.node.broker_storage import BrokerStorage

SYNC_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Syncing:
    """The commits of one broker. `synced` is called when one has ended, `fail` with the error of one."""

    def __init__(
        self,
        storage: BrokerStorage,
        endpoint: BrokerEndpoint[Any],
        synced: Callable[[], object],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.storage = storage
        self.commits = 0
        self.durations = Histogram(SYNC_BOUNDS_S)
        """Of commits: writing and syncing, in seconds."""
        self._endpoint = endpoint
        self._synced = synced
        self._fail = fail
        self._commit: asyncio.Future[None] | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="covey-sync")

    @property
    def idle(self) -> bool:
        """Whether all that was appended is on disk."""
        return self._commit is None and not self._endpoint.wants_sync

    def poke(self) -> None:
        """Begin a commit if there is something to sync and none is under way."""
        if self._commit is not None or not self._endpoint.wants_sync:
            return
        self._endpoint.begin_sync()
        self.storage.begin_sync()
        self._commit = asyncio.get_running_loop().run_in_executor(self._thread, self._run)
        self._commit.add_done_callback(self._done)

    def _run(self) -> None:
        """In the thread; `durations` is read on the loop, between two commits or one too few."""
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
        self.commits += 1
        self._synced()

    def close(self) -> None:
        """Wait for the thread, and close the storage. `StorageError` if the last commit fails."""
        self._closed = True
        self._thread.shutdown()
        self.storage.close()

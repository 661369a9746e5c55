"""Worker processes that share nothing with the process that starts them.

A forked process would have the objects of gRPC without their threads, and crash or hang when it frees them;
so each worker is spawned. Ctrl-C reaches all processes of a terminal: workers block SIGINT, from before they
start, and the process that has started them terminates them, so that they print nothing. Where that process
is killed, or terminated before it can, workers end themselves.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_PAUSE_S = 0.1


class Workers(ProcessPoolExecutor):
    """A pool of `jobs` spawned processes (0: one per core). A `with` block that is interrupted terminates
    them."""

    def __init__(self, jobs: int = 0) -> None:
        super().__init__(
            jobs or os.cpu_count() or 1, mp_context=get_context("spawn"), initializer=_end_with_parent
        )

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes inherit
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def terminate(self) -> None:
        """End the processes at once."""
        for process in list((self._processes or {}).values()):
            process.terminate()

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> bool | None:
        if kind is not None and not issubclass(kind, Exception):
            self.terminate()
        return super().__exit__(kind, *error)


def _end_with_parent() -> None:
    """Kill this process when its parent ends, whatever it is doing."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    Thread(target=watch, name="parent", daemon=True).start()


def each(function: Callable[[T], R], items: Iterable[T], jobs: int = 0) -> Iterator[tuple[T, Future[R]]]:
    """Calls `function` with every item in one of `jobs` processes (0: one per core), in the items' order, and
    yields item and result as they end.

    A process that dies costs its item alone, whose future raises `BrokenProcessPool`: every process is a pool
    of its own, since a pool gives up all of its work when one of its processes dies. Whoever is interrupted,
    or takes no more results, terminates the processes.
    """
    count = jobs or os.cpu_count() or 1
    idle: SimpleQueue[Workers] = SimpleQueue()
    for _ in range(count):
        idle.put(Workers(1))
    busy: set[Workers] = set()

    def call(item: T) -> R:
        pool = idle.get()
        busy.add(pool)
        try:
            return pool.submit(function, item).result()
        except BrokenProcessPool:
            busy.discard(pool)
            pool.shutdown(wait=False)
            pool = Workers(1)
            raise
        finally:
            busy.discard(pool)
            idle.put(pool)

    threads = ThreadPoolExecutor(count)
    futures = {threads.submit(call, item): item for item in items}
    try:
        for future in as_completed(futures):
            yield futures[future], future
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):
            for pool in list(busy):
                pool.terminate()
            time.sleep(_PAUSE_S)
        raise
    finally:
        threads.shutdown(cancel_futures=True)
        for _ in range(count):
            idle.get().shutdown()

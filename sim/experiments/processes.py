"""Worker processes that share nothing with the process that starts them.

A forked process would have the objects of gRPC without their threads, and crash or hang when it frees them;
so each worker is spawned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def workers(jobs: int = 0) -> ProcessPoolExecutor:
    """A pool of `jobs` spawned processes (0: one per core)."""
    return ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=get_context("spawn"))


def each(function: Callable[[T], R], items: Iterable[T], jobs: int = 0) -> Iterator[tuple[T, Future[R]]]:
    """Calls `function` with every item in one of `jobs` processes (0: one per core), in the items' order, and
    yields item and result as they end.

    A process that dies costs its item alone, whose future raises `BrokenProcessPool`: every process is a pool
    of its own, since a pool gives up all of its work when one of its processes dies.
    """
    count = jobs or os.cpu_count() or 1
    idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
    for _ in range(count):
        idle.put(workers(1))

    def call(item: T) -> R:
        pool = idle.get()
        try:
            return pool.submit(function, item).result()
        except BrokenProcessPool:
            pool.shutdown(wait=False)
            pool = workers(1)
            raise
        finally:
            idle.put(pool)

    threads = ThreadPoolExecutor(count)
    try:
        futures = {threads.submit(call, item): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future
    finally:
        threads.shutdown(cancel_futures=True)
        for _ in range(count):
            idle.get().shutdown()

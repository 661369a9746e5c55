"""Worker processes that share nothing with the process that starts them.

A forked process would have the objects of gRPC without their threads, and crash or hang when it frees them;
so each worker is spawned.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def workers(jobs: int = 0) -> ProcessPoolExecutor:
    """A pool of `jobs` spawned processes (0: one per core)."""
    return ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=get_context("spawn"))

"""Worker processes that share nothing with the one that starts them.

A forked one would hold the objects of gRPC without the threads behind them, and crash or hang when it lets go
of them: so every process starts afresh.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def workers(jobs: int = 0) -> ProcessPoolExecutor:
    """So many processes (0: one per core), which import what they are asked to call."""
    return ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=get_context("spawn"))

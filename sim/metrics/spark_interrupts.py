"""Ctrl-C while Spark starts or works: what it does is cancelled, and `KeyboardInterrupt` follows.

An exception in the middle of a call of Java breaks the connection, leaves the job running, and py4j logs a
traceback. So the signal cancels from a thread of its own; the call then fails, and Java has cleaned up.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_S = 0.2


@contextmanager
def interruptible(cancel: Callable[[], Any]) -> Iterator[None]:
    """On SIGINT in the block, call `cancel` on a thread again and again until the block ends, and then raise
    `KeyboardInterrupt` in place of what the block raises. A second SIGINT raises it at once.

    Threads other than the main one, which get no signals, and processes that ignore SIGINT are unaffected.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    interrupted, ended = threading.Event(), threading.Event()

    def cancel_until_end() -> None:
        while not ended.is_set():
            with suppress(Exception):  # such as of what has ended meanwhile
                cancel()
            ended.wait(_PAUSE_S)

    def on_signal(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        threading.Thread(target=cancel_until_end, name="cancel", daemon=True).start()

    signal.signal(signal.SIGINT, on_signal)
    logging.getLogger().addFilter(_is_of_others)
    try:
        yield
    except Exception:
        if not interrupted.is_set():
            raise
    finally:
        ended.set()
        logging.getLogger().removeFilter(_is_of_others)
        if signal.getsignal(signal.SIGINT) is on_signal:  # else pyspark has set its own
            signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt


def cancel_jobs(session: SparkSession) -> None:
    """Cancel all jobs of a session, as pyspark's own handler of SIGINT does."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


@contextmanager
def interruptible_launch() -> Iterator[None]:
    """`interruptible` for the start of Java by pyspark, which else outlives this process where it is
    interrupted before it has answered: it is terminated."""
    from pyspark import java_gateway

    module: Any = java_gateway
    processes: list[subprocess.Popen[bytes]] = []
    launch = module.Popen

    def recorded(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(launch(*words, **options))
        return processes[-1]

    def terminate() -> None:
        for process in processes:
            process.terminate()

    module.Popen = recorded
    try:
        with interruptible(terminate):
            yield
    finally:
        module.Popen = launch


def _is_of_others(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname

"""Loading the kernels of a process without blocking it: compiled by a child process, loaded by a thread.

A lock in the cache directory (`compile.lock`) lets one process at a time compile; the others wait for it and
load the result. The child has a low priority and ends with its parent, whose pipe it reads; kernels compiled
by then stay in the cache, so the next child continues from there, also after one is killed. If the cache is
not writable, or the interpreter cannot be started again (a frozen application), the thread compiles.
Invariant: one thread per process loads, however often `load` is called; a failure is logged once and leaves
the process matching without kernels."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import pyarrow as pa

from covey.matcher.errors import CoveyError
from covey.matcher.jit.cache import cache_directory, cache_writable
from covey.matcher.jit.compiling import compile_kernels, kernels_cached

if TYPE_CHECKING:
    from io import TextIOWrapper

log = logging.getLogger("covey.kernels")

_POLL_S = 0.1
_LOW_PRIORITY = 3  # leaves some processor time on a machine that is busy because the kernels are missing
_MOST_CHILDREN = 3
_CHILD = "from covey.matcher.jit.kernel_loader import compile_for_parent; compile_for_parent()"
_IMPORTING = "import sys; sys.path[:] = {path!r}; "
"""The child imports from the same path as this process, changes at run time included."""


class KernelState(StrEnum):
    LOADING = "loading"
    COMPILING = "compiling"
    READY = "ready"
    FAILED = "failed"


class _ExitError(Exception):
    """The process is about to end."""


class KernelLoader:
    """Loads the kernels in a thread; `state` is its progress."""

    def __init__(self) -> None:
        self.state = KernelState.LOADING
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._listeners: list[Callable[[KernelState], None]] = []

    def load(self) -> None:
        """Start loading, unless started before; returns at once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="covey-kernels")
                self._thread.start()

    def add_listener(self, listener: Callable[[KernelState], None]) -> None:
        """Call `listener` with the state now, and at each change, from the loading thread."""
        with self._lock:
            self._listeners.append(listener)
            listener(self.state)

    def remove_listener(self, listener: Callable[[KernelState], None]) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def _set(self, state: KernelState) -> None:
        with self._lock:
            self.state = state
            for listener in self._listeners:
                listener(state)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            pa.array([0])  # imports pandas, where it is installed: half a second for the first events else
            self._compile()
            compile_kernels(lambda done, total: _check_alive())
            import_module("covey.matcher.engines.cluster.engine")  # as well
        except _ExitError:
            return
        except Exception as error:
            log.warning("no matching kernels, filters are evaluated without them: %s", error)
            log.debug("loading the kernels failed", exc_info=True)
            self._set(KernelState.FAILED)
            return
        if self.state is KernelState.COMPILING:
            log.info("the matching kernels are compiled and loaded, after %.0f s", time.monotonic() - started)
        self._set(KernelState.READY)

    def _compile(self) -> None:
        """Returns once the kernels are in the cache, or have to be compiled by this process."""
        while not kernels_cached():
            if not cache_writable():
                self._announce(f"in this process, since {cache_directory()} is not writable")
                return
            self._set(KernelState.COMPILING)
            with cache_lock(_wait) as waited:
                if waited:  # for another process that compiled them, probably
                    continue
                if getattr(sys, "frozen", False) or not sys.executable:
                    self._announce("in this process")
                    return
                self._announce("in the background, once")
                _compile_in_children()
                return

    def _announce(self, where: str) -> None:
        log.info(
            "compiling the matching kernels %s; this takes about a minute, and filters are evaluated without "
            "them until then",
            where,
        )
        self._set(KernelState.COMPILING)


loader = KernelLoader()  # of this process


@contextmanager
def cache_lock(wait: Callable[[], None]) -> Iterator[bool]:
    """Hold the lock of the kernel cache, if it is writable; `wait` is called until the lock is free. Yields
    whether another process had it."""
    if not cache_writable():
        yield False
        return
    waited = False
    with (cache_directory() / "compile.lock").open("a") as file:
        while not _try_lock(file):
            waited = True
            wait()
        yield waited  # closing the file unlocks it


def _try_lock(file: TextIOWrapper) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows: processes may compile the same kernels side by side
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks: as on Windows
        return True
    return True


def _compile_in_children() -> None:
    """Compile in a child process, and in another one if that is killed. `CoveyError` if the last fails."""
    for remaining in reversed(range(_MOST_CHILDREN)):
        status, message = _run_child()
        if status == 0:
            return
        if status > 0 or not remaining:
            raise CoveyError(f"compiling the kernels ended with status {status}: {message}")


def _run_child() -> tuple[int, str]:
    """Compile in a child process; its exit status, negative for a signal, and its last message. A session of
    its own keeps interrupts from the terminal away from it."""
    command = [sys.executable, "-c", _IMPORTING.format(path=sys.path) + _CHILD]
    with TemporaryFile("w+", errors="replace") as stderr:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        ) as child:
            while child.poll() is None:
                _wait()
        stderr.seek(0)
        lines = stderr.read().strip().splitlines() or ["no message"]
        return child.returncode, lines[-1]


def _wait() -> None:
    _check_alive()
    time.sleep(_POLL_S)


def _check_alive() -> None:
    """`_ExitError` once the main thread is over: the interpreter waits for this thread before it exits."""
    if not threading.main_thread().is_alive():
        raise _ExitError


def compile_for_parent() -> None:
    """The child process: compile all kernels into the cache, and exit early when the parent is gone."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_LOW_PRIORITY)
    compile_kernels()


def _exit_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock must be free when the interpreter exits
    os._exit(1)

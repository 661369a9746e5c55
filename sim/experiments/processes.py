"""Worker processes and tasks, and the resources of a process, from /proc. Workers are spawned: a forked
process would have the objects of gRPC without their threads, and crash or hang when it frees them. They block
SIGINT from before they start, and the process that has started them terminates them, so that they print
nothing at Ctrl-C. If that process is killed they end themselves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, Self, TypeVar

from covey.matcher.errors import CoveyError

T = TypeVar("T")
R = TypeVar("R")

_PAUSE_S = 0.1
_STOPPED_S = 20.0


class _Process(ProcessPoolExecutor):
    def __init__(self) -> None:
        super().__init__(1, mp_context=get_context("spawn"), initializer=_end_with_parent)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes inherit
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def terminate(self) -> None:
        for process in list((self._processes or {}).values()):
            process.terminate()


def _end_with_parent() -> None:
    """Kill this process when its parent ends."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    Thread(target=watch, name="parent", daemon=True).start()


def each(function: Callable[[T], R], items: Iterable[T], jobs: int = 0) -> Iterator[tuple[T, Future[R]]]:
    """Call `function` with every item in one of `jobs` processes (0: one per core), in the items' order, and
    yield item and result as they end.

    A process that dies costs its item alone, whose future raises `BrokenProcessPool`: every process is its
    own pool, since a pool gives up all work when one of its processes dies. An interrupt, or closing the
    iterator, terminates the processes.
    """
    count = jobs or os.cpu_count() or 1
    idle: SimpleQueue[_Process] = SimpleQueue()
    for _ in range(count):
        idle.put(_Process())
    busy: set[_Process] = set()

    def call(item: T) -> R:
        pool = idle.get()
        busy.add(pool)
        try:
            return pool.submit(function, item).result()
        except BrokenProcessPool:
            busy.discard(pool)
            pool.shutdown(wait=False)
            pool = _Process()
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


class Role(Protocol):
    """The work of a `Worker`: `start`, then a method per command, of its name, then `stop`. They return plain
    values by name, or nothing."""

    async def start(self) -> dict[str, Any] | None: ...

    async def stop(self) -> None: ...


class Worker:
    """A process of `module` in one of its roles; each command and each response is a line of JSON, `ready`
    the first response.

    `CoveyError` if it ends early, or does not respond within `patience_s`. At the end of the block it is
    stopped, and killed if that takes more than 20 s.
    """

    def __init__(self, module: str, role: str, *, patience_s: float = 120.0, **settings: Any) -> None:
        self.ready: dict[str, Any] = {}
        self._command = (sys.executable, "-m", module, role, json.dumps(settings))
        self._role = role
        self._patience_s = patience_s

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, limit=1 << 24
        )
        try:
            self.ready = await self.response()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOPPED_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def send(self, command: str, **arguments: Any) -> None:
        """Send a command without waiting for its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
        await self._process.stdin.drain()

    async def response(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), self._patience_s)
        except TimeoutError:
            raise CoveyError(f"the {self._role} did not respond within {self._patience_s:g} s") from None
        if not line:
            raise CoveyError(f"the {self._role} exited early")
        result: dict[str, Any] = json.loads(line)
        return result

    async def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        await self.send(command, **arguments)
        return await self.response()


def serve(
    roles: Mapping[str, Callable[..., Role]], run: Callable[[Coroutine[Any, Any, None]], Any] = asyncio.run
) -> None:
    run(_serve(roles[sys.argv[1]](**json.loads(sys.argv[2]))))


async def _serve(role: Role) -> None:
    print(json.dumps(await role.start() or {}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        result = await getattr(role, request["command"])(**request["arguments"])
        print(json.dumps(result or {}), flush=True)
    await role.stop()


class BackgroundTasks:
    """Running tasks. Invariant: `join` raises the first failure of any, whenever it happened."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()

    async def join(self) -> None:
        """Wait for all tasks; no failure cancels the others."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # until their callbacks have run
        if self._failure is not None:
            raise self._failure


async def unless_ended(work: Awaitable[T], others: Iterable[asyncio.Task[None]]) -> T:
    """Await `work`. If another task ends first, cancel it and raise that task's error or `CoveyError`."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, *others}, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done():
                other.result()
                raise CoveyError("a part of the run has ended early")
        return await task
    finally:
        task.cancel()


async def every(period_s: Callable[[], float], work: Callable[[], object]) -> None:
    """Call `work` repeatedly, awaiting a coroutine; the next call starts at least a period after the last."""
    loop = asyncio.get_running_loop()
    while True:
        start = loop.time()
        result = work()
        if asyncio.iscoroutine(result):
            await result
        await asyncio.sleep(max(0.0, start + period_s() - loop.time()))


_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1


def cpu_ns(process_id: int) -> int:
    """User and system time of a process; in steps of 10 ms where the kernel has no finer account."""
    threads = _folder(process_id) / "task"
    try:
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads.iterdir())
    except OSError:
        return sum(user_system_ns(process_id))


def user_system_ns(process_id: int) -> tuple[int, int]:
    """User and system time of a process, in steps of a clock tick (10 ms)."""
    fields = (_folder(process_id) / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) * _TICK_NS, int(fields[12]) * _TICK_NS


def total_cpu_ns(process_ids: Iterable[int]) -> int:
    return sum(map(cpu_ns, process_ids))


def resident_bytes(process_id: int) -> int:
    """Memory of a process that is not swapped out (RSS)."""
    return int((_folder(process_id) / "statm").read_text().split()[1]) * _PAGE_BYTES


def peak_resident_bytes(process_id: int) -> int:
    lines = (_folder(process_id) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def descriptors(process_id: int) -> int:
    return len(os.listdir(_folder(process_id) / "fd"))


def _folder(process_id: int) -> Path:
    folder = Path("/proc") / str(process_id)
    if not folder.exists():
        raise CoveyError(f"process {process_id}: expected one that runs, on a system with /proc")
    return folder

"""`covey up`: an overlay of local processes; `covey compile`: kernels, compiled ahead of their use."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.output import compile_once
from covey.cli.support.waiting import output_lines
from covey.matcher.errors import CoveyError
from covey.matcher.jit.cache import cache_directory, cache_writable
from covey.overlay.node.config import load_overlay
from covey.overlay.node.overlay import Overlay
from covey.sim.experiments.local_overlay import broker_command, is_linked

_STOP_S = 8.0
_LONGEST_PAUSE_S = 10.0


def up(file: Annotated[Path, typer.Argument(help="The overlay file.")]) -> None:
    """Start every broker of an overlay file on this machine, and stop them all with Ctrl-C.

    A broker that dies is reported and started again.

    Example: covey up examples/five.yaml
    """
    raise typer.Exit(asyncio.run(Up(load_overlay(file), file).run()))


class Up:
    def __init__(self, overlay: Overlay, file: Path) -> None:
        self._overlay = overlay
        self._file = file
        self._stopping = asyncio.Event()
        self._failed = False
        self._ready = False
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Run until a signal, or until a broker does not start; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        count = len(self._overlay.brokers)
        what = "1 broker" if count == 1 else f"{count:,} brokers"
        print(f"covey: starting {what} of {self._file}", file=sys.stderr, flush=True)
        keepers = [asyncio.create_task(self._keep(name)) for name in self._overlay.brokers]
        announcer = asyncio.create_task(self._announce())
        for task in (*keepers, announcer):
            task.add_done_callback(self._stop_on_error)
        await self._stopping.wait()
        announcer.cancel()
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        _, late = await asyncio.wait(keepers, timeout=_STOP_S)
        if late:
            for process in self._processes.values():
                if process.returncode is None:
                    process.kill()
            await asyncio.wait(late)
        await asyncio.wait({announcer})
        for task in (*keepers, announcer):
            if not task.cancelled():
                task.result()
        print("stopped", flush=True)
        return 1 if self._failed else 0

    def _stop_on_error(self, task: asyncio.Task[None]) -> None:
        """Only a defect ends a task; then no broker runs on without supervision."""
        if not task.cancelled() and task.exception() is not None:
            self._stopping.set()

    async def _keep(self, name: str) -> None:
        """Run a broker, and restart it after ever longer pauses."""
        pause_s = 0.5
        while not self._stopping.is_set():
            started = asyncio.get_running_loop().time()
            status = await self._broker(name)
            if self._stopping.is_set():
                return
            if self._ready and status == 0:
                print(f"covey: broker {name} has ended", file=sys.stderr, flush=True)
                return
            if not self._ready or status == 2:
                print(f"covey: broker {name} did not start (status {status})", file=sys.stderr, flush=True)
                self._failed = True
                self._stopping.set()
                return
            if asyncio.get_running_loop().time() - started > _LONGEST_PAUSE_S:
                pause_s = 0.5
            how = f"signal {-status}" if status < 0 else f"status {status}"
            print(f"covey: broker {name} died ({how}); starting it again", file=sys.stderr, flush=True)
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            except TimeoutError:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _broker(self, name: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *broker_command(self._file, name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._processes[name] = process
        if self._stopping.is_set():
            process.terminate()
        assert process.stdout is not None
        width = max(len(broker) for broker in self._overlay.brokers)
        try:
            async for line in output_lines(process.stdout):
                print(f"{name:<{width}} | {line}", flush=True)
        except Exception:
            # Keep reading, or the broker blocks once the pipe is full.
            process.terminate()
            await process.communicate()
            raise
        return await process.wait()

    async def _announce(self) -> None:
        for name in self._overlay.brokers:
            while not await self._linked(name):
                await asyncio.sleep(0.1)
        self._ready = True
        where = ", ".join(f"{name} at {broker.address}" for name, broker in self._overlay.brokers.items())
        print(f"ready: {where}", flush=True)

    async def _linked(self, name: str) -> bool:
        process, address = self._processes.get(name), self._overlay.brokers[name].address
        if process is None:
            return False
        tls = None if self._overlay.tls is None else self._overlay.tls.of(name)
        return await is_linked(address, process.pid, self._overlay.neighbours(name), tls)


def compile_ahead() -> None:
    """Compile the matching kernels into the cache of this user, which all later starts share.

    Brokers and clients do this in the background, and evaluate filters without kernels until then. The cache
    is ~/.cache/covey/kernels, or in the directory that NUMBA_CACHE_DIR names.

    Example: covey compile
    """
    if not cache_writable():
        raise CoveyError(f"the kernel cache {cache_directory()} is not writable: set NUMBA_CACHE_DIR")
    compile_once()
    print(f"the kernels are in {cache_directory()}")

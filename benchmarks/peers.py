"""`peers`: durable events in Covey and in other systems on this machine, one after the other.

    publisher -> server -> reader

One server each, as installed here; publisher and reader share a process, and use the system's Python
client. Every event matches: by `firm == "IBM"` in Covey, elsewhere by a subject or topic. Rounds go
through all systems; figures are medians. At the end the reader goes away, events are published and
confirmed, the server is killed with SIGKILL and started again, and the reader comes back.
"""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import Words, command, p50_p99_ms, pair, steady
from benchmarks.systems import DURABLE, INSTALLED, System
from covey.cli.support.output import print_table
from covey.matcher.errors import CoveyError, InputError
from covey.sim.progress import Progress, silent

_PROGRAMS = tuple(dict.fromkeys(system.program for system in DURABLE if system.program != "covey"))
_CONFIRMED = 200
_QUIET_S = 2.0
_REPLY_S = 5.0
_BACK_S = 30.0
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """Compare durable events in Covey and in other systems that are installed on this machine.

    One server each, one publisher and one reader in Python, events of 128 bytes. At full speed 256 events
    are in flight; latency is from publishing to arrival at 1,000 events per second; confirmed publishes are
    one after the other. "lost" are events of 1,000 that the server had confirmed before it was killed
    (kill -9) while their reader was away; "-" says that the reader did not come back within 30 s. Needs
    Covey's extra `bench`.

    Example: python -m benchmarks peers --systems nats-server,mosquitto
    """

    systems: Annotated[tuple[str, ...], Words("Which, beside Covey", _PROGRAMS, INSTALLED)] = ()
    rounds: Annotated[int, typer.Option(min=1, help="Rounds through all systems; medians are shown.")] = 3
    events: Annotated[int, typer.Option(min=100, help="Events of a round at full speed.")] = 3_000
    rate: int = 1_000
    seconds: float = 3.0
    away: int = 1_000
    """Events that are confirmed while the reader is away."""


@dataclass(slots=True)
class PeerResult:
    """Medians of all rounds; times in ms, as (p50, p99). `lost` and `repeated` are of the `away` confirmed
    events before the server was killed; None if the reader could not come back within 30 s."""

    label: str
    version: str
    storing: str
    events_per_s: float = 0.0
    latency_ms: tuple[float, float] = (0.0, 0.0)
    confirmed_ms: tuple[float, float] = (0.0, 0.0)
    lost: int | None = None
    repeated: int | None = None
    rounds: list[tuple[float, tuple[float, float], tuple[float, float]]] = field(default_factory=list)


def found(programs: Sequence[str] = ()) -> list[type[System]]:
    """Covey and the systems of `programs`, by default all whose server and client are installed. `InputError`
    for a missing one."""
    if not programs:
        return [system for system in DURABLE if not system.missing()]
    chosen = [system for system in DURABLE if system.program in ("covey", *programs)]
    for missing in filter(None, (system.missing() for system in chosen)):
        raise InputError(missing)
    return chosen


async def measure_peers(plan: PeerPlan, progress: Progress = silent) -> list[PeerResult]:
    peers = found(plan.systems)
    results = [PeerResult(peer.label, await _version(peer.program), peer.storing) for peer in peers]
    steps = (plan.rounds + 1) * len(peers)
    for step in range(steps):
        number, at = divmod(step, len(peers))
        progress(f"round {number + 1}: {peers[at].label}", step / steps)
        with tempfile.TemporaryDirectory(prefix="covey-") as folder:
            peer = peers[at](Path(folder))
            await peer.start()
            try:
                if number < plan.rounds:
                    results[at].rounds.append(await _round(peer, plan))
                else:
                    results[at].lost, results[at].repeated = await _killed(peer, plan.away)
            finally:
                await peer.end(signal.SIGTERM)
    for result in results:
        rates, latencies, confirmed = zip(*result.rounds, strict=True)
        result.events_per_s = statistics.median(rates)
        result.latency_ms = _medians(latencies)
        result.confirmed_ms = _medians(confirmed)
    return results


async def _version(program: str) -> str:
    """The first number with dots in what the server prints as its version."""
    if program == "covey":
        return version("covey")
    flag = {"mosquitto": "-h"}.get(program, "--version")
    name = {"rabbitmq-server": "rabbitmqctl"}.get(program, program)
    process = await asyncio.create_subprocess_exec(
        name, flag, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    match = re.search(r"\d+\.\d+(\.\d+)?", said.decode(errors="replace"))
    return match[0] if match else "unknown"


class _Arrivals:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.times_ns: list[int] = []

    def take(self, number: int, sent_ns: int) -> None:
        self.numbers.append(number)
        self.times_ns.append(time.perf_counter_ns() - sent_ns)

    async def until(self, count: int, what: str) -> None:
        deadline = time.perf_counter() + _PATIENCE_S
        while len(self.numbers) < count:
            if time.perf_counter() > deadline:
                raise CoveyError(f"{what}: {len(self.numbers):,} of {count:,} events have arrived")
            await asyncio.sleep(0.001)


async def _round(peer: System, plan: PeerPlan) -> tuple[float, tuple[float, float], tuple[float, float]]:
    arrivals = _Arrivals()
    async with peer.reader(arrivals.take), peer.publisher():
        await peer.publish_many(0, plan.events // 10, time.perf_counter_ns)  # warm
        await arrivals.until(plan.events // 10, peer.label)

        count, began = len(arrivals.numbers) + plan.events, time.perf_counter()
        await peer.publish_many(count - plan.events, plan.events, time.perf_counter_ns)
        await arrivals.until(count, peer.label)
        per_s = plan.events / (time.perf_counter() - began)

        arrivals.times_ns.clear()
        singles = round(plan.rate * plan.seconds)
        async with asyncio.TaskGroup() as group:
            async for number in steady(plan.rate, singles):
                group.create_task(peer.publish(count + number, time.perf_counter_ns()))
        count += singles
        await arrivals.until(count, peer.label)
        latency = p50_p99_ms(arrivals.times_ns)

        times = []
        for number in range(count, count + _CONFIRMED):
            sent_ns = time.perf_counter_ns()
            await peer.publish(number, sent_ns)
            times.append(time.perf_counter_ns() - sent_ns)
        await arrivals.until(count + _CONFIRMED, peer.label)
    return per_s, latency, p50_p99_ms(times)


async def _killed(peer: System, away: int) -> tuple[int | None, int | None]:
    arrivals = _Arrivals()
    async with peer.reader(arrivals.take):
        pass
    async with peer.publisher():
        await peer.publish_many(0, away, time.perf_counter_ns)
    await peer.end(signal.SIGKILL)
    await peer.start()
    async with AsyncExitStack() as stack:
        if not await _opened(stack, peer, arrivals):
            return None, None
        seen = -1
        while len(arrivals.numbers) != seen:  # until nothing comes any more
            seen = len(arrivals.numbers)
            await asyncio.sleep(_QUIET_S)
    different = len(set(arrivals.numbers))
    return away - different, len(arrivals.numbers) - different


async def _opened(stack: AsyncExitStack, peer: System, arrivals: _Arrivals) -> bool:
    """Whether the reader comes back in time. A queue in recovery may refuse it at first."""
    deadline = time.perf_counter() + _BACK_S
    while time.perf_counter() < deadline:
        with suppress(Exception):
            await asyncio.wait_for(stack.enter_async_context(peer.reader(arrivals.take)), _REPLY_S)
            return True
        await asyncio.sleep(0.5)
    return False


def _medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(p50 for p50, _ in pairs), statistics.median(p99 for _, p99 in pairs)


def show(plan: PeerPlan, results: list[PeerResult]) -> None:
    columns = ["system", "version", "events per second", "latency p50 / p99 ms", "confirmed p50 / p99 ms"]
    rows: list[list[object]] = []
    for each in results:
        figures = [round(each.events_per_s), pair(each.latency_ms), pair(each.confirmed_ms)]
        counts = ["-" if count is None else count for count in (each.lost, each.repeated)]
        rows.append([each.label, each.version, *figures, *counts])
    print_table("Durable events, one server", [*columns, "lost", "repeated"], rows)
    for each in results:
        print(f"{each.label}: before it confirms, {each.storing}")


peers = command(PeerPlan, measure_peers, show, prepare=lambda: None, loop=asyncio.run)

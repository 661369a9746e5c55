"""The processes of `lone`: one publishes in phases, each of the others reads. Numbers have the phase.

User time is the processes' own: that of a publisher and of its server from before the first publish of a
phase until it is quiet, that of a reader from the first event to the last.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.lone_systems import SYSTEMS
from covey.matcher.errors import CoveyError
from covey.overlay.transport.event_loop import run

_PHASE = 1 << 32
_WARM_RATE, _WARM = 1_000, 500
_QUIET_S = 0.3
_PATIENCE_S = 120.0
_LOOP_BURST = 1_000
"""gmqtt writes nothing while its publisher does not wait; a turn of the loop after so many events."""


@dataclass(frozen=True, slots=True)
class Phase:
    """So many events, so many per second; a rate of 0 is a loop of publish."""

    rate: int
    count: int


def phases(rates: tuple[int, ...], seconds: float, loop: int) -> list[Phase]:
    """The phases of a round: one to warm up, one per rate, the loop."""
    return [
        Phase(_WARM_RATE, _WARM),
        *(Phase(rate, round(rate * seconds)) for rate in rates),
        Phase(0, loop // 10),
        Phase(0, loop),
    ]


@dataclass(frozen=True, slots=True)
class Published:
    """User time in us per event, of the publisher and of the server; the server's user and system time."""

    publisher_us: float
    server_us: float
    server_cpu: float
    """In cores."""


@dataclass(frozen=True, slots=True)
class Received:
    """User time in us per event; latencies in ns; the first and the last arrival."""

    reader_us: float
    latencies: list[int]
    first_ns: int
    last_ns: int


def publish_phases(system: str, address: str, server: int, plan: list[Phase], connection: Connection) -> None:
    """The publisher's process: waits for a word, and sends a list of `Published`."""
    run(_publish_phases(system, address, server, plan, connection))


async def _publish_phases(
    system: str, address: str, server: int, plan: list[Phase], connection: Connection
) -> None:
    client = SYSTEMS[system]()
    await client.open(address)
    connection.send(None)
    connection.recv()
    results = []
    for at, phase in enumerate(plan):
        own, servers, began = _user_us(), _server_us(server), time.perf_counter()
        for index in range(phase.count):
            if phase.rate:
                due = began + index / phase.rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            elif index % _LOOP_BURST == 0:
                await asyncio.sleep(0)
            await client.publish(at * _PHASE + index, time.perf_counter_ns())
        elapsed = time.perf_counter() - began
        await asyncio.sleep(_QUIET_S)
        own_us = _user_us() - own
        if not phase.rate:
            connection.send(None)  # the next phase begins when everything has arrived
            connection.recv()
        after = _server_us(server)
        cores = (sum(after) - sum(servers)) / 1e6 / elapsed
        results.append(Published(own_us / phase.count, (after[0] - servers[0]) / phase.count, cores))
    await client.close()
    connection.send(results)


def read_phases(system: str, address: str, plan: list[Phase], connection: Connection) -> None:
    """A reader's process: says when it reads, when the events of loops have come, and sends `Received`."""
    run(_read_phases(system, address, plan, connection))


async def _read_phases(system: str, address: str, plan: list[Phase], connection: Connection) -> None:
    client = SYSTEMS[system]()
    await client.open(address)
    times: list[list[int]] = [[] for _ in plan]
    marks = [[0.0, 0.0, 0.0, 0.0] for _ in plan]
    counts = [phase.count for phase in plan]

    def take(number: int, sent_ns: int) -> None:
        now_ns = time.perf_counter_ns()
        at, index = divmod(number, _PHASE)
        if index == 0:
            marks[at][:2] = now_ns, _user_us()
        times[at].append(now_ns - sent_ns)
        if len(times[at]) == counts[at]:
            marks[at][2:] = now_ns, _user_us()

    await client.read(take)
    connection.send(None)
    for at, phase in enumerate(plan):
        deadline = time.monotonic() + _PATIENCE_S
        while len(times[at]) < phase.count:
            if time.monotonic() > deadline:
                raise CoveyError(f"{system}: {len(times[at]):,} of {phase.count:,} events have arrived")
            await asyncio.sleep(0.5)
        connection.send(None)
    connection.send(
        [
            Received((end - begin) / phase.count, latencies, int(first_ns), int(last_ns))
            for phase, latencies, (first_ns, begin, last_ns, end) in zip(plan, times, marks, strict=True)
        ]
    )
    await client.close()


def _user_us() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime * 1e6


def _server_us(process_id: int) -> tuple[float, float]:
    """User and system time, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    tick_us = 1e6 / os.sysconf("SC_CLK_TCK")
    return int(fields[11]) * tick_us, int(fields[12]) * tick_us

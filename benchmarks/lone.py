"""`lone`: the cost of an event that comes alone, in Covey, in systems without content, and in a bare relay.

    publisher -> server -> readers

Each is a process. A round starts the systems one after the other: events at low rates, which never meet
each other, and then a loop of publish. Figures are medians of the rounds; nothing is stored. Besides,
Covey's way of one event and of one update is traced call by call.

User time is the processes' own: of a publisher and its server from before a phase's first publish until
it is quiet, of a reader from the first event to the last. Events' numbers contain the phase.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.harness import Words, command, p50_p99_ms
from benchmarks.systems import FLEETING, INSTALLED, ORDER, TEXT, System
from covey.cli.support.output import print_table
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.local_overlay import free_addresses
from covey.sim.experiments.processes import Worker, serve, user_system_ns
from covey.sim.progress import Progress, silent
from covey.testing import LocalBrokers

_ROOT = Path(sys.modules["covey.matcher.errors"].__file__ or "").parent.parent
_SETTLED_S = 0.1
_TRACE_WARM = 30


@dataclass(frozen=True, slots=True)
class Trace:
    """Calls of functions in `overlay/` and `matcher/`, the number of different functions and files, calls
    from one folder to another, and calls by folder."""

    calls: int
    functions: int
    files: int
    crossings: int
    folders: dict[str, int]


class _Calls:
    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.crossings = 0

    def __enter__(self) -> _Calls:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, kind: str, _argument: Any) -> None:
        if kind != "call":
            return
        here = _file(frame)
        if here is None:
            return
        self.calls[here, frame.f_code.co_qualname] += 1
        caller = frame.f_back and _file(frame.f_back)
        self.crossings += caller is not None and _folder(caller) != _folder(here)

    def trace(self, ways: int) -> Trace:
        """The mean calls of one of `ways` runs."""
        folders: Counter[str] = Counter()
        for (file, _), count in self.calls.items():
            folders[_folder(file)] += count
        return Trace(
            round(self.calls.total() / ways),
            len(self.calls),
            len({file for file, _ in self.calls}),
            round(self.crossings / ways),
            {folder: round(count / ways) for folder, count in folders.most_common()},
        )


def _file(frame: FrameType) -> str | None:
    """The path of a call's file in the repository, if it is Covey's."""
    name = frame.f_code.co_filename
    for room in ("overlay", "matcher"):
        if name.startswith(f"{_ROOT}/{room}/"):
            return name[len(str(_ROOT)) + 1 :]
    return None


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


async def trace_ways(ways: int = 5) -> dict[str, Trace]:
    """The calls of a lone event and of a lone awaited update, means of a few."""
    async with AsyncExitStack() as stack:
        addresses = dict(zip(("b1", "b2"), free_addresses(2), strict=True))
        await stack.enter_async_context(LocalBrokers([("b1", "b2")], addresses=addresses))
        publisher = await stack.enter_async_context(Client(addresses["b1"]))
        subscriber = await stack.enter_async_context(Client(addresses["b2"]))
        await publisher.advertise(ORDER)
        subscription = await subscriber.subscribe(ORDER, "number >= $low", low=0)
        arrived = 0

        async def read() -> None:
            nonlocal arrived
            async for event in subscription:
                arrived += event["number"] >= 0

        stack.callback(asyncio.create_task(read()).cancel)

        async def publish(number: int) -> None:
            await publisher.publish("Order", firm="IBM", number=number, sent_ns=number, text=TEXT)

        async def update(number: int) -> None:
            await subscription.update(low=-number)

        return {"publish": await _traced(publish, ways), "update": await _traced(update, ways)}


async def _traced(way: Callable[[int], Awaitable[None]], ways: int) -> Trace:
    for number in range(_TRACE_WARM):
        await way(number)
        await asyncio.sleep(0.01)
    calls = _Calls()
    for number in range(ways):
        await asyncio.sleep(_SETTLED_S)
        with calls:
            await way(_TRACE_WARM + number)
            await asyncio.sleep(_SETTLED_S)
    return calls.trace(ways)


_PHASE = 1 << 32
_WARM_RATE, _WARM = 1_000, 500
_QUIET_S = 0.3
_PATIENCE_S = 120.0
_LOOP_BURST = 1_000
"""gmqtt writes only while its publisher waits: events per turn of the loop."""


@dataclass(frozen=True, slots=True)
class LonePlan:
    """Measure what one event costs that comes alone, beside NATS, mosquitto and a bare relay of bytes.

    User time per event of the server, the publisher and the subscriber, and latency, at 100 and 1,000
    events per second; events delivered per second by a loop of publish, with one subscriber and with four.
    Then the calls of functions that one publish and one update make in Covey, over two brokers. Needs
    Covey's extra `bench`.

    Example: python -m benchmarks lone --systems covey,nats
    """

    systems: Annotated[tuple[str, ...], Words("Which", FLEETING, INSTALLED)] = ()
    rounds: Annotated[int, typer.Option(min=1, help="Rounds through all systems; medians are shown.")] = 3
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each rate in a round.")] = 4.0
    loop: Annotated[int, typer.Option(min=100, help="Events of a loop of publish.")] = 50_000
    rates: tuple[int, ...] = (100, 1_000)
    readers: tuple[int, ...] = (1, 4)
    """Numbers of readers beside which the loop is repeated."""


@dataclass(frozen=True, slots=True)
class LoneResult:
    """Medians of one system, by name of the figure."""

    label: str
    figures: dict[str, float]


async def measure_lone(plan: LonePlan, progress: Progress = silent) -> dict[str, Any]:
    """A result per system, and the traces of Covey. `CoveyError` where events do not arrive."""
    chosen = plan.systems or tuple(name for name, system in FLEETING.items() if not system.missing())
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    steps = plan.rounds * len(chosen)
    for step in range(steps):
        number, at = divmod(step, len(chosen))
        name = chosen[at]
        progress(f"round {number + 1}: {FLEETING[name].label}", step / steps)
        figures[name].append(await _round(name, plan))
    results = [
        LoneResult(
            FLEETING[name].label,
            {figure: float(np.median([each[figure] for each in rounds])) for figure in rounds[0]},
        )
        for name, rounds in figures.items()
    ]
    return {"systems": results, "trace": await trace_ways() if "covey" in chosen else {}}


async def _round(name: str, plan: LonePlan) -> dict[str, float]:
    figures: dict[str, float] = {}
    for count in plan.readers:
        async with AsyncExitStack() as stack:
            system = FLEETING[name](Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-"))))
            await system.start()
            stack.push_async_callback(system.end, signal.SIGTERM)
            readers = [_worker("reader", system, name) for _ in range(count)]
            publisher = _worker("publisher", system, name, server=system.process_id)
            for worker in (*readers, publisher):
                await stack.enter_async_context(worker)
            phases = [(_WARM_RATE, _WARM)]
            if count == plan.readers[0]:
                phases += [(rate, round(rate * plan.seconds)) for rate in plan.rates]
            phases += [(0, plan.loop // 10), (0, plan.loop)]
            for phase, (rate, events) in enumerate(phases):
                for reader in readers:
                    await reader.send("read", phase=phase, events=events)
                published = await publisher.request("publish", phase=phase, rate=rate, events=events)
                received = [await reader.response() for reader in readers]
                if rate and phase:
                    of_rate = published | received[0]
                    figures |= {f"{figure}, {rate}/s": of_rate[figure] for figure in _OF_RATE}
        taken_ns = max(each["last_ns"] for each in received) - min(each["first_ns"] for each in received)
        figures[f"delivered/s, {count}"] = count * plan.loop / taken_ns * 1e9
        figures[f"loop us, {count}"] = published["publisher us"]
    return figures


def _worker(role: str, system: System, name: str, **settings: int) -> Worker:
    patience_s = _PATIENCE_S + 30
    return Worker(__name__, role, patience_s=patience_s, system=name, port=system.port, **settings)


_OF_RATE = ("server us", "server %", "publisher us", "subscriber us", "p50 ms", "p99 ms")


class Publisher:
    def __init__(self, system: str, port: int, server: int) -> None:
        self._system = FLEETING[system](port=port)
        self._server = server
        self._connected = AsyncExitStack()

    async def start(self) -> None:
        await self._connected.enter_async_context(self._system.publisher())

    async def publish(self, phase: int, rate: int, events: int) -> dict[str, Any]:
        """Publish events at a rate per second; a rate of 0 is a loop of publish."""
        own, before, began = _user_us(), user_system_ns(self._server), time.perf_counter()
        for index in range(events):
            if rate:
                await asyncio.sleep(max(0.0, began + index / rate - time.perf_counter()))
            elif index % _LOOP_BURST == 0:
                await asyncio.sleep(0)
            await self._system.publish(phase * _PHASE + index, time.perf_counter_ns())
        elapsed = time.perf_counter() - began
        await asyncio.sleep(_QUIET_S)
        after = user_system_ns(self._server)
        return {
            "publisher us": (_user_us() - own) / events,
            "server us": (after[0] - before[0]) / 1e3 / events,
            "server %": (sum(after) - sum(before)) / 1e9 / elapsed * 100,
        }

    async def stop(self) -> None:
        await self._connected.aclose()


class Reader:
    def __init__(self, system: str, port: int) -> None:
        self._system = FLEETING[system](port=port)
        self._times: dict[int, list[int]] = {}
        self._first: dict[int, tuple[int, float]] = {}
        self._last: dict[int, tuple[int, float]] = {}
        self._expected: dict[int, int] = {}
        self._connected = AsyncExitStack()

    def _take(self, number: int, sent_ns: int) -> None:
        now_ns = time.perf_counter_ns()
        phase, index = divmod(number, _PHASE)
        if index == 0:
            self._first[phase] = now_ns, _user_us()
        times = self._times.setdefault(phase, [])
        times.append(now_ns - sent_ns)
        if len(times) >= self._expected.get(phase, 0):
            self._last[phase] = now_ns, _user_us()

    async def start(self) -> None:
        await self._connected.enter_async_context(self._system.reader(self._take))

    async def read(self, phase: int, events: int) -> dict[str, Any]:
        """The cost and the latencies of a phase's events, once they have come."""
        self._expected[phase] = events
        deadline = time.monotonic() + _PATIENCE_S
        while phase not in self._last:
            if time.monotonic() > deadline:
                come = len(self._times.get(phase, ()))
                raise CoveyError(f"{self._system.label}: {come:,} of {events:,} events have arrived")
            await asyncio.sleep(0.5)
        (first_ns, begin_us), (last_ns, end_us) = self._first[phase], self._last[phase]
        p50, p99 = p50_p99_ms(self._times.pop(phase))
        times = {"first_ns": first_ns, "last_ns": last_ns, "p50 ms": p50, "p99 ms": p99}
        return times | {"subscriber us": (end_us - begin_us) / events}

    async def stop(self) -> None:
        await self._connected.aclose()


def _user_us() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime * 1e6


def show(plan: LonePlan, results: dict[str, Any]) -> None:
    systems = results["systems"]
    rows = [[figure, *(_shown(each.figures[figure]) for each in systems)] for figure in systems[0].figures]
    print_table("One event at a time", ["", *(each.label for each in systems)], rows)
    if results["trace"]:
        _print_traces(results["trace"])


def _print_traces(traces: dict[str, Trace]) -> None:
    folders = sorted({folder for trace in traces.values() for folder in trace.folders})
    rows: list[list[object]] = [
        [field, *(getattr(trace, field) for trace in traces.values())]
        for field in ("calls", "functions", "files", "crossings")
    ]
    rows += [[folder, *(trace.folders.get(folder, 0) for trace in traces.values())] for folder in folders]
    print_table("Calls over two brokers", ["", *traces], rows)


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


lone = command(LonePlan, measure_lone, show, loop=asyncio.run)

if __name__ == "__main__":
    serve({"publisher": Publisher, "reader": Reader}, run)
